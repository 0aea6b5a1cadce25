"""The nodes of a lake sink: records become rows in an internal topic, which a separate query reads.

::

    port ──▶ rows ──▶ sink ──▶ internal topic        (a step's transaction)
                                   └──▶ one Delta commit, one commit of a `Sink`, or one call, for each batch
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from streams.dsl.arguments import names as several
from streams.dsl.arguments import operator_name
from streams.dsl.facade import AbstractStream
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.inferred_types import Type, serde_type
from streams.dsl.options import NameLike
from streams.errors import TopologyError
from streams.model.table_columns import (
    ColumnType,
    RecordPart,
    RowLayout,
    ScalarType,
    TableColumn,
    column_type,
    fields_of,
    without_none,
)
from streams.serdes.base import Serde, type_name
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import StringSerde
from streams.sinks.sink import Sink
from streams.topology.graph import DeltaTable, InternalTopic, LakeSink, SinkNode
from streams.topology.naming import check_name
from streams.topology.specs.streams import ToRowsSpec

Schema: TypeAlias = Mapping[str, Type] | Type
"""The fields of values with their types, a class with annotations, or the type of values without fields."""

_TIME = ScalarType("TIMESTAMP")
_RESERVED = ("_partition", "_offset", "_deleted")
_NOT_IN_DELTA = frozenset(" ,;{}()\n\t=")
"""Characters that Delta Lake refuses in the names of columns, as Parquet once did."""


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The names of the columns that are not fields of the value. A column whose name is None is left out."""

    key: str | None = "key"
    value: str = "value"
    timestamp: str | None = "timestamp"


def layout_of(
    graph: GraphBuilder,
    port: Port,
    method: str,
    schema: Schema | None,
    names: ColumnNames,
    keys: tuple[str, ...] | None,
) -> RowLayout:
    """The columns of a sink at a port.

    `schema` has the fields of the values (None: the fields of their type). `keys` are the columns that identify a row (empty: the
    columns of the record's key; None: each record becomes a separate row). Raises `TopologyError` for unknown types and columns.
    """
    key_serde, value_serde = graph.key_serde(port.key_serde), graph.value_serde(port.value_serde)
    fields = dict(schema) if isinstance(schema, Mapping) else {}
    columns = (
        *_key_columns(method, key_serde, names.key, fields),
        *([TableColumn(names.timestamp, _TIME, RecordPart.TIMESTAMP)] if names.timestamp else []),
        *_value_columns(method, value_serde, schema, fields, names.value),
    )
    found = [column.name for column in columns]
    for name in found:
        if [other.lower() for other in found].count(name.lower()) > 1:  # SQL does not tell cases apart
            raise TopologyError(
                f"{method}: two columns are called {name!r}. Rename the one that is not a field of the value, with key=..., "
                f"timestamp=... or value=..., or leave it out with None."
            )
        if method == "to_delta" and (refused := "".join(sorted(_NOT_IN_DELTA.intersection(name)))):
            raise TopologyError(
                f"{method}: the column {name!r} has {refused!r} in its name, which a Delta table does not take; rename the field "
                f"with map_values()."
            )
        if name in _RESERVED:
            raise TopologyError(f"{method}: no column may be called {name!r}; rename the field with map_values().")
    if keys is None:
        return RowLayout(columns)
    chosen = keys or tuple(column.name for column in columns if column.of_the_key)
    for name in chosen or ("key",):
        if name not in found:
            raise TopologyError(
                f"{method}: rows are updated by keys, and {name!r} is none of the columns {', '.join(found)}: name some with "
                f"keys=(...)."
            )
    return RowLayout(columns, chosen)


def add_lake_sink(
    graph: GraphBuilder,
    port: Port,
    name: str,
    layout: RowLayout,
    target: DeltaTable | Sink | Callable[[Any, int], object],
) -> None:
    """Adds the sink. Raises `TopologyError` if its name is taken, or could not be part of a topic's name."""
    topic = InternalTopic(check_name(name))
    graph.topology.add_lake_sink(LakeSink(name, topic, layout, target))
    rows = graph.stateless(ToRowsSpec(layout), port, f"{name}-rows", new_key=True, new_value=True)
    graph.topology.add(SinkNode(f"{topic}-sink", (rows.node,), topic, None, JsonSerde(), JsonSerde()))


def _key_columns(
    method: str, serde: Serde[Any], name: str | None, declared: dict[str, Type]
) -> tuple[TableColumn, ...]:
    """The columns of the key and its window. A type that `declared` has for the key is removed from it."""
    windowed = hasattr(serde, "serialize_base_key")
    window = (
        (
            TableColumn("window_start", _TIME, RecordPart.WINDOW_START),
            TableColumn("window_end", _TIME, RecordPart.WINDOW_END),
        )
        if windowed
        else ()
    )
    if name is None:
        return window
    inner: Serde[Any] = getattr(serde, "inner", serde) if windowed else serde
    kind = declared.pop(name, None) or (str if isinstance(inner, StringSerde) else serde_type(inner))
    of = None if kind is None else column_type(kind)
    if of is None:
        raise TopologyError(
            f"{method}: the type of the column {name!r} is unknown, since {type(serde).__name__} does not define it. "
            f"Declare it with schema={{{name!r}: str, ...}}, or leave the key out with key=None."
        )
    return (TableColumn(name, of, RecordPart.KEY), *window)


def _value_columns(
    method: str, serde: Serde[Any], schema: Schema | None, declared: Mapping[str, Type], value: str
) -> tuple[TableColumn, ...]:
    if declared:
        return tuple(_field(method, name, kind) for name, kind in declared.items())
    kind = serde_type(serde) if schema is None or isinstance(schema, Mapping) else schema
    fields = None if kind is None else fields_of(kind)
    if fields is not None:
        return tuple(TableColumn(field.name, field.type, RecordPart.FIELD, field.nullable) for field in fields)
    of: ColumnType | None = None if kind is None else column_type(kind)
    if of is None:
        what = f"{type_name(kind)} has no columns" if kind is not None else "the values' type is unknown"
        raise TopologyError(
            f"{method}: {what}. Declare the columns with schema={{'user': str, 'amount': float, ...}} or with a dataclass, "
            f"or give the stream a serde with a type, such as JsonSerde(Order)."
        )
    return (TableColumn(value, of, RecordPart.VALUE),)


def _field(method: str, name: str, kind: Type) -> TableColumn:
    of = column_type(kind)
    if of is None:
        raise TopologyError(
            f"{method}: the column {name!r} cannot have the type {type_name(kind)}. Columns are str, int, float, bool, bytes, "
            f"datetime, date, Decimal, lists and dictionaries of these, and classes with such fields."
        )
    return TableColumn(name, of, RecordPart.FIELD, without_none(kind)[1])


# --- `to_delta`, `to_sink` and `foreach_batch`: the methods that end a stream or a table outside Kafka.

Mode: TypeAlias = Literal["append", "upsert"]


def _check_target(target: DeltaTable, layout: RowLayout) -> None:
    unknown = sorted(set(target.partition_by) - set(layout.names))
    if unknown:
        raise TopologyError(f"to_delta(partition_by=...): {', '.join(unknown)} is none of {', '.join(layout.names)}.")
    for option, number in (("records_per_file", target.records_per_file), ("optimize_every", target.optimize_every)):
        if number is not None and (type(number) is not int or number < 1):
            raise TopologyError(f"to_delta({option}={number!r}): at least 1.")


def last_part(table: str) -> str:
    """The last part of a path or name, with characters replaced that a topic's name may not contain."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", re.split(r"[/\\]", table.rstrip("/\\"))[-1]).strip("-.") or "table"


def is_path(table: str | os.PathLike[str]) -> bool:
    """Whether a table is given by its path or URI, and not by its name in Spark's catalog."""
    return not isinstance(table, str) or re.search(r"[/\\:]", table) is not None


class LakeMixin(AbstractStream):
    """The sinks outside Kafka, of streams and of tables."""

    _graph: GraphBuilder
    _mode: ClassVar[Mode] = "append"

    def _unique(self, method: str, mode: Mode | None, keys: str | Sequence[str]) -> tuple[str, ...] | None:
        """The columns that identify a row (empty: the columns of the record's key); None: each record becomes a separate row."""
        mode = mode or self._mode
        if mode not in ("append", "upsert"):
            raise TopologyError(f"{method}(mode={mode!r}): the mode is 'append' or 'upsert'.")
        if keys and mode == "append":
            raise TopologyError(f"{method}(keys=...) needs mode='upsert': append writes each record as a separate row.")
        return several(keys) if mode == "upsert" else None

    def _rows_port(self, named: NameLike) -> Port:
        """The records for a sink of that name. A table's updates become records; a value of None deletes the row."""
        raise NotImplementedError

    def to_delta(
        self,
        table: str | os.PathLike[str],
        mode: Mode | None = None,
        *,
        keys: str | Sequence[str] = (),
        partition_by: str | Sequence[str] = (),
        schema: Schema | None = None,
        key: str | None = "key",
        value: str = "value",
        timestamp: str | None = "timestamp",
        add_columns: bool = False,
        records_per_file: int = 1_000_000,
        optimize_every: int | None = None,
        properties: Mapping[str, str] | None = None,
        named: NameLike = None,
    ) -> None:
        """Writes each record to a Delta table, exactly once; the stream ends here.

        The columns are the key (`key`, and `window_start` and `window_end` of a windowed key), the record's `timestamp`, and the
        fields of the value, or `value` if it has no fields. Their types come from the serdes or from `schema`. The processing
        policy (fail, skip, dead letter) decides about a record that does not fit. A missing table is created.

        Args:
            table: The table's path or URI, or its name in Spark's catalog.
            mode: `"append"` (default of streams): each record is a row. `"upsert"` (default of tables): the last record of each key
                is the row, and a record whose value is None deletes the row.
            keys: The columns that identify a row; default: the columns of the record's key and its window.
            partition_by: The columns that a new table is partitioned by.
            schema: The fields of the values with their types, such as `{"user": str, "amount": float | None}`, or a class with
                annotations, or the type of values without fields. An entry with the name of the key's column is the key's type.
            key: The name of the key's column; None: no such column.
            value: The name of the column for values without fields.
            timestamp: The name of the timestamp's column; None: no such column.
            add_columns: Whether to add columns that an existing table lacks. Otherwise, the start is refused.
            records_per_file: About how many records of one commit to write into one file.
            optimize_every: The number of commits after which Delta's OPTIMIZE compacts small files; default: never.
            properties: Properties of a new table, such as `{"delta.enableChangeDataFeed": "true"}`.
            named: The sink's name, also in its internal topic and its commits; default: `delta-` and the last part of the table's
                path or name.
        """
        text = os.fspath(table)
        unique = self._unique("to_delta", mode, keys)
        if not text.strip():
            raise TopologyError("to_delta() takes a table's path or its name in Spark's catalog, not an empty text.")
        name = operator_name("to_delta", named) or f"delta-{last_part(text)}"
        port = self._rows_port(name)
        layout = layout_of(self._graph, port, "to_delta", schema, ColumnNames(key, value, timestamp), unique)
        target = DeltaTable(
            text,
            is_path(table),
            several(partition_by),
            add_columns,
            records_per_file,
            optimize_every,
            tuple(sorted((properties or {}).items())),
        )
        _check_target(target, layout)
        add_lake_sink(self._graph, port, name, layout, target)

    def to_sink(
        self,
        sink: Sink,
        named: str,
        mode: Mode | None = None,
        *,
        keys: str | Sequence[str] = (),
        schema: Schema | None = None,
        key: str | None = "key",
        value: str = "value",
        timestamp: str | None = "timestamp",
    ) -> None:
        """Writes each record to a store outside Kafka, exactly once: a database, files, or any other store with your own `Sink`.

        The driver writes one batch after the other, each together with the position after it, and continues there at the next
        start. Only then are rows removed from the sink's internal topic. The stream ends here.

        Args:
            sink: The store to write to, such as `SqliteSink("shop.db", "orders")` of `streams.sinks`.
            named: The sink's name. The store keeps its position under this name, and its internal topic is named after it.
            mode: `"append"` or `"upsert"`, as for `to_delta`. With `"upsert"`, the processing policy decides about a record without
                a key.
            keys: The columns that identify a row, as for `to_delta`; columns with parts (lists, maps, classes) cannot be keys.
            schema: The types of the columns, as for `to_delta`.
            key: The name of the key's column, as for `to_delta`.
            value: The name of the column for values without fields, as for `to_delta`.
            timestamp: The name of the timestamp's column, as for `to_delta`.
        """
        if isinstance(sink, type) or not isinstance(sink, Sink):
            raise TopologyError(
                f"to_sink() takes an object with target, open, write, commit and close (streams.sinks.Sink), not {sink!r}."
            )
        name = operator_name("to_sink", named)
        if name is None:
            raise TopologyError("to_sink() needs a name: the store keeps the sink's position under it.")
        unique = self._unique("to_sink", mode, keys)
        port = self._rows_port(name)
        layout = layout_of(self._graph, port, "to_sink", schema, ColumnNames(key, value, timestamp), unique)
        parts = [one.name for one in layout.columns if one.name in layout.keys and not isinstance(one.type, ScalarType)]
        if parts:
            raise TopologyError(
                f"to_sink(): {', '.join(parts)} has parts, so no row can be found by it. Name other keys=(...)."
            )
        add_lake_sink(self._graph, port, name, layout, sink)

    def foreach_batch(
        self,
        function: Callable[[Any, int], object],
        named: str,
        *,
        schema: Schema | None = None,
        key: str | None = "key",
        value: str = "value",
        timestamp: str | None = "timestamp",
    ) -> None:
        """Passes the records to any Spark sink: `function(frame, batch_id)` gets each batch as a Spark DataFrame, on the driver.

        A batch that runs again after a crash has the same number and the same rows. A function that writes the rows under that
        number, or skips a number it has already written, writes each record exactly once; any other function writes it at least
        once. Rows are removed from the internal topic only after the function has returned. The stream ends here.

        Args:
            function: `function(frame, batch_id)`; `frame` is a `pyspark.sql.DataFrame` with the same columns as for `to_delta`, and
                `_partition` and `_offset` in the internal topic, which show the order of the rows of a key.
            named: The sink's name. Its internal topic and its checkpoint are named after it.
            schema: The types of the columns, as for `to_delta`.
            key: The name of the key's column, as for `to_delta`.
            value: The name of the column for values without fields, as for `to_delta`.
            timestamp: The name of the timestamp's column, as for `to_delta`.
        """
        if not callable(function):
            raise TopologyError(f"foreach_batch() takes a function(frame, batch_id), not {function!r}.")
        name = operator_name("foreach_batch", named)
        if name is None:
            raise TopologyError("foreach_batch() needs a name: its checkpoint is named after it.")
        port = self._rows_port(name)
        layout = layout_of(self._graph, port, "foreach_batch", schema, ColumnNames(key, value, timestamp), None)
        add_lake_sink(self._graph, port, name, layout, function)
