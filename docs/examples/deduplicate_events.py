"""Each event once, although its sender repeats: with a window store by hand, and with `deduplicate`.

Shows: a window store in a `Processor`, `fetch` over a range of time, and the operator that does it for you.
"""

from datetime import timedelta
from typing import Any

from streams import (
    Int64Serde,
    Processor,
    ProcessorContext,
    Record,
    Stores,
    StreamsBuilder,
    StringSerde,
    Topology,
)

Event = dict[str, Any]

WITHIN = timedelta(minutes=10)


class Deduplicate(Processor[str, Event, str, Event]):
    """Forwards an event if no event of the same id has come within ten minutes of it."""

    def init(self, context: ProcessorContext[str, Event]) -> None:
        """Looks up the store."""
        self.context = context
        self.seen = context.get_state_store("seen")

    def process(self, record: Record[str, Event]) -> None:
        """Looks for the event's id around its time."""
        within = int(WITHIN.total_seconds() * 1000)
        if not list(self.seen.fetch(record.value["id"], record.timestamp - within, record.timestamp + within)):
            self.context.forward(record)
        self.seen.put(record.value["id"], record.timestamp, record.timestamp)


def build() -> Topology:
    """Reads `events` and writes them once to `by-hand` and to `built-in`."""
    builder = StreamsBuilder()
    builder.add_state_store(Stores.window_store("seen", StringSerde(), Int64Serde(), retention=3 * WITHIN))
    events = builder.stream("events")
    by_id = events.select_key(lambda event: event["id"])
    by_id.repartition(name="by-id").process(Deduplicate, "seen").to("by-hand")
    by_id.deduplicate(WITHIN, named="each-once").to("built-in")
    return builder.build()
