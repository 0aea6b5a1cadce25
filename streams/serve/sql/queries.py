"""SQL over served stores. DuckDB reads them as tables, which are loaded for each query, as of one commit of each task.

A table has the columns `key`, `value`, `timestamp`, `window_start` and `window_end`, as far as the store has them; numbers,
booleans and text as such, everything else as JSON. The conditions of a `WHERE` on the key and the times decide which rows are
loaded: perhaps more than needed, since DuckDB checks them again, but never fewer. Only one `SELECT` runs, which reaches no files,
no network and no objects of Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from state.stores.codec import MAX_TIME
from state.stores.spec import StoreKind
from streams.application.store_rows import StoreRow
from streams.errors import QueryError, SerdeError
from streams.serve.reading import Point, ReadStore
from streams.serve.requests import SqlLimits, parse_point, point_json
from streams.serve.scans import Scan
from streams.serve.sql.process import computed, parsed
from streams.serve.tables import table_of, type_of


@dataclass(frozen=True, slots=True)
class SqlResult:
    """The result of a query, and the commits that it was computed from."""

    columns: list[str]
    rows: list[list[Any]]
    points: tuple[Point, ...]
    loaded: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """Rows of some tasks of a store, as `StoreReader.shown` makes them, and the commits that they are from."""

    rows: list[StoreRow]
    points: tuple[Point, ...]

    @property
    def as_json(self) -> dict[str, Any]:
        """The rows as JSON, for another process."""
        return {"rows": [list(row) for row in self.rows], "tasks": list(map(point_json, self.points))}

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Loaded:
        """Reads rows that another process has written with `as_json`."""
        return cls([StoreRow(*row) for row in data["rows"]], tuple(map(parse_point, data["tasks"])))


def check_rows(store: ReadStore, rows: int, limits: SqlLimits) -> None:
    """Refuses a query that reads too much.

    Raises:
        QueryError: The query reads too many rows.
    """
    if rows > limits.loaded_rows:
        raise QueryError(f"the query reads more than {limits.loaded_rows} rows: {_narrower(store)}")


def _narrower(store: ReadStore) -> str:
    return f"name a key (key = ...) or windows (window_start >= ...) of {store.name!r} in its WHERE"


class Query:
    """One `SELECT`.

    Args:
        text: The SQL.
        stores: The stores, by name.

    Raises:
        QueryError: It is not one `SELECT`, or names a store that SQL cannot read.
    """

    def __init__(self, text: str, stores: Mapping[str, ReadStore]) -> None:
        self._text = text
        tree = parsed(text)
        self._nodes = list(_nodes(tree))
        tables = {str(node["table_name"]) for node in self._nodes if node.get("type") == "BASE_TABLE"}
        by_name = {name.lower(): store for name, store in stores.items()}
        self.stores = [by_name[name.lower()] for name in sorted(tables) if name.lower() in by_name]
        versioned = [store.name for store in self.stores if store.kind is StoreKind.VERSIONED]
        if versioned:
            raise QueryError(f"{versioned[0]!r} has versions: its rows can be read by key and time only")

    def scan(self, store: ReadStore, limit: int) -> Scan:
        """A scan of all rows of a store that the query can see, and perhaps of more."""
        used = [node for node in self._nodes if _is_table(node, store.name) and not node.get("column_name_alias")]
        selects = [node for node in self._nodes if _is_table(node.get("from_table"), store.name)]
        if len(used) != 1 or len(selects) != 1:
            return Scan(limit=limit)
        key, start, end = None, 0, MAX_TIME
        table = selects[0]["from_table"]
        names = {str(table["table_name"]).lower(), str(table.get("alias") or "").lower()}
        for column, comparison, value in _conditions(selects[0].get("where_clause"), names):
            if column == "key" and comparison == "=":
                key = _key(store, value)
            elif column == "window_start" and isinstance(value, int):
                start = max(start, value) if comparison in ("=", ">", ">=") else start
                end = min(end, value) if comparison in ("=", "<", "<=") else end
        if not store.kind.segmented:
            return Scan(lower=key, upper=key, limit=limit)
        # Sessions are ordered by their ends, which are not before their starts.
        last = MAX_TIME if store.kind is StoreKind.SESSION else max(0, end)
        return Scan(key=key, from_ms=max(0, start), to_ms=last, limit=limit)

    def tasks(self, store: ReadStore) -> Sequence[int]:
        """The tasks of a store with rows that the query can see."""
        return store.tasks_of(self.scan(store, 1))

    def rows(self, store: ReadStore, tasks: Iterable[int], limits: SqlLimits) -> Loaded:
        """Loads the rows of some tasks that the query can see, and perhaps more.

        Raises:
            QueryError: There are more rows than allowed.
            StoreNotReadyError: A copy cannot be read here.
        """
        asked = replace(store.asked(self.scan(store, limits.loaded_rows), None), most_bytes=limits.loaded_bytes)
        part = store.part(asked, tasks)
        if part.cut:
            raise QueryError(f"the query reads more than {limits.loaded_bytes} bytes: {_narrower(store)}")
        check_rows(store, len(part.rows), limits)
        return Loaded([store.reader.shown(row, task) for _, (row, task) in part.rows], part.points)

    def run(self, loaded: Mapping[str, Sequence[Loaded]], limits: SqlLimits) -> SqlResult:
        """Runs the query, and returns the result.

        Args:
            loaded: Store -> its rows.
            limits: The limits of the query.

        Raises:
            QueryError: The query is wrong, or costs more than allowed.
        """
        count = 0
        tables = {}
        for store in self.stores:
            rows = [row for part in loaded[store.name] for row in part.rows]
            count += len(rows)
            check_rows(store, count, limits)
            tables[store.name] = table_of(store, rows)
        found = computed(self._text, tables, limits)
        points = tuple(point for store in self.stores for part in loaded[store.name] for point in part.points)
        return SqlResult(found["columns"], found["rows"], points, count)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects of a syntax tree."""
    if isinstance(tree, dict):
        yield tree
        for part in tree.values():
            yield from _nodes(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from _nodes(part)


def _is_table(node: Any, name: str) -> bool:
    return isinstance(node, dict) and node.get("type") == "BASE_TABLE" and node["table_name"].lower() == name.lower()


_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
}
_TURNED = {"=": "=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}


def _conditions(node: Any, names: Set[str]) -> Iterator[tuple[str, str, Any]]:
    """The comparisons of a table's column with a constant that every row has to fulfil, as column, comparison and constant."""
    kind = node.get("type") if isinstance(node, dict) else None
    if kind == "CONJUNCTION_AND":
        for child in node["children"]:
            yield from _conditions(child, names)
    elif kind == "COMPARE_BETWEEN":
        if (column := _column_of(node["input"], names)) is not None:
            yield column, ">=", _constant(node["lower"])
            yield column, "<=", _constant(node["upper"])
    elif kind in _COMPARISONS:
        comparison = _COMPARISONS[kind]
        left, right = _column_of(node["left"], names), _column_of(node["right"], names)
        if left is not None:
            yield left, comparison, _constant(node["right"])
        elif right is not None:
            yield right, _TURNED[comparison], _constant(node["left"])


def _column_of(node: Mapping[str, Any], names: Set[str]) -> str | None:
    """The name of the column if an expression is a column of the table, with or without the table's name in front; else None."""
    if node.get("class") != "COLUMN_REF":
        return None
    *front, column = (str(name).lower() for name in node["column_names"])
    return column if not front or (len(front) == 1 and front[0] in names) else None


def _constant(node: Mapping[str, Any]) -> Any:
    """The value of a constant number or text; None for anything else. Versions of DuckDB write constants in different ways."""
    if node.get("class") != "CONSTANT":
        return None
    literal = node.get("literal")
    if literal is not None:
        text = literal.get("text")
        kind = literal.get("kind")
        return int(text) if kind == "INTEGER" else text if kind == "STRING" else None
    value = node.get("value", {}).get("value")
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _key(store: ReadStore, value: Any) -> bytes | None:
    """The bytes of the only key that can equal a constant; None: any key may, because DuckDB would convert one of the two first."""
    kind = type_of(store.reader.key_serde)
    wanted = {pa.string(): str, pa.int64(): int}.get(kind)
    if wanted is None or type(value) is not wanted:
        return None
    try:
        return store.reader.key(value)
    except SerdeError:
        return None
