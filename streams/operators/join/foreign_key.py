"""The join of two tables by a foreign key (KIP-213): its messages, and the operators on the left and on the right side."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryColumn, binary_column
from state.murmur3 import murmur3
from state.stores.spec import HASH_BYTES
from streams.errors import RecordError
from streams.model.ownership import lending, only_reads
from streams.model.record import Instruction, Response, Subscription
from streams.model.same_key import same_key
from streams.operators.columnar import (
    NULL_KEY,
    Changes,
    ColumnarBatch,
    Int64s,
    KeyColumn,
    WrittenValues,
    null_values,
    take_values,
    value_column,
)
from streams.operators.operator import Operator, OperatorContext, call_each, drop_rows, latest_only
from streams.operators.stores.key_value import TypedKeyValueStore
from streams.operators.table.table_materializer import opened
from streams.operators.table.value_getter import ValueGetter
from streams.serdes.base import Serde
from streams.serdes.internal import (
    CombinedKeySerde,
    ResponseSerde,
    response_cells,
    subscription_cells,
    subscription_hashes,
)
from streams.serdes.internal_columns import foreign_prefixes, primary_keys


class Responses(WrittenValues):
    """n responses.

    Args:
        values: Right values; None for none.
        rows: int64[n], the index in `values` of each response.
    """

    def __init__(self, hashes: Sequence[bytes | None], values: Sequence[Any], rows: Int64s) -> None:
        self._hashes = hashes
        self._values = values
        self._rows = rows

    def column(self, serde: Serde, topic: str) -> BinaryColumn | None:
        if not isinstance(serde, ResponseSerde):
            return None
        values = value_column(self._values, serde.value, topic).take(pa.array(self._rows))
        return binary_column(response_cells(self._hashes, values.to_pylist()))

    def __len__(self) -> int:
        return len(self._hashes)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return Responses(self._hashes[row], self._values, self._rows[row])
        return Response(self._hashes[row], self._values[self._rows[row]])


# --- The left table's side of a foreign-key join: subscribes, and joins the responses.

Asked: TypeAlias = tuple[tuple[Any, Instruction], ...]
"""Foreign keys with an instruction each; the one to delete comes first."""


class ForeignKeySubscribe(Operator):
    """Turns updates of the left table into subscriptions, keyed by foreign key (`SubscriptionSendProcessorSupplier`).

    | left row | inner join | left join |
    |---|---|---|
    | new, or foreign key as before | respond if found | always respond |
    | foreign key changed | delete the old, always respond for the new | the same |
    | foreign key gone | delete the old and respond | delete the old; a response made locally |
    | deleted | delete the old and respond | the same as gone; nothing if there was no value |

    Args:
        extractor: `(key, value) -> foreign key` of the left row; not called for a null value.
        value_serde: The serde of the left values, for their hash.
        left: Whether this is a left join.
        versioned: Whether the left table is versioned. Out-of-order updates are then skipped (KIP-914).
    """

    leaves_values = True

    def __init__(
        self, extractor: Callable[[Any, Any], Any], value_serde: Serde, left: bool, versioned: bool = False
    ) -> None:
        self.extractor = lending(extractor)
        self.value_serde = value_serde
        self.left = left
        self.versioned = versioned

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Forward up to two subscriptions for each update, the one to delete first.

        Raises:
            Exception: A value cannot be written; there has been no effect.
        """
        if self.versioned:
            batch = latest_only(self.ctx, batch)
        changes = Changes.of(batch.values)
        digests = murmur3(_value_cells(self.value_serde, self.ctx.node, changes.new))
        olds = repeat(None) if changes.old is None else changes.old
        updates = zip(changes.new, olds, digests, strict=False)
        records, found = call_each(self.ctx, batch, self._asked_with, batch.keys.each(), updates)
        nothing = np.array([self._refers_to_nothing(new, asked) for new, _, asked in found], np.bool_)
        drop_rows(self.ctx, records, {} if self.left else {"null_foreign_key": nothing})
        rows = sum(new is not None for new, _, _ in found)
        self.ctx.count_looked_up(rows, {"null_foreign_key": int(np.count_nonzero(nothing))})
        keys = list(records.keys)
        partition = int(self.ctx.task_id.rpartition("_")[2])
        sent = [
            (row, foreign_key, Subscription(digest, int(instruction), keys[row], partition))
            for row, (_, digest, asked) in enumerate(found)
            for foreign_key, instruction in asked
        ]
        results = records.take(np.array([row for row, _, _ in sent], np.int64))
        asked_for = KeyColumn.of([foreign_key for _, foreign_key, _ in sent])
        self.ctx.forward_batch(replace(results, keys=asked_for, values=[one for _, _, one in sent]))

    def _asked_with(self, key: Any, update: tuple[Any, Any, bytes | None]) -> tuple[Any, bytes | None, Asked]:
        new, old, digest = update
        return new, digest, self._asked(key, new, old)

    def _asked(self, key: Any, new: Any, old: Any) -> Asked:
        """The subscriptions for an update."""
        old_key, new_key = self._foreign(key, old), self._foreign(key, new)
        forgets = old_key is not None and not same_key(old_key, new_key)
        if self.left:
            if old is None and new is None:
                return ()
            asked = (new_key, Instruction.ALWAYS_RESPOND)
            return ((old_key, Instruction.DELETE), asked) if forgets else (asked,)
        if new_key is None:
            return ((old_key, Instruction.DELETE_AND_RESPOND),) if old_key is not None else ()
        if forgets:
            return (old_key, Instruction.DELETE), (new_key, Instruction.ALWAYS_RESPOND)
        return ((new_key, Instruction.RESPOND_IF_FOUND),)

    def _refers_to_nothing(self, new: Any, asked: Asked) -> bool:
        """Whether a row has no foreign key."""
        if new is None:
            return False
        return asked[-1][0] is None if self.left else not asked or asked[0][1] == Instruction.DELETE_AND_RESPOND

    def _foreign(self, key: Any, value: Any) -> Any:
        return None if value is None else self.extractor(key, value)


_NO_KEY = "a response of a foreign-key join has no key, so it is not known which row asked for it"


class ForeignKeyResult(Operator):
    """Joins a response with the left row that requested it (`ResponseJoinProcessorSupplier`).

    A response to a value that the row no longer has is dropped, because the response to the newer value follows. The order
    between the two topics is therefore irrelevant.

    Args:
        this: The value getter of the left table.
        value_serde: The serde of the left values, for their hash.
        joiner: `(key, left value, right value) -> value`.
        left: Whether this is a left join.
    """

    def __init__(
        self, this: ValueGetter, value_serde: Serde, joiner: Callable[[Any, Any, Any], Any], left: bool
    ) -> None:
        self.this = this
        self.value_serde = value_serde
        self.joiner = joiner
        self.left = left

    @property
    def leaves_values(self) -> bool:
        return only_reads(self.joiner)

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._lookup = opened(ctx, self.this)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Forward the joined rows, or deletions.

        Raises:
            Exception: A response has no key, or a row cannot be looked up; there has been no effect.
        """
        if (batch.keys.codes == NULL_KEY).any():
            raise RecordError(_NO_KEY)
        values = self._lookup(batch.keys, batch.order).values_for(self.joiner, self.ctx.results_change)
        cells = _value_cells(self.value_serde, self.ctx.node, values)
        awaited = _awaited([response.hash for response in batch.values], cells)
        rows = np.flatnonzero(awaited)
        drop_rows(self.ctx, batch, {"stale_response": ~awaited})
        found = batch.take(rows)
        lefts = [values[row] for row in rows.tolist()]
        rights = [response.value for response in found.values]
        results, joined = call_each(self.ctx, found, self._joined, found.keys.each(), lefts, rights)
        self.ctx.forward_batch(results.with_values(joined))

    def _joined(self, key: Any, left: Any, right: Any) -> Any:
        return None if left is None or (right is None and not self.left) else self.joiner(key, left, right)


def _value_cells(serde: Serde, node: str, values: Sequence[Any]) -> BinaryColumn:
    """The bytes of left values, for their hashes."""
    return value_column(values, serde, f"{node}-value-hash")


def _former_hash(data: bytes | None) -> bytes | None:
    """The hash in subscriptions that were stored before they had Kafka Streams' hash (`state.murmur3`)."""
    return None if data is None else hashlib.blake2b(data, digest_size=HASH_BYTES).digest()


def _awaited(hashes: Sequence[bytes | None], values: BinaryColumn) -> npt.NDArray[np.bool_]:
    """Whether each response belongs to the row's current value, according to the hash of the value that requested it."""
    awaited = np.array([one == mine for one, mine in zip(hashes, murmur3(values), strict=True)], np.bool_)
    for row in np.flatnonzero(~awaited).tolist():
        awaited[row] = hashes[row] == _former_hash(values[row].as_py())
    return awaited


# --- The right table's side of a foreign-key join: stores the subscriptions, and responds.


class ForeignKeySubscriptions(Operator):
    """Stores and answers subscriptions (`SubscriptionReceiveProcessorSupplier`, `SubscriptionJoinProcessorSupplier`).

    A response has the larger of the subscription's and the right row's times. A subscription without a foreign key (from a left
    join) gets a response and is not stored.

    Args:
        store: Name of the store of subscriptions.
        keys: Serde of that store's keys.
        other: The value getter of the right table.
    """

    leaves_values = True

    def __init__(self, store: str, keys: CombinedKeySerde, other: ValueGetter) -> None:
        self.store_name = store
        self.keys = keys
        self.other = other

    def init(self, ctx: OperatorContext) -> None:
        """Open the subscriptions and the right table."""
        super().init(ctx)
        self._store: TypedKeyValueStore = ctx.store(self.store_name)
        # The lookup sees rows as the right table has forwarded them, so that every later update of a row also reaches the
        # subscriber.
        self._lookup = opened(ctx, self.other, forwarded=True)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Store or delete the subscriptions, then respond where a response was requested.

        Raises:
            Exception: A right row cannot be looked up, or a subscription cannot be written; there has been no effect.
        """
        batch = replace(batch, keys=batch.keys.compact())
        asked: list[Subscription] = list(batch.values)
        instructions = np.fromiter((one.instruction for one in asked), np.int64, len(asked))
        null_key = batch.keys.codes == NULL_KEY
        dropped = null_key & (instructions != Instruction.ALWAYS_RESPOND)
        known = np.flatnonzero(~null_key)
        found = self._lookup(batch.keys.take(known), batch.order[known])
        there, times = np.zeros(len(batch), np.bool_), batch.timestamps.copy()
        there[known] = found.there
        times[known] = np.where(found.there, np.maximum(times[known], found.timestamps), times[known])
        answered = np.flatnonzero(_responds(instructions, there) & ~dropped)
        # The last value stands for a missing right row.
        value_of = np.full(len(batch), len(known))
        value_of[known] = np.arange(len(known))
        value_of[instructions == Instruction.DELETE_AND_RESPOND] = len(known)
        keys = KeyColumn.of([asked[row].primary_key for row in answered.tolist()])
        hashes = [asked[row].hash for row in answered.tolist()]
        values = Responses(hashes, [*found.values, None], value_of[answered])
        results = replace(batch.take(answered), keys=keys, values=values, timestamps=times[answered])
        rows = self._rows(batch, known, instructions)
        drop_rows(self.ctx, batch, {"null_key": dropped})
        asks = ~null_key & (np.isin(instructions, (Instruction.ALWAYS_RESPOND, Instruction.RESPOND_IF_FOUND)))
        self.ctx.count_looked_up(int(np.count_nonzero(asks)), {"no_row": int(np.count_nonzero(asks & ~there))})
        self._store.put_column(*rows)
        self.ctx.forward_batch(results)

    def _rows(
        self, batch: ColumnarBatch, known: Int64s, instructions: Int64s
    ) -> tuple[BinaryColumn, BinaryColumn, Int64s]:
        """The store's rows for the subscriptions with a foreign key: keys, values (null deletes), timestamps."""
        codec, at = self._store.codec, known.tolist()
        asked = [batch.values[row] for row in at]
        prefixes = foreign_prefixes(self.keys, codec.topic, batch.keys.objects)
        primary = primary_keys(self.keys, codec.topic, [one.primary_key for one in asked])
        codes = batch.keys.codes[known].tolist()
        keys = binary_column([prefixes[code] + key for code, key in zip(codes, primary, strict=True)])
        gone = np.isin(instructions[known], (Instruction.DELETE, Instruction.DELETE_AND_RESPOND)).tolist()
        cells = zip(gone, subscription_cells(asked, primary), strict=True)
        values = binary_column([None if deleted else cell for deleted, cell in cells])
        codec.check_all(keys, values)
        return keys, values, batch.timestamps[known]


def _responds(instructions: Int64s, there: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """bool[n]: which subscriptions get a response. `there` (bool[n]) is whether the right row of each exists."""
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
        versioned: Whether the right table is versioned. Out-of-order updates are then skipped (KIP-914).
    """

    leaves_values = True

    def __init__(self, store: str, keys: CombinedKeySerde, versioned: bool = False) -> None:
        self.store_name = store
        self.keys = keys
        self.versioned = versioned

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._store: TypedKeyValueStore = ctx.store(self.store_name)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Respond to all subscribers of the updates, with one pass over the store.

        Raises:
            Exception: A key cannot be written, or a left key cannot be read; there has been no effect.
        """
        if self.versioned:
            batch = latest_only(self.ctx, batch)
        batch = replace(batch, keys=batch.keys.compact())
        null_key = batch.keys.codes == NULL_KEY
        updates = batch.take(np.flatnonzero(~null_key)) if null_key.any() else batch
        prefixes = foreign_prefixes(self.keys, self.store_name, updates.keys.objects)
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
        alone = take_values(Changes.of(updates.values).new, np.flatnonzero(counts == 0))
        self.ctx.count_looked_up(len(updates), {"no_reference": int(np.count_nonzero(~null_values(alone)))})
        values = Responses([hashes[row] for row in at], Changes.of(updates.values).new, which)
        keys = KeyColumn(rows.astype(np.int32), lefts)
        self.ctx.forward_batch(replace(updates.take(which), keys=keys, values=values))
