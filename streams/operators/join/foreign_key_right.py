"""The right table's side of a foreign-key join: stores the subscriptions, and responds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryColumn, binary_column
from streams.model.foreign_key import CombinedKey, Instruction, Response, Subscription
from streams.model.record import Change, Record
from streams.operators.columnar import NULL_KEY, ColumnarBatch, Int64s, KeyColumn
from streams.operators.dropped import drop_rows
from streams.operators.join.responses import Responses
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.result_columns import Changes
from streams.operators.stores.key_value import TypedKeyValueStore
from streams.operators.table.table_updates import TableUpdates, look_ups
from streams.operators.table.value_getter import ValueGetter
from streams.serdes.foreign_key import CombinedKeySerde, subscription_cells, subscription_hashes


class ForeignKeySubscriptions(Operator):
    """Stores and answers subscriptions (`SubscriptionReceiveProcessorSupplier`, `SubscriptionJoinProcessorSupplier`).

    A response has the larger of the subscription's and the right row's times. A subscription without a foreign key (from a left
    join) is answered and not stored.

    Args:
        store: Name of the store of subscriptions.
        keys: Serde of that store's keys.
        other: The value getter of the right table.
    """

    def __init__(self, store: str, keys: CombinedKeySerde, other: ValueGetter) -> None:
        self.store_name = store
        self.keys = keys
        self.other = other

    def init(self, ctx: OperatorContext) -> None:
        """Open the subscriptions and the right table."""
        super().init(ctx)
        self._store: TypedKeyValueStore = ctx.store(self.store_name)
        # The rows as forwarded by the right table, so that every later update of a row reaches the subscriber too.
        self._lookup = self.other.open(ctx, forwarded=True)

    def process(self, record: Record) -> None:
        """Store or delete the subscription, then respond if a response was requested."""
        asked: Subscription = record.value
        instruction = asked.instruction
        if record.key is None and instruction != Instruction.ALWAYS_RESPOND:
            self.ctx.drop(record, "null_key")
            return
        if record.key is not None:
            gone = instruction in (Instruction.DELETE, Instruction.DELETE_AND_RESPOND)
            place = CombinedKey(record.key, asked.primary_key)
            self._store.put(place, None if gone else asked, record.timestamp)
        found = None if record.key is None else self._lookup(record.key, None)
        time = record.timestamp if found is None else max(record.timestamp, found.timestamp)
        if instruction == Instruction.DELETE_AND_RESPOND:
            self._respond(record, asked, None, time)
        elif instruction == Instruction.ALWAYS_RESPOND or (
            instruction == Instruction.RESPOND_IF_FOUND and found is not None
        ):
            self._respond(record, asked, None if found is None else found.value, time)

    def process_together(self, batch: ColumnarBatch, tables: Mapping[str, TableUpdates]) -> Callable[[], None]:
        """`process` for all records of a step; returns its effects, which cannot fail.

        Raises:
            OneByOne: Right rows cannot be looked up together.
            Exception: A subscription cannot be written.
        """
        asked: list[Subscription] = list(batch.values)
        instructions = np.fromiter((one.instruction for one in asked), np.int64, len(asked))
        null_key = batch.keys.codes == NULL_KEY
        dropped = null_key & (instructions != Instruction.ALWAYS_RESPOND)
        known = np.flatnonzero(~null_key)
        lookup = self.other.open_together(look_ups(self.ctx, self.other.stores, tables, forwarded=True))
        found = lookup(batch.keys.take(known), batch.order[known])
        there, times = np.zeros(len(batch), np.bool_), batch.timestamps.copy()
        there[known] = found.there
        times[known] = np.where(found.there, np.maximum(times[known], found.timestamps), times[known])
        answered = np.flatnonzero(_responds(instructions, there) & ~dropped)
        # The last value is that of no right row.
        value_of = np.full(len(batch), len(known))
        value_of[known] = np.arange(len(known))
        value_of[instructions == Instruction.DELETE_AND_RESPOND] = len(known)
        keys = KeyColumn.of([asked[row].primary_key for row in answered.tolist()])
        hashes = [asked[row].hash for row in answered.tolist()]
        values = Responses(hashes, [*found.values, None], value_of[answered])
        results = replace(batch.take(answered), keys=keys, values=values, timestamps=times[answered])
        rows = self._rows(batch, known, instructions)

        def effects() -> None:
            drop_rows(self.ctx, batch, {"null_key": dropped})
            self._store.put_column(*rows)
            self.ctx.forward_batch(results)

        return effects

    def _rows(
        self, batch: ColumnarBatch, known: Int64s, instructions: Int64s
    ) -> tuple[BinaryColumn, BinaryColumn, Int64s]:
        """The store's rows for the subscriptions with a foreign key: keys, values (null deletes), timestamps."""
        codec, at = self._store.codec, known.tolist()
        asked = [batch.values[row] for row in at]
        prefixes = self.keys.prefixes(codec.topic, batch.keys.objects)
        primary = self.keys.primary_keys(codec.topic, [one.primary_key for one in asked])
        codes = batch.keys.codes[known].tolist()
        keys = binary_column([prefixes[code] + key for code, key in zip(codes, primary, strict=True)])
        gone = np.isin(instructions[known], (Instruction.DELETE, Instruction.DELETE_AND_RESPOND)).tolist()
        cells = zip(gone, subscription_cells(asked, primary), strict=True)
        values = binary_column([None if deleted else cell for deleted, cell in cells])
        codec.check_all(keys, values)
        return keys, values, batch.timestamps[known]

    def _respond(self, record: Record, asked: Subscription, value: Any, time: int) -> None:
        self.ctx.forward(Record(asked.primary_key, Response(asked.hash, value), time, record.headers))


def _responds(instructions: Int64s, there: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether each subscription is answered, given whether its right row is there."""
    always = np.isin(instructions, (Instruction.DELETE_AND_RESPOND, Instruction.ALWAYS_RESPOND))
    answered: npt.NDArray[np.bool_] = always | ((instructions == Instruction.RESPOND_IF_FOUND) & there)
    return answered


class ForeignKeyUpdate(Operator):
    """Notifies all subscribers of a right row that changed (`ForeignTableJoinProcessorSupplier`).

    There is one response for each left row that refers to the right one, in order of the bytes of the left keys, with the
    time of the right update, even if it is older than the left row's (as in Kafka Streams).

    Args:
        store: Name of the store of subscriptions.
        keys: Serde of that store's keys.
        versioned: The right table is versioned; out-of-order updates are skipped (KIP-914).
    """

    def __init__(self, store: str, keys: CombinedKeySerde, versioned: bool = False) -> None:
        self.store_name = store
        self.keys = keys
        self.versioned = versioned

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._store: TypedKeyValueStore = ctx.store(self.store_name)

    def process(self, record: Record) -> None:
        change: Change = record.value
        if record.key is None or (self.versioned and not change.is_latest):
            self.ctx.drop(record, "null_key" if record.key is None else "not_latest")
            return
        for place, asked in self._store.prefix(self.keys.prefix(self.store_name, record.key)):
            response = Response(asked.hash, change.new)
            self.ctx.forward(Record(place.primary, response, record.timestamp, record.headers))

    def process_together(self, batch: ColumnarBatch) -> None:
        """`process` for many updates, with one pass over the store.

        Raises:
            Exception: A key cannot be written, or a left key cannot be read; there has been no effect.
        """
        null_key = batch.keys.codes == NULL_KEY
        updates = batch.take(np.flatnonzero(~null_key)) if null_key.any() else batch
        prefixes = self.keys.prefixes(self.store_name, updates.keys.objects)
        distinct = sorted(set(prefixes))
        number_of = {prefix: number for number, prefix in enumerate(distinct)}
        numbers = np.array([number_of[prefix] for prefix in prefixes], np.int64)[updates.keys.codes]
        found = self._store.rows.scan_prefixes(pa.array(distinct, pa.binary()))
        ends = np.searchsorted(found.ranges, np.arange(len(distinct)), "right")
        counts = np.diff(ends, prepend=0)[numbers]
        which = np.repeat(np.arange(len(updates)), counts)
        # The rows of each update's range, one after the other.
        rows = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts) + (ends[numbers] - counts)[which]
        read = self._store.codec.read_key
        lefts = [read(key).primary for key in found.keys.to_pylist()]
        hashes = subscription_hashes(found.values.to_pylist())
        at = rows.tolist()
        drop_rows(self.ctx, batch, {"null_key": null_key})
        values = Responses([hashes[row] for row in at], Changes.of(updates.values).new, which)
        keys = KeyColumn(rows.astype(np.int32), lefts)
        self.ctx.forward_batch(replace(updates.take(which), keys=keys, values=values))
