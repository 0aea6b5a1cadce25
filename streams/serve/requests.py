"""Requests and answers in HTTP: parameters and headers, and rows and positions as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from state.secrets import mask
from state.stores.codec import MAX_TIME
from streams.config.settings import to_milliseconds
from streams.errors import ConfigError, QueryError
from streams.model.iso import moment
from streams.model.record import to_timestamp_ms
from streams.serdes.json_shown import shown_json
from streams.serve.position import Position, commits_text, parse_commits
from streams.serve.reading import Answer, Point, ReadStore
from streams.serve.scans import PAGE_BYTES, Scan
from streams.serve.served import Consistency, Freshness

POSITION, COMMIT, AGE = "Streams-Position", "Streams-Commit", "Streams-Age-Ms"
KEYS = "keys"
"""The parameter with the form of keys in the address. With `json`, the text "7" differs from the number 7."""
VERSIONS = "versions"
"""A parameter between processes: the commits at which to read the tasks."""
_LONGEST = 19
"""Characters of the longest number."""
HOST, AUTHORIZATION = "Host", "Authorization"
_KNOWN = {name.lower().encode(): name for name in (HOST, AUTHORIZATION, POSITION, COMMIT)}
_HEADERS = "streams.headers"
"""The key of the ASGI scope under which the headers are kept once they were read."""
_LONGEST_KEPT = 1024
NOTHING = Freshness()
"""The request does not ask how new the answer is, so it gets the copy as it is."""


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """The limits of one query in SQL.

    Attributes:
        loaded_rows: Rows that are loaded from all stores together.
        loaded_bytes: Bytes of keys and values that are loaded from one store.
        result_rows: Rows of the result.
        result_bytes: Bytes of the result.
        memory: The memory that DuckDB may use, such as `256MB`.
        seconds: How long DuckDB may compute.
    """

    loaded_rows: int = 200_000
    loaded_bytes: int = 64 * 1024 * 1024
    result_rows: int = 10_000
    result_bytes: int = 32 * 1024 * 1024
    memory: str = "256MB"
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one request.

    Attributes:
        page_rows: Rows of a page, if the request has no limit.
        most_rows: The most rows of a page, and keys of a batch.
        body_bytes: The most bytes of a request's body.
        page_bytes: The most bytes of a page's stored keys and values, except for its last row.
        batch_bytes: The most bytes of a batch's stored values.
        changes: How many clients may follow changes at a time: each has connections to Kafka.
        wait_ms: The longest time that a request may wait for a position.
        sql: The limits of a query in SQL.
    """

    page_rows: int = 100
    most_rows: int = 10_000
    body_bytes: int = 1024 * 1024
    page_bytes: int = PAGE_BYTES
    batch_bytes: int = 32 * 1024 * 1024
    changes: int = 100
    wait_ms: int = 30_000
    sql: SqlLimits = SqlLimits()


class Parameters:
    """The parameters of a request, by name.

    Args:
        query: The parameters in its address.
        headers: Its headers.
        limits: The limits of the request.
    """

    def __init__(self, query: Mapping[str, str], headers: Mapping[str, str], limits: Limits) -> None:
        self._query = query
        self._headers = headers
        self._limits = limits

    def bound(self) -> Freshness:
        """How new the answer has to be.

        Raises:
            QueryError: A parameter is wrong.
        """
        if not self._query and POSITION not in self._headers and COMMIT not in self._headers:
            return NOTHING
        if "wait" in self._query:
            # A wrong `wait` is an error even if the request does not have to wait.
            self.wait_s()
        text = self._query.get("consistency", Consistency.BOUND.value)
        if text not in {one.value for one in Consistency}:
            raise QueryError(f"consistency is any, bound or latest, not {text!r}")
        position = self._query.get("position", self._headers.get(POSITION, ""))
        commits = self._query.get("commits", self._headers.get(COMMIT, ""))
        age = self._query.get("max_age")
        max_age_ms = None if age is None else self._duration("max_age", age)
        return Freshness(Consistency(text), Position.parse(position), parse_commits(commits), max_age_ms)

    def wait_s(self) -> float:
        """How long the request may wait.

        Raises:
            QueryError: The duration cannot be read, or it is longer than this server waits.
        """
        wait_ms = self._duration("wait", self._query.get("wait", "0"))
        if wait_ms > self._limits.wait_ms:
            raise QueryError(f"wait={wait_ms} ms is longer than this server waits: at most {self._limits.wait_ms} ms")
        return wait_ms / 1000

    @property
    def of_one_step(self) -> bool:
        """Whether to read all tasks as of one micro-batch.

        Raises:
            QueryError: The parameter is wrong.
        """
        text = self._query.get("snapshot")
        if text not in (None, "step"):
            raise QueryError(f"snapshot is step, or is left out, not {text!r}")
        return text is not None

    def versions(self) -> dict[int, int]:
        """Task -> the commit that another process asks for."""
        parts = [part.partition("=") for part in self._query.get(VERSIONS, "").split(",") if part]
        if not all(is_number(task) and is_number(version) for task, _, version in parts):
            raise QueryError(f"{VERSIONS} is TASK=COMMIT,..., not {self._query[VERSIONS][:100]!r}")
        return {int(task): int(version) for task, _, version in parts}

    def range(self, store: ReadStore) -> Scan:
        """The range of keys that is asked for.

        Raises:
            QueryError: A parameter is wrong.
        """
        return Scan(
            lower=self._bound(store, "from"),
            upper=self._bound(store, "to"),
            prefix=self.prefix(store),
            reverse=self.flag("reverse"),
            limit=self.rows("limit", self._limits.page_rows),
        )

    def windows(self, store: ReadStore) -> Scan:
        """The windows or sessions that are asked for.

        Raises:
            QueryError: A parameter is wrong.
        """
        latest = "latest" in self._query
        return Scan(
            key=self.key(store),
            from_ms=self.time("window_from") or 0,
            to_ms=MAX_TIME if (to := self.time("window_to")) is None else to,
            reverse=latest or self.flag("reverse"),
            limit=self.rows("latest" if latest else "limit", self._limits.page_rows),
        )

    def initial(self, store: ReadStore) -> Scan:
        """The rows with which a stream of changes begins.

        Raises:
            QueryError: A parameter is wrong.
        """
        key, limit = self.key(store), self._limits.most_rows
        if key is not None and not store.kind.segmented:
            return Scan(lower=key, upper=key, limit=limit)
        return Scan(key=key, prefix=self.prefix(store), limit=limit)

    def key(self, store: ReadStore, name: str = "key") -> bytes | None:
        """The bytes of the key in this parameter; None: the request does not have it.

        Raises:
            QueryError: The store has no such keys.
        """
        text = self._query.get(name)
        return None if text is None else self.key_bytes(store, text)

    def key_bytes(self, store: ReadStore, text: str) -> bytes:
        """The bytes of a key of this request. The text of the key is JSON if the request has `keys=json`.

        Raises:
            QueryError: The store has no such keys.
        """
        form = self._query.get(KEYS)
        if form not in (None, "json"):
            raise QueryError(f"{KEYS} is json, or is left out, not {form!r}")
        return key_bytes(store, text, form is not None)

    def prefix(self, store: ReadStore) -> bytes | None:
        """The first bytes of the keys that are asked for; None: all keys are.

        Raises:
            QueryError: The store's keys have no prefixes.
        """
        text = self._query.get("prefix")
        return None if text is None else store.prefix_bytes(text)

    def _bound(self, store: ReadStore, name: str) -> bytes | None:
        """The bytes of a bound of a range. The bytes of the store's keys have to sort as the keys do."""
        data = self.key(store, name)
        if data is not None:
            store.check_bound(store.reader.read_key(data))
        return data

    def text(self, name: str) -> str | None:
        """A parameter as it is."""
        return self._query.get(name)

    def flag(self, name: str) -> bool:
        """Whether a parameter is set: `reverse`, `reverse=1` or `reverse=true`.

        Raises:
            QueryError: The parameter has another value.
        """
        text = self._query.get(name, "false").lower()
        if text not in ("", "1", "true", "0", "false"):
            raise QueryError(f"{name} is true or false, not {text!r}")
        return text in ("", "1", "true")

    def rows(self, name: str, default: int) -> int:
        """A number of rows.

        Raises:
            QueryError: It is not a number, or larger than this server allows.
        """
        text = self._query.get(name)
        if text is None:
            return default
        if not is_number(text) or not 1 <= int(text) <= self._limits.most_rows:
            raise QueryError(f"{name} is a number of rows from 1 to {self._limits.most_rows}, not {text[:100]!r}")
        return int(text)

    def time(self, name: str) -> int | None:
        """A time in ms: a number, or `2024-05-01T10:00:00Z`.

        Raises:
            QueryError: It is not a time.
        """
        text = self._query.get(name)
        if text is None:
            return None
        try:
            return int(text) if is_number(text.removeprefix("-")) else to_timestamp_ms(moment(text))
        except (ValueError, OverflowError) as error:
            raise QueryError(f"{name} is a time in ms, or such as 2024-05-01T10:00:00Z, not {text!r}") from error

    def _duration(self, name: str, text: str) -> int:
        try:
            found: int = to_milliseconds(text[:_LONGEST])
        except (ValueError, OverflowError) as error:
            raise QueryError(f"{name}: {error}") from error
        if found < 0:
            raise QueryError(f"{name} is a duration, which is not negative: {text[:_LONGEST]!r}")
        return found


def headers_of(connection: MutableMapping[str, Any]) -> dict[str, str]:
    """The headers of an ASGI connection that identify the caller or bound the answer's age. Of equal names, the first counts."""
    known: dict[str, str] | None = connection.get(_HEADERS)
    if known is None:
        given = connection["headers"]
        known = {_KNOWN[name]: value.decode("latin-1") for name, value in reversed(given) if name in _KNOWN}
        connection[_HEADERS] = known
    return known


def query_of(connection: Mapping[str, Any]) -> Mapping[str, str]:
    """The parameters in the address of an ASGI connection. Of several equal names, the last counts."""
    asked: bytes = connection["query_string"]
    if not asked:
        return {}
    return _query(asked) if len(asked) <= _LONGEST_KEPT else _query.__wrapped__(asked)


@lru_cache(256)
def _query(asked: bytes) -> Mapping[str, str]:
    """Parses the parameters. The results are cached, because clients send the same parameters again and again."""
    return dict(parse_qsl(asked.decode("latin-1"), keep_blank_values=True))


def is_number(text: str) -> bool:
    """Whether a text is an unsigned 64-bit number. Python would read thousands of digits as one, or fail if there are more."""
    return text.isascii() and text.isdecimal() and len(text) < _LONGEST


def key_bytes(store: ReadStore, text: str, is_json: bool = False) -> bytes:
    """The bytes of a key from an address (`StoreReader.key_bytes`).

    Raises:
        QueryError: The store has no such keys.
    """
    try:
        return store.reader.key_bytes(text, is_json)
    except ConfigError as error:
        raise QueryError(str(error)) from error


def unquoted(text: str) -> str | None:
    """A part of an address without its percent signs; None: it is not UTF-8."""
    try:
        return unquote(text, errors="strict") if "%" in text else text
    except UnicodeDecodeError:
        return None


def check_text(address: bytes) -> None:
    """Checks that an address is UTF-8. Otherwise wrong bytes would be read as another key.

    Raises:
        QueryError: The address is not UTF-8.
    """
    if b"%" in address and unquoted(address.decode("latin-1")) is None:
        raise QueryError("the address is not UTF-8: keys of bytes are written in base64")


def keys_bytes(store: ReadStore, keys: Sequence[Any]) -> list[bytes]:
    """The bytes of keys from JSON.

    Raises:
        QueryError: The store has no such keys.
    """
    try:
        return store.reader.all_bytes_of(keys)
    except ConfigError as error:
        raise QueryError(str(error)) from error


def rows_text(rows: Iterable[bytes], rest: Mapping[str, Any]) -> bytes:
    """A JSON object of rows that are text already, and of the other parts.

    Args:
        rows: The rows, or null, as `StoreReader.text` makes them.
        rest: The other parts; at least one.
    """
    return b'{"rows":[%b],%b' % (b",".join(rows), shown_json(rest)[1:])


def key_answer(store: ReadStore, text: str, answer: Answer) -> tuple[int, bytes]:
    """The status and body of a read of one key."""
    if answer.rows:
        status, found = 200, answer.rows[0]
    else:
        message = mask(f"{store.name!r} has no row of key {text!r}")
        status, found = 404, shown_json({"error": "NoRow", "message": message})
    return status, b'%b,"tasks":%b}' % (found[:-1], tasks_text(answer))


def answer_headers(answer: Answer) -> list[tuple[bytes, bytes]]:
    """The headers that describe an answer, as ASGI takes them."""
    return [*_said(answer).headers, (_AGE, b"%d" % answer.age_ms)]


_AGE = AGE.lower().encode()


class _Said(NamedTuple):
    """The parts that all answers of the same commits share: the headers, and each task's text up to the age, which comes last."""

    headers: list[tuple[bytes, bytes]]
    tasks: list[bytes]


def _said(answer: Answer) -> _Said:
    return _said_of(tuple([(one.sub, one.task, one.version, one.position.text, one.life) for one in answer.points]))


@lru_cache(1024)
def _said_of(commits: tuple[tuple[str, int, int, str, str], ...]) -> _Said:
    points = [Point(sub, task, of, Position.parse(text), 0, life) for sub, task, of, text, life in commits]
    answer = Answer((), tuple(points))
    headers = {POSITION: str(answer.position), COMMIT: commits_text(answer.commits)}
    return _Said(
        [(name.lower().encode(), text.encode("latin-1")) for name, text in headers.items()],
        [shown_json(point_json(point)).removesuffix(b"0}") for point in points],
    )


def parse_point(data: Mapping[str, Any]) -> Point:
    """Reads what `point_json` has written in another process."""
    position = Position.parse(data["position"])
    return Point(data["sub_topology"], data["task"], data["commit"], position, data["age_ms"], data["life"])


def tasks_json(answer: Answer) -> list[dict[str, Any]]:
    """The commit that each task's answer is from, as JSON."""
    return [point_json(point) for point in answer.points]


def tasks_text(answer: Answer) -> bytes:
    """The same as `tasks_json`, as text."""
    said = zip(_said(answer).tasks, answer.points, strict=True)
    return b"[%b]" % b",".join([b"%b%d}" % (text, point.age_ms) for text, point in said])


def point_json(point: Point) -> dict[str, Any]:
    """The commit that one task's answer is from, as JSON."""
    return {
        "sub_topology": point.sub,
        "task": point.task,
        "life": point.life,
        "commit": point.version,
        "position": str(point.position),
        "age_ms": point.age_ms,
    }
