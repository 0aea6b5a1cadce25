"""The right table's side of a foreign-key join: stores the subscriptions, and responds."""

from __future__ import annotations

from typing import Any

from streams.model.foreign_key import CombinedKey, Instruction, Response, Subscription
from streams.model.record import Change, Record
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.key_value import TypedKeyValueStore
from streams.operators.table.value_getter import ValueGetter
from streams.serdes.foreign_key import CombinedKeySerde


class ForeignKeySubscriptions(Operator):
    """Stores and answers subscriptions (`SubscriptionReceiveProcessorSupplier`, `SubscriptionJoinProcessorSupplier`).

    A response has the larger of the subscription's and the right row's times. A subscription without a foreign key (from a left
    join) is answered and not stored.

    Args:
        store: Name of the store of subscriptions.
        other: The value getter of the right table.
    """

    def __init__(self, store: str, other: ValueGetter) -> None:
        self.store_name = store
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

    def _respond(self, record: Record, asked: Subscription, value: Any, time: int) -> None:
        self.ctx.forward(Record(asked.primary_key, Response(asked.hash, value), time, record.headers))


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
        """Open the subscriptions."""
        super().init(ctx)
        self._store: TypedKeyValueStore = ctx.store(self.store_name)

    def process(self, record: Record) -> None:
        """Respond to each subscription."""
        change: Change = record.value
        if record.key is None or (self.versioned and not change.is_latest):
            self.ctx.drop(record, "null_key" if record.key is None else "not_latest")
            return
        for place, asked in self._store.prefix(self.keys.prefix(self.store_name, record.key)):
            response = Response(asked.hash, change.new)
            self.ctx.forward(Record(place.primary, response, record.timestamp, record.headers))
