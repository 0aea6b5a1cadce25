"""A topology with an operator of every kind."""

from streams import (
    JoinWindows,
    JsonSerde,
    KTable,
    Materialized,
    Processor,
    Record,
    Retry,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    ValueTransformer,
    agg,
    col,
)
from streams.dsl.kstream import KStream
from streams.model.windows import EmitStrategy
from streams.topology.topology import Topology

MINUTE = 60_000
WITHIN = JoinWindows.of_time_difference_and_grace(MINUTE, MINUTE)


class Same(Processor[str, dict[str, int], str, dict[str, int]]):
    """Forwards each record."""

    def process(self, record: Record[str, dict[str, int]]) -> None:
        self.ctx.forward(record)


class Kept(ValueTransformer[str, dict[str, int], dict[str, int]]):
    """Leaves each row as it is."""

    def transform(self, key: str, value: dict[str, int] | None) -> dict[str, int] | None:
        return value


def build() -> Topology:
    """All operators that work in tasks and readers."""
    builder = StreamsBuilder(optimize=True)
    events: KStream[str, dict[str, int]] = builder.stream("events")
    add_stateless(events)
    add_aggregates(events)
    add_joins(builder, events)
    add_tables(builder)
    return builder.build()


def add_stateless(events: KStream[str, dict[str, int]]) -> None:
    kept = events.filter(lambda value: bool(value)).map_values(lambda value: value).peek(print)
    flat = kept.map(lambda key, value: (key, value)).flat_map(lambda key, value: [(key, value)])
    flat.flat_map_values(lambda value: [value]).select_key(lambda value: str(value)).to("flat")
    branches = events.split().branch(lambda value: bool(value)).default_branch()
    first, second = branches.values()
    first.merge(second).to("merged")
    events.enrich(same_values, batch_size=10).to("enriched")
    events.deduplicate(MINUTE).to("once")
    events.process(Same).process_values(Same, on_error=Retry([MINUTE], "dead"), named="ship").to("processed")
    events.map_values(lambda value: value).to_delta("/tmp/table", schema={"n": int})


def same_values(values: list[dict[str, int]]) -> list[dict[str, int]]:
    return values


def add_aggregates(events: KStream[str, dict[str, int]]) -> None:
    grouped = events.group_by_key()
    minutes = TimeWindows.of_size_and_grace(MINUTE, 0)
    grouped.aggregate(n=agg.sum("n")).suppress(Suppressed.until_time_limit(MINUTE)).to_stream().to("sums")
    grouped.aggregate(n=agg.count_distinct("n")).to_stream().to("distinct")
    grouped.top(1, by=col("n"), materialized=Materialized(name="top")).to_stream().to("top")
    grouped.reduce(lambda total, value: value)
    of_minutes = grouped.windowed_by(minutes).count().group_by_window()
    of_minutes.count()
    of_minutes.top(1, lambda n: n)
    grouped.windowed_by(minutes).aggregate(n=agg.count_distinct("n"))
    grouped.windowed_by(minutes).top(1, by=col("n"), materialized=Materialized(name="tops"))
    grouped.windowed_by(minutes).reduce(lambda total, value: value)
    closing = grouped.windowed_by(minutes).emit_strategy(EmitStrategy.on_window_close())
    closing.aggregate(n=agg.count_distinct("n"))
    closing.count(materialized=Materialized(name="counted"))
    closing.reduce(lambda total, value: value, materialized=Materialized(name="closed"))
    grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(MINUTE, 0)).count()
    grouped.windowed_by(SlidingWindows.of_time_difference_and_grace(MINUTE, 0)).count()
    grouped.windowed_by(minutes).count(materialized=Materialized(name="late")).to_stream().to("late")


def add_joins(builder: StreamsBuilder, events: KStream[str, dict[str, int]]) -> None:
    others: KStream[str, dict[str, int]] = builder.stream("others")
    users: KTable[str, dict[str, int]] = builder.table("users")
    past: KTable[str, dict[str, int]] = builder.table("past", materialized=Materialized(history_retention=MINUTE))
    tags = builder.global_table("tags")
    events.left_join(others, lambda left, right: left, WITHIN).to("pairs")
    events.join(events, lambda left, right: left, WITHIN).to("own-pairs")
    events.join_all({"other": others, "third": builder.stream("third")}, lambda values: values, WITHIN).to("combined")
    events.as_of_join(others, lambda left, right: left, MINUTE).to("as-of")
    events.join(users, lambda left, right: left).to("known")
    events.join(past, lambda left, right: left, grace=MINUTE // 2).to("as-then")
    events.join(tags, lambda left, right: left, key_selector=lambda value: str(value)).to("tagged")


def add_tables(builder: StreamsBuilder) -> None:
    users: KTable[str, dict[str, int]] = builder.table("accounts")
    orders: KTable[str, dict[str, int]] = builder.table("orders")
    users.join(orders, lambda left, right: left).filter(lambda value: bool(value)).to_stream().to("both")
    orders.join(users, lambda left, right: left, foreign_key=lambda value: str(value)).to_stream().to("by-reference")
    users.map_values(lambda value: value).transform_values(Kept).to_stream().to("same")
    groups = users.group_by(lambda key, value: (key, value))
    groups.reduce(lambda total, value: value, lambda total, value: value)
    groups.top(3, lambda value: value["n"], materialized=Materialized(name="best")).explode().to("places")
    builder.table("sessions", materialized=Materialized(ttl=MINUTE, value_serde=JsonSerde())).to_stream().to("alive")
