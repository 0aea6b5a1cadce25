"""The rows of stores for people and programs: keys and values decoded by the store's serdes, windows with both ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from operator import add
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from state.changelog import changelog_topic
from state.columns import binary_column, numbers_at, sliced
from state.stores.codec import TIMESTAMP_BYTES
from state.stores.dump import DumpRow, dump
from state.stores.task_store import TaskStore
from streams.errors import ConfigError, SerdeError
from streams.model.windows import WindowsByStart
from streams.operators.aggregate.aggregates import StreamAggregate, WindowedAggregation
from streams.serdes.base import Serde
from streams.serdes.json_shown import (
    is_plain_text,
    quick,
    reader_of,
    shown_json,
    taken,
    text_of,
    texts_of,
    written,
    written_of_text,
)
from streams.serdes.json_text import loads
from streams.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    ListSerde,
    StringSerde,
    TupleSerde,
)
from streams.serdes.registry import RegistrySerde
from streams.topology.graph import ProcessorNode, StoreNode
from streams.topology.plan import SubTopology
from streams.topology.specs.aggregations import AggregationSpec


class StoreRow(NamedTuple):
    """One row, decoded.

    Attributes:
        value: The value; None: a deletion in a versioned store.
        window_start: Start of the window or session, ms; None in other kinds of stores.
        window_end: End of the window (exclusive), or last timestamp of the session, ms; None if unknown.
        timestamp: The value's timestamp, ms; None in a store without timestamps.
    """

    task: int
    key: Any
    value: Any
    window_start: int | None
    window_end: int | None
    timestamp: int | None


class StoredRows(NamedTuple):
    """Rows as they are stored, as columns of equal length.

    Attributes:
        keys: The bytes of the keys, without nulls.
        values: The values without headers, without nulls.
        timestamps: The timestamps of the values, ms; None in a store without timestamps.
        windows: Start and end of each row's window, as in `StoreRow`; None in a store without windows, or if there are no rows.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    timestamps: Sequence[int] | None
    windows: Sequence[tuple[int, int | None]] | None = None

    @classmethod
    def of_local(cls, keys: pa.BinaryArray, values: pa.BinaryArray, timestamped: bool) -> StoredRows:
        """The rows of a store that has one row per key, from its local values."""
        if not timestamped:
            return cls(keys, values, None)
        return cls(keys, sliced(values, TIMESTAMP_BYTES), numbers_at(values, 0).tolist())


class StoreReader:
    """A reader of the rows of one store.

    Args:
        end_of: Returns the end of the window that begins at a time (`window_ends`); None: a store without windows, or of sessions.
        view: Computes the table's value from a stored one: built-in aggregates store the state that they need to continue, not
            their results.
        topic: The topic that is passed to serdes; default: the store's changelog.

    Attributes:
        key: Turns a key into bytes, or raises a `SerdeError`.
        show_key: Turns the bytes of a key into JSON data (`streams.serdes.json_shown`).
        show_value: Turns the bytes of a value into JSON data.
        key_text: Turns the bytes of a key into JSON text.
        value_text: Turns the bytes of a value into JSON text.
        key_texts: Turns a column of keys into JSON texts.
        value_texts: Turns a column of values into JSON texts.
    """

    def __init__(
        self,
        node: StoreNode,
        application_id: str,
        end_of: Callable[[int], int] | None,
        view: Callable[[Any], Any] | None = None,
        topic: str | None = None,
    ) -> None:
        self._node = node
        self._topic = topic or changelog_topic(application_id, node.name)
        self._end_of = end_of
        self._view = view
        self.key: Callable[[Any], bytes | None] = partial(node.key_serde.serialize, self._topic)
        self._key_of_text: Callable[[str], bytes] = partial(written_of_text, node.key_serde, self._topic)
        self._is_text = is_plain_text(node.key_serde)
        if type(node.key_serde) is StringSerde:
            self.key = quick(str.encode, self.key)
            self._key_of_text = quick(str.encode, self._key_of_text)
        self.show_key = reader_of(node.key_serde, self._topic)
        self.show_value = reader_of(node.value_serde, self._topic, view)
        self.key_text = text_of(node.key_serde, self._topic)
        self.value_text = text_of(node.value_serde, self._topic, view)
        self.key_texts = texts_of(node.key_serde, self._topic)
        self.value_texts = texts_of(node.value_serde, self._topic, view)

    @property
    def key_serde(self) -> Serde:
        """The serde of the keys."""
        return self._node.key_serde

    @property
    def value_serde(self) -> Serde:
        """The serde of the stored values."""
        return self._node.value_serde

    @property
    def computes(self) -> bool:
        """Whether values are computed from stored values, so their type may differ."""
        return self._view is not None

    def rows(self, store: TaskStore, task: int, keys: frozenset[bytes] | None = None) -> Iterator[StoreRow]:
        """The committed rows of a task as `shown`, ordered by key bytes (in windowed stores: by time segment first).

        Raises:
            SerdeError: A row cannot be read.
        """
        for row in dump(store, self._node.name):
            if keys is None or row.key in keys:
                yield self.shown(row, task)

    def key_bytes(self, text: str, is_json: bool = False) -> bytes:
        """The bytes of a typed key: of the text as it is, if keys are JSON strings (UUIDs, dates, bytes); otherwise of its JSON.

        Args:
            text: The key.
            is_json: Whether the text must be JSON, so that strings have quotes.

        Raises:
            ConfigError: The store has no such keys.
        """
        if is_json:
            return self.bytes_of(_parsed(text))
        try:
            return self._key_of_text(text)
        except SerdeError as error:
            raise self._no_key(text, error) from error

    def all_bytes_of(self, data: Sequence[Any]) -> list[bytes]:
        """The bytes of many keys in their JSON form."""
        if self._is_text:
            with suppress(TypeError, UnicodeEncodeError):
                return list(map(str.encode, data))
        return list(map(self.bytes_of, data))

    def bytes_of(self, data: Any) -> bytes:
        """The bytes of a key in its JSON form.

        Raises:
            ConfigError: The store has no such keys.
        """
        try:
            return written(self._node.key_serde, self._topic, data)
        except SerdeError as error:
            raise self._no_key(shown_json(data).decode(), error) from error

    def _no_key(self, what: str, why: SerdeError) -> ConfigError:
        serde = type(self._node.key_serde).__name__
        return ConfigError(f"{what!r} is not a key of store {self._node.name!r}, whose keys are of {serde}: {why}")

    def prefix_bytes(self, prefix: str | bytes) -> bytes:
        """The first bytes of the keys with a prefix: a text (for JSON, as written), or bytes; keys of bytes take base64.

        Raises:
            ConfigError: The first bytes of such keys have no meaning, as for numbers.
        """
        serde = taken(self._node.key_serde)
        if isinstance(prefix, bytes):
            return prefix
        if isinstance(serde, BytesSerde):
            return self.bytes_of(prefix)
        if isinstance(serde, _FRAMED):
            raise ConfigError(
                f"keys of store {self._node.name!r} are of {type(serde).__name__}, whose bytes do not begin like the keys, so "
                f"they have no prefixes: ask for a range, or for all rows"
            )
        return prefix.encode()

    def read_key(self, data: bytes) -> Any:
        """Reads a key from its bytes. Raises `SerdeError` if they cannot be read."""
        return self._node.key_serde.deserialize(self._topic, data)

    def decoded(self, row: DumpRow, task: int) -> StoreRow:
        """A row with decoded key and value.

        Raises:
            SerdeError: The row cannot be read.
        """
        key = self.read_key(row.key)
        value = self._node.value_serde.deserialize(self._topic, row.value)
        if self._view is not None and value is not None:
            value = self._view(value)
        return StoreRow(task, key, value, row.window_start, self._end(row), row.timestamp)

    def all_decoded(self, rows: StoredRows, tasks: Sequence[int]) -> list[StoreRow]:
        """Many rows with decoded keys and values, and the task of each.

        Raises:
            SerdeError: A row cannot be read.
        """
        read_value = partial(self._node.value_serde.deserialize, self._topic)
        keys, values = map(self.read_key, rows.keys.to_pylist()), map(read_value, rows.values.to_pylist())
        if self._view is not None:
            values = map(self._view, values)
        windows = repeat((None, None)) if rows.windows is None else rows.windows
        times = repeat(None) if rows.timestamps is None else rows.timestamps
        found = zip(tasks, keys, values, windows, times, strict=False)
        return [StoreRow(task, key, value, *window, time) for task, key, value, window, time in found]

    def shown(self, row: DumpRow, task: int) -> StoreRow:
        """A row with key and value as JSON data."""
        key, value = self.show_key(row.key), self.show_value(row.value)
        return StoreRow(task, key, value, row.window_start, self._end(row), row.timestamp)

    def text(self, row: DumpRow, task: int) -> bytes:
        """A row as the text of a JSON object, with times and windows if the store has them.

        Stored JSON is not parsed and written again, which would be most of the cost of an answer with many rows.
        """
        found = self.plain_text(row.key, row.value, row.timestamp)
        if row.window_start is None:
            return found
        window = {"start": row.window_start, "end": self._end(row)}
        return b'%b,"window":%b}' % (found[:-1], orjson.dumps(window))

    def plain_text(self, key: bytes, value: bytes | None, timestamp: int | None) -> bytes:
        """A row without a window as the text of a JSON object (`text`)."""
        if timestamp is None:
            return b'{"key":%b,"value":%b}' % (self.key_text(key), self.value_text(value))
        return b'{"key":%b,"value":%b,"timestamp":%d}' % (self.key_text(key), self.value_text(value), timestamp)

    def texts(self, rows: StoredRows) -> list[bytes]:
        """Many rows, each as the text of a JSON object (`text`)."""
        keys, values = self.key_texts(rows.keys), self.value_texts(rows.values)
        if rows.timestamps is None:
            found = [b'{"key":%b,"value":%b}' % row for row in zip(keys, values, strict=True)]
        else:
            timed = zip(keys, values, rows.timestamps, strict=True)
            found = [b'{"key":%b,"value":%b,"timestamp":%d}' % row for row in timed]
        if rows.windows is None:
            return found
        windows = [orjson.dumps({"start": start, "end": end}) for start, end in rows.windows]
        return [b'%b,"window":%b}' % (row[:-1], window) for row, window in zip(found, windows, strict=True)]

    @property
    def topic(self) -> str:
        """The topic that is passed to serdes."""
        return self._topic

    def stored(self, rows: Sequence[DumpRow]) -> StoredRows:
        """Rows as columns; deletions in a versioned store are left out."""
        keys, values = [row.key for row in rows], [row.value for row in rows]
        timed = self._node.spec.kind.timestamped
        windows = [(row.window_start, self._end(row)) for row in rows if row.window_start is not None]
        timestamps = [row.timestamp or 0 for row in rows] if timed else None
        return StoredRows(binary_column(keys), binary_column(values), timestamps, windows or None)

    def _end(self, row: DumpRow) -> int | None:
        if row.window_end is None and row.window_start is not None and self._end_of is not None:
            return self._end_of(row.window_start)
        return row.window_end


def window_ends(sub: SubTopology, store: str) -> Callable[[int], int] | None:
    """A function that computes the end of a store's window from its start, ms, as in the keys of the results.

    It can be pickled. None: the store has no windows; or its rows have their ends, as sessions do; or its rows are records, as in
    the store of a join; or the length of its windows is unknown, as in a processor's window store without `window_size`.
    """
    node = sub.stores[store]
    if node.window_size_ms is not None:
        return partial(add, node.window_size_ms)
    if not node.spec.kind.windowed:
        return None
    specs = [node.spec for node in sub.nodes.values() if isinstance(node, ProcessorNode) and store in node.stores]
    windows = [spec.windows for spec in specs if isinstance(spec, AggregationSpec)]
    return next((one.end_of for one in windows if isinstance(one, WindowsByStart)), None)


def view_of(sub: SubTopology, store: str) -> Callable[[Any], Any] | None:
    """A function that computes the table's value from a stored one; None: they are the same, as the store's serde describes."""
    specs = [node.spec for node in sub.nodes.values() if isinstance(node, ProcessorNode) and store in node.stores]
    for operator in (spec.processor(()) for spec in specs if isinstance(spec, AggregationSpec)):
        if isinstance(operator, StreamAggregate | WindowedAggregation) and operator.store_name == store:
            return None if operator.functions.view is None else operator.functions.viewed
    return None


_FRAMED = (
    Int16Serde,
    Int32Serde,
    Int64Serde,
    Float32Serde,
    Float64Serde,
    BooleanSerde,
    ListSerde,
    TupleSerde,
    RegistrySerde,
)
"""Serdes whose bytes are not text."""


def _parsed(text: str) -> Any:
    try:
        return loads(text)
    except ValueError as error:
        raise ConfigError(f"the key {text!r} is not JSON: {error}") from error
