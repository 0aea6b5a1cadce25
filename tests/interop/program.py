"""The same topology as `Interop.java`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from streams import (
    Consumed,
    EmitStrategy,
    Grouped,
    Int64Serde,
    Joined,
    JoinWindows,
    JsonSerde,
    Materialized,
    Processor,
    Produced,
    Record,
    SessionWindowedSerde,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindowedSerde,
    TimeWindows,
    ValueAndHeaders,
)
from streams.topology.topology import Topology

TEXT, LONG = StringSerde(), Int64Serde()
APP = "interop"
INPUTS = (
    "in-kv", "in-red", "in-agg", "in-win", "in-sld", "in-sess", "in-price", "in-order", "in-tab", "in-ev", "in-l", "in-r",
    "in-rep", "in-tg", "in-emp", "in-dept", "in-one", "in-two",
)  # fmt: skip
KINDS = (
    "kv", "kept", "red", "agg", "win", "sld", "sess", "ver", "grace", "tab", "ij", "rep", "tg", "fk", "lj", "oj", "sup", "lim",
    "eow", "long", "eos",
)  # fmt: skip


class Keeping(Processor[str, str, str, str]):
    """Keeps the last value of each key with a header, and says the header that it had."""

    def process(self, record: Record[str, str]) -> None:
        kept = self.ctx.store("kept")
        before = kept.get(record.key)
        said = "null" if before is None else dict(before.value.headers)["last"].decode()
        row = ValueAndHeaders(record.value, (("last", record.value.encode()), ("none", None)))
        kept.put(record.key, row, record.timestamp)
        self.ctx.forward(record.with_value(f"{record.value}/{said}"))


def table(name: str, keys: Any = TEXT, values: Any = LONG, **more: Any) -> Any:
    return Materialized(name=name, key_serde=keys, value_serde=values, caching=False, **more)


def build(app: str = APP) -> Topology:
    """The topology of an application."""
    builder = StreamsBuilder()
    texts, by_key, out = Consumed(TEXT, TEXT), Grouped(TEXT, TEXT), f"{app}-out-"
    minute, grace, short = timedelta(minutes=1), timedelta(seconds=10), timedelta(seconds=20)
    day = timedelta(days=1)

    def grouped(topic: str) -> Any:
        return builder.stream(topic, texts).group_by_key(by_key)

    grouped("in-kv").count(table("kv-count")).to_stream().to(f"{out}kv", Produced(TEXT, LONG))
    builder.stream("in-red", Consumed(LONG, LONG)).group_by_key(Grouped(LONG, LONG)).reduce(
        lambda all_of_it, value: all_of_it + value, table("red-sum", LONG)
    ).to_stream().to(f"{out}red", Produced(LONG, LONG))
    grouped("in-agg").aggregate(
        lambda: {"n": 0}, lambda value, found: {"n": found["n"] + len(value)}, table("agg-json", values=JsonSerde())
    ).to_stream().to(f"{out}agg", Produced(TEXT, JsonSerde()))
    builder.add_state_store(Stores.timestamped_key_value_store_with_headers("kept", TEXT, TEXT))
    builder.stream("in-kv", texts).process(Keeping, stores=["kept"]).to(f"{out}kept", Produced(TEXT, TEXT))
    grouped("in-win").windowed_by(TimeWindows.of_size_and_grace(minute, grace)).count(
        table("win-count")
    ).to_stream().to(f"{out}win", Produced(TimeWindowedSerde(TEXT, minute), LONG))
    grouped("in-sld").windowed_by(SlidingWindows.of_time_difference_and_grace(short, grace)).count(
        table("sld-count")
    ).to_stream().to(f"{out}sld", Produced(TimeWindowedSerde(TEXT, short), LONG))
    grouped("in-sess").windowed_by(SessionWindows.of_inactivity_gap_and_grace(timedelta(seconds=30), grace)).count(
        table("sess-count")
    ).to_stream().to(f"{out}sess", Produced(SessionWindowedSerde(TEXT), LONG))
    history = Materialized(name="prices", key_serde=TEXT, value_serde=TEXT, history_retention=timedelta(minutes=30))
    prices = builder.table("in-price", texts, history)
    builder.stream("in-order", texts).join(
        prices, lambda order, price: f"{order}@{price}", Joined(TEXT, TEXT, name="priced")
    ).to(f"{out}ver", Produced(TEXT, TEXT))
    builder.stream("in-order", texts).join(
        prices, lambda order, price: f"{order}@{price}", Joined(TEXT, TEXT, name="later", grace=short)
    ).to(f"{out}grace", Produced(TEXT, TEXT))
    names = builder.table("in-tab", texts, table("names", values=TEXT))
    builder.stream("in-ev", texts).left_join(
        names, lambda event, name: f"{event}/{'null' if name is None else name}", Joined(TEXT, TEXT, name="named")
    ).to(f"{out}tab", Produced(TEXT, TEXT))
    builder.stream("in-l", texts).join(
        builder.stream("in-r", texts),
        lambda left, right: f"{left}+{right}",
        JoinWindows.of_time_difference_and_grace(minute, grace),
        StreamJoined(TEXT, TEXT, TEXT, name="ij", store_name="ij"),
    ).to(f"{out}ij", Produced(TEXT, TEXT))
    for kind in ("lj", "oj"):
        left, right = builder.stream("in-one", texts), builder.stream("in-two", texts)
        join = left.left_join if kind == "lj" else left.outer_join
        join(
            right,
            lambda one, two: f"{one or 'null'}+{two or 'null'}",
            JoinWindows.of_time_difference_and_grace(minute, grace),
            StreamJoined(TEXT, TEXT, TEXT, name=kind, store_name=kind),
        ).to(f"{out}{kind}", Produced(TEXT, TEXT))
    grouped("in-win").windowed_by(TimeWindows.of_size_and_grace(minute, grace)).count(table("sup-count")).suppress(
        Suppressed.until_window_closes(), named="sup"
    ).to_stream().to(f"{out}sup", Produced(TimeWindowedSerde(TEXT, minute), LONG))
    grouped("in-kv").count(table("lim-count")).suppress(Suppressed.until_time_limit(short), named="lim").to_stream().to(
        f"{out}lim", Produced(TEXT, LONG)
    )
    grouped("in-win").windowed_by(TimeWindows.of_size_and_grace(minute, grace)).emit_strategy(
        EmitStrategy.on_window_close()
    ).count(table("eow-count")).to_stream().to(f"{out}eow", Produced(TimeWindowedSerde(TEXT, minute), LONG))
    grouped("in-win").windowed_by(TimeWindows.of_size_and_grace(minute, grace)).emit_strategy(
        EmitStrategy.on_window_close()
    ).count(table("long-count", retention=day)).to_stream().to(
        f"{out}long", Produced(TimeWindowedSerde(TEXT, minute), LONG)
    )
    grouped("in-sess").windowed_by(
        SessionWindows.of_inactivity_gap_and_grace(timedelta(seconds=30), grace)
    ).emit_strategy(EmitStrategy.on_window_close()).count(table("eos-count", retention=day)).to_stream().to(
        f"{out}eos", Produced(SessionWindowedSerde(TEXT), LONG)
    )
    builder.stream("in-rep", texts).group_by(lambda key, value: value, Grouped(TEXT, TEXT, name="by-val")).count(
        table("rep-count")
    ).to_stream().to(f"{out}rep", Produced(TEXT, LONG))
    builder.table("in-tg", texts, table("tg-table", values=TEXT)).group_by(
        lambda key, team: (team, 1), Grouped(TEXT, LONG, name="by-team")
    ).aggregate(
        lambda: 0, lambda value, found: found + value, lambda value, found: found - value, table("tg-sum")
    ).to_stream().to(f"{out}tg", Produced(TEXT, LONG))
    employees = builder.table("in-emp", texts, table("emp", values=TEXT))
    departments = builder.table("in-dept", texts, table("dept", values=TEXT))
    employees.join(
        departments,
        lambda employee, department: f"{employee}@{department}",
        foreign_key=lambda employee: employee,
        named="fk",
        materialized=table("fk-out", values=TEXT),
    ).to_stream().to(f"{out}fk", Produced(TEXT, TEXT))
    return builder.build()
