"""The left table's side of a foreign-key join: subscribes, and joins the responses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from streams.model.foreign_key import Instruction, Response, Subscription
from streams.model.record import Change, Record
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.table.value_getter import ValueGetter
from streams.serdes.base import Serde


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
        old_key, new_key = self._foreign(record.key, change.old), self._foreign(record.key, change.new)
        changed = old_key != new_key or type(old_key) is not type(new_key)
        if self.left:
            if change.old is None and change.new is None:
                return
            if old_key is not None and changed:
                self._send(record, old_key, Instruction.DELETE)
            self._send(record, new_key, Instruction.ALWAYS_RESPOND)
        elif new_key is None:
            if change.new is not None:
                self.ctx.drop(record, "null_foreign_key")
            if old_key is not None:
                self._send(record, old_key, Instruction.DELETE_AND_RESPOND)
        elif old_key is not None and changed:
            self._send(record, old_key, Instruction.DELETE)
            self._send(record, new_key, Instruction.ALWAYS_RESPOND)
        else:
            self._send(record, new_key, Instruction.RESPOND_IF_FOUND)

    def _foreign(self, key: Any, value: Any) -> Any:
        return None if value is None else self.extractor(key, value)

    def _send(self, record: Record, foreign_key: Any, instruction: Instruction) -> None:
        digest = _value_hash(self.value_serde, self.ctx.node, record.value.new)
        subscription = Subscription(digest, int(instruction), record.key)
        self.ctx.forward(Record(foreign_key, subscription, record.timestamp, record.headers))


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
        """Open the left table."""
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
        nothing = value is None or (response.value is None and not self.left)
        joined = None if nothing else self.joiner(record.key, value, response.value)
        self.ctx.forward(record.with_value(joined))


def _value_hash(serde: Serde, node: str, value: Any) -> bytes | None:
    """A hash of 16 bytes that identifies left values; None for None."""
    data = serde.serialize(f"{node}-value-hash", value)
    return None if data is None else hashlib.blake2b(data, digest_size=16).digest()
