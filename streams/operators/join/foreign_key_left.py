"""The left table's side of a foreign-key join: subscribes, and joins the responses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np

from streams.model.foreign_key import Instruction, Response, Subscription
from streams.model.record import Change, Record
from streams.operators.columnar import NULL_KEY, ColumnarBatch, KeyColumn, OneByOne
from streams.operators.dropped import drop_rows
from streams.operators.encoded_values import value_column
from streams.operators.operator import Operator
from streams.operators.operator_batches import call_each
from streams.operators.operator_context import OperatorContext
from streams.operators.result_columns import Changes
from streams.operators.table.table_updates import TableUpdates, look_ups
from streams.operators.table.value_getter import ValueGetter
from streams.serdes.base import Serde

Asked: TypeAlias = tuple[tuple[Any, Instruction], ...]
"""Foreign keys, and what is asked for each; the one to be forgotten first."""


class ForeignKeySubscribe(Operator):
    """Turns updates of the left table into subscriptions, keyed by foreign key (`SubscriptionSendProcessorSupplier`).

    | left row | inner join | left join |
    |---|---|---|
    | new, or foreign key as before | respond if found | always respond |
    | foreign key changed | forget the old, always respond for the new | the same |
    | foreign key gone | forget the old and respond | forget the old; a response made locally |
    | deleted | forget the old and respond | the same as gone; nothing if there was no value |

    Args:
        extractor: `(key, value) -> foreign key` of the left row; not called for a null value.
        value_serde: Of the left values, for their hash.
        left: Left join.
        versioned: The left table is versioned; out-of-order updates are skipped (KIP-914).
    """

    def __init__(
        self, extractor: Callable[[Any, Any], Any], value_serde: Serde, left: bool, versioned: bool = False
    ) -> None:
        self.extractor = extractor
        self.value_serde = value_serde
        self.left = left
        self.versioned = versioned

    def process(self, record: Record) -> None:
        """Forward up to two subscriptions, the one to be forgotten first."""
        change: Change = record.value
        if self.versioned and not change.is_latest:
            self.ctx.drop(record, "not_latest")
            return
        asked = self._asked(record.key, change.new, change.old)
        if self._refers_to_nothing(change.new, asked):
            self.ctx.drop(record, "null_foreign_key")
        for foreign_key, instruction in asked:
            digest = _value_hash(self.value_serde, self.ctx.node, change.new)
            subscription = Subscription(digest, int(instruction), record.key)
            self.ctx.forward(Record(foreign_key, subscription, record.timestamp, record.headers))

    def process_together(self, batch: ColumnarBatch) -> None:
        """`process` for many updates.

        Raises:
            Exception: A value cannot be written; there has been no effect.
        """
        changes = Changes.of(batch.values)
        digests = _value_hashes(self.value_serde, self.ctx.node, changes.new)
        olds = repeat(None) if changes.old is None else changes.old
        updates = zip(changes.new, olds, digests, strict=False)
        records, found = call_each(self.ctx, batch, self._asked_with, batch.keys, updates)
        nothing = [self._refers_to_nothing(new, asked) for new, _, asked in found]
        drop_rows(self.ctx, records, {"null_foreign_key": np.array(nothing, np.bool_)})
        keys = list(records.keys)
        sent = [
            (row, foreign_key, Subscription(digest, int(instruction), keys[row]))
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
        forgets = old_key is not None and (old_key != new_key or type(old_key) is not type(new_key))
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
        """Whether a row of an inner join has no foreign key."""
        return not self.left and new is not None and (not asked or asked[0][1] == Instruction.DELETE_AND_RESPOND)

    def _foreign(self, key: Any, value: Any) -> Any:
        return None if value is None else self.extractor(key, value)


class ForeignKeyResult(Operator):
    """Joins a response with the left row that requested it (`ResponseJoinProcessorSupplier`).

    A response to a value that the row no longer has is dropped, because the response to the newer value follows. The order
    between the two topics is therefore irrelevant.

    Args:
        this: The value getter of the left table.
        value_serde: Of the left values, for their hash.
        joiner: `(key, left value, right value) -> value`.
        left: Left join.
    """

    def __init__(
        self, this: ValueGetter, value_serde: Serde, joiner: Callable[[Any, Any, Any], Any], left: bool
    ) -> None:
        self.this = this
        self.value_serde = value_serde
        self.joiner = joiner
        self.left = left

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._lookup = self.this.open(ctx)

    def process(self, record: Record) -> None:
        """Forward the joined row, or a deletion."""
        response: Response = record.value
        found = self._lookup(record.key, None)
        value = None if found is None else found.value
        if _value_hash(self.value_serde, self.ctx.node, value) != response.hash:
            self.ctx.drop(record, "stale_response")
            return
        self.ctx.forward(record.with_value(self._joined(record.key, value, response.value)))

    def process_together(self, batch: ColumnarBatch, tables: Mapping[str, TableUpdates]) -> Callable[[], None]:
        """`process` for all records of a step; returns its effects, which cannot fail.

        Raises:
            OneByOne: A record has no key, or rows cannot be looked up together.
        """
        if (batch.keys.codes == NULL_KEY).any():
            raise OneByOne("a response without a key")
        lookup = self.this.open_together(look_ups(self.ctx, self.this.stores, tables))
        values = lookup(batch.keys, batch.order).values
        digests = _value_hashes(self.value_serde, self.ctx.node, values)
        awaited = np.array([one.hash == mine for one, mine in zip(batch.values, digests, strict=True)], np.bool_)
        rows = np.flatnonzero(awaited)
        results = batch.take(rows)
        lefts = (values[row] for row in rows.tolist())
        rights = (response.value for response in results.values)
        results = results.with_values(list(map(self._joined, results.keys, lefts, rights)))

        def effects() -> None:
            drop_rows(self.ctx, batch, {"stale_response": ~awaited})
            self.ctx.forward_batch(results)

        return effects

    def _joined(self, key: Any, left: Any, right: Any) -> Any:
        return None if left is None or (right is None and not self.left) else self.joiner(key, left, right)


def _value_hash(serde: Serde, node: str, value: Any) -> bytes | None:
    """A hash of 16 bytes that identifies left values; None for None."""
    return _hash(serde.serialize(_hash_topic(node), value))


def _value_hashes(serde: Serde, node: str, values: Sequence[Any]) -> list[bytes | None]:
    return list(map(_hash, value_column(values, serde, _hash_topic(node)).to_pylist()))


def _hash_topic(node: str) -> str:
    return f"{node}-value-hash"


def _hash(data: bytes | None) -> bytes | None:
    return None if data is None else hashlib.blake2b(data, digest_size=16).digest()
