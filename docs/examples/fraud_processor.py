"""Fraud alerts with the Processor API: who spends more than a limit within a minute.

Shows: a `Processor` with a store, a punctuation by stream time, `forward`, deleting from a store.
"""

from datetime import timedelta
from typing import Any

from streams import (
    Int64Serde,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    StringSerde,
    Topology,
)

Event = dict[str, Any]

LIMIT = 1000
MINUTE = timedelta(minutes=1)


class Fraud(Processor[str, Event, str, Event]):
    """Sums what each card spends, until a minute passes without a payment."""

    def init(self, context: ProcessorContext[str, Event]) -> None:
        """Looks up the store, and asks to be called each minute of stream time."""
        self.context = context
        self.spend = context.get_state_store("spend")
        context.schedule(MINUTE, PunctuationType.STREAM_TIME, self.forget)

    def process(self, record: Record[str, Event]) -> None:
        """Adds a payment, and forwards an alert once the limit is passed."""
        found = self.spend.get(record.key)
        before = found.value if found else 0
        total = before + record.value["amount"]
        self.spend.put(record.key, total)
        if before <= LIMIT < total:
            self.context.forward(record.with_value({"spent": total}))

    def forget(self, timestamp: int) -> None:
        """Deletes the sums of cards that have paid nothing for a minute."""
        for card, spent in list(self.spend.all()):
            if spent.timestamp <= timestamp - MINUTE.total_seconds() * 1000:
                self.spend.delete(card)


def build() -> Topology:
    """Reads `payments` by card and writes `alerts`."""
    builder = StreamsBuilder()
    builder.add_state_store(Stores.timestamped_key_value_store("spend", StringSerde(), Int64Serde()))
    builder.stream("payments").process(Fraud, "spend").to("alerts")
    return builder.build()
