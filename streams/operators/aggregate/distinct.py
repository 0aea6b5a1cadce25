"""Aggregates of fields with counts of distinct values (`agg.count_distinct`), each of which is a row of its own.

The accumulators are in the store of the aggregation, and the values that were seen in another one: a key-value store, or in
windows a window store that forgets a window's values together with the window.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, Protocol

from streams.model.aggregates import CountDistinct, distinct_text
from streams.model.record import Record
from streams.operators.aggregate.aggregates import (
    FoldedAggregate,
    StreamAggregate,
    WindowAggregate,
    WindowAggregateOnClose,
)
from streams.operators.aggregate.functions import FieldAggregates
from streams.operators.columnar import ColumnarBatch
from streams.operators.operator import OperatorContext
from streams.operators.stores.key_value import CachedRow, TypedKeyValueStore
from streams.operators.stores.window import TypedWindowStore

_PRESENT: Final = 1


class _Seen(Protocol):
    """The values that were seen, each with the key and the number of its aggregate, and in windows by the window's start."""

    def __contains__(self, row: tuple[bytes, int]) -> bool: ...

    def add(self, row: tuple[bytes, int], timestamp: int) -> None:
        """Note a value."""


class CountsDistinct(FoldedAggregate):
    """Takes records one by one; `agg.count_distinct` counts the values whose row is new.

    A record that fails has left no row. It stands in front of the class that it makes count, whose `functions` are those of the
    same fields.

    Attributes:
        fields: The aggregates.
        seen_name: Name of the store of the values.
    """

    fields: FieldAggregates
    seen_name: str
    _seen: _Seen

    def process_batch(self, batch: ColumnarBatch) -> None:
        self.ctx.attempt_each(batch, self.process)

    def process(self, record: Record) -> None:
        """Compute everything that may fail, for all windows, then note the new values."""
        self._new: list[tuple[bytes, int]] = []
        super().process(record)

    @cached_property
    def _distinct(self) -> list[int]:
        return [at for at, one in enumerate(self.fields.aggregates.values()) if isinstance(one, CountDistinct)]

    def _updated(self, row: CachedRow, value: Any, record: Record) -> tuple[Any, int]:
        picked = self.fields.picked(value)
        for at in self._distinct:
            if picked[at] is not None:
                place = (_row(row.key, at, picked[at]), row.start)
                if place in self._seen:
                    picked[at] = None
                else:
                    self._new.append(place)
        before = self.fields.initial() if row.value is None else row.value
        after = self.store.codec.seen(self.fields.add_picked(record.key, picked, before))
        return after, record.timestamp if row.value is None else max(record.timestamp, row.timestamp)

    def _set(self, row: CachedRow, value: Any, timestamp: int, record: Record) -> None:
        for place in self._new:
            self._seen.add(place, record.timestamp)
        self._new.clear()
        super()._set(row, value, timestamp, record)


class StreamDistinctAggregate(CountsDistinct, StreamAggregate):
    """`StreamAggregate` of fields with counts of distinct values.

    Args:
        store: Name of a timestamped key-value store of the accumulators.
        seen: Name of a key-value store of bytes; each key is the group, the number of the aggregate, and a value.
        fields: The aggregates.
    """

    def __init__(
        self, store: str, seen: str, fields: FieldAggregates, caching: bool = True, send_old: bool = False
    ) -> None:
        super().__init__(store, fields.functions, caching, send_old)
        self.fields, self.seen_name = fields, seen

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._seen = _SeenForEver(ctx.store(self.seen_name))


class _DistinctInWindows(CountsDistinct, WindowAggregate):
    """What windows of both ways to emit have in common.

    Args:
        store: Name of a timestamped window store of the accumulators.
        seen: Name of a window store of bytes, which keeps a window as long; keys as in `StreamDistinctAggregate`.
        fields: The aggregates.
    """

    def __init__(
        self,
        store: str,
        seen: str,
        windows: Any,
        fields: FieldAggregates,
        open_store: str | None = None,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, windows, fields.functions, open_store, caching, send_old)
        self.fields, self.seen_name = fields, seen

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._seen = _SeenInWindows(ctx.store(self.seen_name))

    @property
    def expiring(self) -> tuple[str, ...]:
        return (*super().expiring, self.seen_name)


class WindowDistinctAggregate(_DistinctInWindows):
    """`WindowAggregate` of fields with counts of distinct values."""


class WindowDistinctAggregateOnClose(_DistinctInWindows, WindowAggregateOnClose):
    """`WindowAggregateOnClose` of fields with counts of distinct values."""


class _SeenForEver:
    def __init__(self, store: TypedKeyValueStore) -> None:
        self._store = store

    def __contains__(self, row: tuple[bytes, int]) -> bool:
        return self._store.get(row[0]) is not None

    def add(self, row: tuple[bytes, int], timestamp: int) -> None:
        self._store.put(row[0], _PRESENT, timestamp)


class _SeenInWindows:
    def __init__(self, store: TypedWindowStore) -> None:
        self._store = store

    def __contains__(self, row: tuple[bytes, int]) -> bool:
        return self._store.fetch(*row) is not None

    def add(self, row: tuple[bytes, int], timestamp: int) -> None:
        self._store.put(*row, _PRESENT)


def _row(group: bytes, number: int, value: Any) -> bytes:
    """The bytes of a value; equal numbers have equal ones."""
    return len(group).to_bytes(4, "big") + group + number.to_bytes(2, "big") + distinct_text(value)
