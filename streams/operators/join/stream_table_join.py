"""Joins of a stream with a table, in which each record looks up a row (Kafka Streams: `KStreamKTableJoinProcessor`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from state.columns import one_column, rows_where
from streams.errors import RecordError
from streams.model.expressions import Expression, ValueFields
from streams.model.ownership import only_reads
from streams.model.record import LEFT, Record, ValueAndTimestamp
from streams.operators.columnar import NULL_KEY, ColumnarBatch, Int64s, KeyColumn, null_values, unread_json
from streams.operators.join.joined_objects import JoinedObjects
from streams.operators.join.joins import joined_fields
from streams.operators.operator import Operator, OperatorContext, RecordOperator, call_each, drop_rows, refuse_rows
from streams.operators.stateless import keys_of_calls, keys_of_fields
from streams.operators.stores.found_rows import FoundRows
from streams.operators.stores.time_ordered_buffer import TimeOrderedBuffer
from streams.operators.stream_time import StreamTime
from streams.operators.table.table_materializer import opened
from streams.operators.table.value_getter import ValueGetter
from streams.serdes.base import Serde


class StreamTableJoin(Operator):
    """Joins each stream record with the table's row for its key. Updates of the table cause no results.

    In a plain table, the record finds the row as it is when the record arrives. In a versioned table, it finds the row as it was at
    the record's timestamp. For example, the row of A becomes 1 at time 10, and 2 at time 30. Then a stream record of A with time 20
    arrives: it is joined with 2 in a plain table, and with 1 in a versioned one.

    Records with a null value are dropped. An inner join also drops records with a null key; a left join joins them with None
    (KIP-962). Results have the timestamp and headers of the stream record.

    Args:
        table: How to look up rows of the table.
        joiner: `(key, stream value, table value) -> value`.
        left: Whether a record without a row is joined with None. If not, it has no result.
    """

    def __init__(self, table: ValueGetter, joiner: Callable[..., Any], left: bool) -> None:
        self.table = table
        self.joiner = joiner
        self.left = left

    @property
    def leaves_values(self) -> bool:
        return only_reads(self.joiner)

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._lookup = opened(ctx, self.table)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Look up rows and join records with them.

        Raises:
            Exception: A row cannot be looked up. Nothing has changed and nothing was forwarded.
        """
        self._join_together(batch, batch.keys)

    def _join_together(
        self, batch: ColumnarBatch, keys: KeyColumn, failed: Mapping[int, Exception] = MappingProxyType({})
    ) -> None:
        """Joins each record with the row of its key in `keys`. A record in `failed`, whose key has an error, is refused instead."""
        refused = np.zeros(len(batch), np.bool_)
        refused[list(failed)] = True
        null_value = ~refused & null_values(batch.values)
        without_value = refused | null_value
        null_key = ~without_value & (keys.codes == NULL_KEY)
        known = rows_where(~(without_value | null_key))
        rows = self._lookup(keys.take(known), batch.order[known], batch.timestamps[known])
        # The index of each record's row in `rows`; -1 without a row.
        met = np.full(len(batch), -1, np.int64)
        met[known[rows.there]] = rows_where(rows.there)
        joined = rows_where(~without_value if self.left else met >= 0)
        results = batch if len(joined) == len(batch) else batch.take(joined)
        missing = {
            "no_row": len(known) - int(np.count_nonzero(rows.there)),
            "null_key": int(np.count_nonzero(null_key)),
        }
        looked_up = len(known) + missing["null_key"]
        try:
            values = self._joined_bytes(results, rows, met[joined]) if len(results) else []
        except Exception:
            if len(batch) == 1:  # larger batches come again, in halves, and are counted then
                self.ctx.count_looked_up(looked_up, missing)
            raise
        found = [] if values is not None else [*rows.values_for(self.joiner, self.ctx.results_change), None]
        refuse_rows(self.ctx, batch, failed)
        drop_rows(self.ctx, batch, {"null_value": null_value} | ({} if self.left else {"null_key": null_key}))
        self.ctx.count_looked_up(looked_up, missing)
        if values is None:
            found = [found[row] for row in met[joined].tolist()]
            results, values = self._all_joined(results, keys.take(joined), found)
        self.ctx.forward_batch(results.with_values(values))

    def _joined_bytes(self, batch: ColumnarBatch, rows: FoundRows, met: Int64s) -> Sequence[Any] | None:
        """The results, copied from the bytes of both values. None if the joiner computes values, or bytes are missing."""
        objects, left = JoinedObjects.of(joined_fields(self.joiner)), unread_json(batch.values)
        right = None
        if objects is not None and left is not None:
            right = unread_json(rows.encoded()) if (met >= 0).any() else left[:0]
        if objects is None or left is None or right is None:
            return None
        right_at = np.where(met >= 0, met + len(left), -1)
        certain = np.arange(len(left) + len(right)) < len(left)
        return objects.of_pairs(one_column([left, right]), np.arange(len(left)), right_at, certain)

    def _all_joined(self, batch: ColumnarBatch, keys: KeyColumn, values: list[Any]) -> tuple[ColumnarBatch, list[Any]]:
        return call_each(self.ctx, batch, self.joiner, batch.keys.each(), batch.values, values)


class StreamGlobalJoin(StreamTableJoin):
    """Joins each stream record with a row of a global table. The selector computes the row's key (`KStreamGlobalKTableJoin`).

    Args:
        joiner: `(key, table key, stream value, table value) -> value`.
        selector: `(key, value) -> table key`.
        expression: What the selector computes, if columns of the value's fields are enough for that; otherwise None.
    """

    def __init__(
        self,
        table: ValueGetter,
        joiner: Callable[..., Any],
        left: bool,
        selector: Callable[[Any, Any], Any],
        expression: Expression | ValueFields | None = None,
    ) -> None:
        super().__init__(table, joiner, left)
        self.selector = selector
        self.expression = expression

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Compute the keys, look up their rows and join records with them."""
        self._join_together(batch, *(keys_of_fields(batch, self.expression) or keys_of_calls(batch, self.selector)))

    def _all_joined(self, batch: ColumnarBatch, keys: KeyColumn, values: list[Any]) -> tuple[ColumnarBatch, list[Any]]:
        return call_each(self.ctx, batch, self.joiner, batch.keys.each(), keys.each(), batch.values, values)


class GraceTableJoin(RecordOperator, StreamTableJoin):
    """Joins each stream record with a versioned table after a grace period, so that late updates of the table count (KIP-923).

    A record waits until its timestamp <= stream time - grace. Then it is joined with the row as it was at the record's timestamp.
    Records that are due together are joined in the order of their timestamps. For example, with a grace of 5 a record at 20 is
    joined when a record at 25 or later arrives. A record that is already due when it arrives is joined at once.

    Stream time is the largest timestamp of the stream's records that are not dropped (in Kafka Streams: that reach the buffer).

    A record with a null key cannot wait. The left join joins it with None at once. In compat mode it fails, as in Kafka Streams.

    Args:
        joiner: `(key, stream value, table value) -> value`.
        grace_ms: How long a record waits, in stream time.
        buffer: Name of the key-value store of the waiting records (`BufferedSerde`).
        key_serde: The serde of the keys of waiting records.
    """

    def __init__(
        self,
        table: ValueGetter,
        joiner: Callable[[Any, Any, Any], Any],
        left: bool,
        grace_ms: int,
        buffer: str,
        key_serde: Serde,
    ) -> None:
        super().__init__(table, joiner, left)
        self.grace_ms = grace_ms
        self.buffer_name = buffer
        self.key_serde = key_serde

    def init(self, ctx: OperatorContext) -> None:
        """Open the buffer and restore stream time."""
        super().init(ctx)
        self._looked_up, self._missing = 0, {"no_row": 0, "null_key": 0}
        self._lookup_one = self.table.open(ctx)
        self._time = StreamTime(ctx.state)
        self._rows = TimeOrderedBuffer(ctx.store(self.buffer_name), self.key_serde, self.buffer_name, ctx.state)

    def process(self, record: Record) -> None:
        """Buffer the record, or join it at once; then join the records that are due."""
        if record.value is None or (record.key is None and not self.left):
            self.ctx.drop(record, "null_value" if record.value is None else "null_key")
            if record.value is not None:
                self._look_up(record)
            return
        if record.key is None and self.ctx.mode == "compat":
            raise RecordError(
                "a stream-table join with grace cannot hold back a record without a key: filter it out before, give it a "
                "key, or use strict mode, which joins it with None at once"
            )
        time = self._time.observe(record.timestamp)
        if record.key is None or record.timestamp < time - self.grace_ms:
            self._join(record)
        else:
            self._rows.add(record.timestamp, LEFT, record.key, record.value, record.headers)
        self._join_due(time)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time, and join the records that are due then."""
        self._join_due(self._time.advance(elapsed_ms, limit))
        return min(limit, self._rows.first_time)

    def flush(self) -> None:
        self.ctx.count_looked_up(self._looked_up, self._missing)

    def _join_due(self, time: int) -> None:
        for due in self._rows.take(time - self.grace_ms + 1):
            row = Record(due.key, due.value, due.place.time, due.headers)
            # The rows are already removed from the buffer, so one that fails must not lose the others.
            self.ctx.attempt(partial(self._join, row), due.held(row.timestamp))

    def _join(self, record: Record) -> None:
        found = self._look_up(record)
        if found is not None or self.left:
            value = None if found is None else found.value
            self.ctx.forward(record.with_value(self.joiner(record.key, record.value, value)))

    def _look_up(self, record: Record) -> ValueAndTimestamp | None:
        self._looked_up += 1
        if record.key is None:
            self._missing["null_key"] += 1
            return None
        found = self._lookup_one(record.key, record.timestamp)
        self._missing["no_row"] += found is None
        return found
