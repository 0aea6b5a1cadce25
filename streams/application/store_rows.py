"""The rows of stores for people and programs: keys and values decoded by the store's serdes, windows with both ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from operator import add
from typing import Any, NamedTuple

from state.changelog import changelog_topic
from state.stores.dump import DumpRow, dump
from state.stores.task_store import TaskStore
from streams.errors import ConfigError, SerdeError
from streams.model.record import plain
from streams.model.windows import SlidingWindows, Windows
from streams.operators.aggregate.aggregates import StreamAggregate, WindowedAggregation
from streams.serdes.base import Serde
from streams.serdes.json import JsonSerde, JsonWithKeys
from streams.serdes.json_text import loads
from streams.serdes.keys import JsonKeySerde
from streams.serdes.primitives import (
    BooleanSerde,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    StringSerde,
)
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


class StoreReader:
    """A reader of the rows of one store.

    Args:
        end_of: The end of the window that begins at a time (`window_ends`); None: a store without windows, or of sessions.
        view: Computes the table's value of a stored one: built-in aggregates store what they need to continue, not their results.
        topic: What serdes get as topic; default: the store's changelog.

    Attributes:
        key: Makes the bytes of a key, or raises a `SerdeError`.
        show_key: Makes plain JSON data of the bytes of a key.
        show_value: The same of a value.
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
        if type(node.key_serde) is StringSerde:
            self.key = _quick(str.encode, self.key)
        self.show_key = self._shower(node.key_serde)
        self.show_value = self._shower(node.value_serde, view)

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
        """Whether values are computed of the stored ones, and may have another type."""
        return self._view is not None

    def rows(self, store: TaskStore, task: int, keys: frozenset[bytes] | None = None) -> Iterator[StoreRow]:
        """The committed rows of a task, ordered by key bytes (in windowed stores: by time segment first).

        Raises:
            SerdeError: A row cannot be read.
        """
        for row in dump(store, self._node.name):
            if keys is None or row.key in keys:
                yield self.decoded(row, task)

    def key_bytes(self, text: str) -> frozenset[bytes]:
        """`key_candidates` as a set."""
        return frozenset(self.key_candidates(text))

    def key_candidates(self, text: str) -> list[bytes]:
        """The possible serialised forms of a typed key: as text, and as JSON if it is valid JSON."""
        if isinstance(self._node.key_serde, StringSerde) and '"' not in text:
            # JSON is text only with quotes: there is one form, and nearly all keys are of this kind.
            return [text.encode()]
        found = [data for value in _typed(text) if (data := self._serialized(value)) is not None]
        if not found:
            raise ConfigError(
                f"{text!r} is not a key of store {self._node.name!r}, whose keys are of {type(self._node.key_serde).__name__}"
            )
        return list(dict.fromkeys(found))

    def _serialized(self, value: Any) -> bytes | None:
        try:
            return self.key(value)
        except SerdeError:
            return None

    def read_key(self, data: bytes) -> Any:
        """The key of its bytes. Raises `SerdeError` if they cannot be read."""
        return self._node.key_serde.deserialize(self._topic, data)

    def decoded(self, row: DumpRow, task: int) -> StoreRow:
        """A row with the key and value of its bytes.

        Raises:
            SerdeError: The row cannot be read.
        """
        key = self.read_key(row.key)
        value = self._node.value_serde.deserialize(self._topic, row.value)
        if self._view is not None and value is not None:
            value = self._view(value)
        return StoreRow(task, key, value, row.window_start, self._end(row), row.timestamp)

    def shown(self, row: DumpRow, task: int) -> StoreRow:
        """As `decoded`, with key and value as plain JSON data."""
        key, value = self.show_key(row.key), self.show_value(row.value)
        return StoreRow(task, key, value, row.window_start, self._end(row), row.timestamp)

    def _end(self, row: DumpRow) -> int | None:
        if row.window_end is None and row.window_start is not None and self._end_of is not None:
            return self._end_of(row.window_start)
        return row.window_end

    def _shower(self, serde: Serde, view: Callable[[Any], Any] | None = None) -> Callable[[bytes | None], Any]:
        """What makes plain JSON data of bytes."""
        topic = self._topic
        if view is None and type(serde) in (JsonSerde, JsonKeySerde, JsonWithKeys):
            # Without the type, whose objects would only be taken apart again.
            return _quick(loads, partial(JsonSerde().deserialize, topic))
        if view is None and type(serde) is StringSerde:
            return _quick(bytes.decode, partial(serde.deserialize, topic))
        if view is None and isinstance(serde, _PLAIN_SERDES):
            return partial(serde.deserialize, topic)

        def shown(data: bytes | None) -> Any:
            value = serde.deserialize(topic, data)
            return plain(value if view is None or value is None else view(value))

        return shown


def window_ends(sub: SubTopology, store: str) -> Callable[[int], int] | None:
    """What computes the ends of a store's windows from their starts, ms, as they are in the keys of the results.

    It can be pickled. None: the store has no windows; or its rows have their ends, as sessions do; or they are records, as in the
    store of a join; or nothing says how long its windows are, as in a processor's window store without `window_size`.
    """
    node = sub.stores[store]
    if node.window_size_ms is not None:
        return partial(add, node.window_size_ms)
    if not node.spec.kind.windowed:
        return None
    specs = [node.spec for node in sub.nodes.values() if isinstance(node, ProcessorNode) and store in node.stores]
    windows = [spec.windows for spec in specs if isinstance(spec, AggregationSpec)]
    return next((one.end_of for one in windows if isinstance(one, Windows | SlidingWindows)), None)


def view_of(sub: SubTopology, store: str) -> Callable[[Any], Any] | None:
    """What computes the table's value of a value in a store; None: they are the same."""
    specs = [node.spec for node in sub.nodes.values() if isinstance(node, ProcessorNode) and store in node.stores]
    for operator in (spec.processor(()) for spec in specs if isinstance(spec, AggregationSpec)):
        if isinstance(operator, StreamAggregate | WindowedAggregation) and operator.store_name == store:
            return operator.functions.viewed
    return None


_PLAIN_SERDES = (StringSerde, Int16Serde, Int32Serde, Int64Serde, Float32Serde, Float64Serde, BooleanSerde)
"""Serdes whose values are plain JSON data already."""


def _quick(made: Callable[[Any], Any], slowly: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Reads or writes by one call of C; what that cannot do is for the serde, which also says why."""

    def quick(data: Any) -> Any:
        try:
            return made(data)
        except (ValueError, TypeError):
            return slowly(data)

    return quick


def _typed(text: str) -> list[Any]:
    values: list[Any] = [text, text.encode()]
    with suppress(ValueError):
        values.append(loads(text))
    return values
