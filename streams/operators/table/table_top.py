"""`top` of a grouped table: the best n rows of each group, exact even when rows change and leave."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import chain, islice, repeat
from typing import Any

from streams.model.record import Change, Record
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.key_value import TypedKeyValueStore
from streams.operators.table.table_materializer import TableOperator
from streams.serdes.base import Serde

_DOUBLE = struct.Struct(">d")
_BITS = 2**64 - 1


class TableTop(TableOperator):
    """Orders all rows of a group by score, and forwards the list of the first n when it changes.

    Scores are compared as 64-bit floats, equal ones by the bytes of the values. A row without a score (None, or not a number) is
    not ranked. Null keys are dropped. The result's time is the largest of its updates.

    Args:
        store: Name of a timestamped key-value store of the lists.
        rows: Name of a key-value store of the ranked values, by `ranked_key`, with the number of occurrences.
        value_serde: Serde of the values.
        key_serde: Serde of the groups' keys.
        n: Length of the list.
        by: `(value) -> score`.
        largest: Whether the largest score is the best.
        caching: As in `TableMaterializer`.
        send_old: As in `TableMaterializer`.
    """

    def __init__(
        self,
        store: str,
        rows: str,
        key_serde: Serde,
        value_serde: Serde,
        n: int,
        by: Callable[[Any], Any],
        largest: bool,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, caching, send_old)
        self.rows_name = rows
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.n = n
        self.by = by
        self.largest = largest

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        assert self.store_name is not None, "the lists are kept"
        self._tops = ctx.store(self.store_name)
        self._rows: TypedKeyValueStore = ctx.store(self.rows_name)

    def process(self, record: Record) -> None:
        """Remove the old value, add the new one, read the first n."""
        group = None if record.key is None else self.key_serde.serialize(self.rows_name, record.key)
        if group is None:
            self.ctx.drop(record, "null_key")
            return
        change: Change = record.value
        # Both scores before the first row changes: a record may fail for its new value alone.
        ranked = [(self._ranked_key(group, change.old), -1), (self._ranked_key(group, change.new), 1)]
        for key, difference in ranked:
            if key is not None:
                count = (self._rows.get(key) or 0) + difference
                self._rows.put(key, count if count > 0 else None, record.timestamp)
        found = self._tops.get(record.key)
        before, timestamp = (None, -1) if found is None else found
        now = self._first(group) or None
        if now != before:
            time = max(timestamp, record.timestamp)
            self._table.update(Record(record.key, None, time, record.headers), now)

    def _ranked_key(self, group: bytes, value: Any) -> bytes | None:
        """Where a value is among those of its group; None for one that is not ranked."""
        score = None if value is None else self.by(value)
        if isinstance(score, bool) or not isinstance(score, int | float):
            return None
        data = self.value_serde.serialize(self.rows_name, value)
        return _prefix(group) + ordered(float(score), self.largest) + (data or b"")

    def _first(self, group: bytes) -> list[Any]:
        prefix = _prefix(group)
        skip = len(prefix) + _DOUBLE.size
        rows = ((key[skip:], count) for key, count in self._rows.prefix(prefix))
        values = chain.from_iterable(repeat(data, count) for data, count in rows)
        return [self.value_serde.deserialize(self.rows_name, data) for data in islice(values, self.n)]


def ordered(score: float, largest: bool) -> bytes:
    """8 bytes that sort as the scores do, the best first."""
    (bits,) = struct.unpack(">Q", _DOUBLE.pack(score + 0.0))  # -0.0 becomes 0.0
    bits = bits ^ _BITS if bits >> 63 else bits | 1 << 63
    return struct.pack(">Q", bits ^ _BITS if largest else bits)


def _prefix(group: bytes) -> bytes:
    return len(group).to_bytes(4, "big") + group
