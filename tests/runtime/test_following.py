"""Following a key: what operators receive and drop of it, in readers and tasks, and what is not shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from streams import Consumed, JsonSerde, Materialized, Produced, StreamsBuilder, TimeWindows, agg
from streams.engine.graph.following import FOLLOWED, MOST
from streams.testing import TopologyTestDriver

Seen = tuple[str, str | None, str | None]


def samples(build: Callable[[StreamsBuilder], Any], records: list[Any], **settings: Any) -> list[dict[str, Any]]:
    """The samples of a run over (key, value, time), in their order."""
    builder = StreamsBuilder(default_value_serde=JsonSerde())
    build(builder)
    with TopologyTestDriver(builder.build(), tasks=1, **settings) as driver:
        for key, value, time in records:
            driver.create_input_topic("in").pipe_input(key, value, time)
        counts = driver.counts()
    return [orjson.loads(name.removeprefix(FOLLOWED)) for name in counts if name.startswith(FOLLOWED)]


def shop(builder: StreamsBuilder) -> None:
    def checked(value: dict[str, Any]) -> dict[str, Any]:
        if value["cents"] < 0:
            raise ValueError(f"{value['cents']} cents")
        return value

    stream = builder.stream("in", Consumed(name="source")).map_values(checked, named="check")
    totals = stream.map_values(lambda value: value["cents"], named="cents").group_by_key()
    sums = totals.reduce(lambda one, other: one + other, materialized=Materialized("sums", caching=False), named="sum")
    sums.to_stream(named="updates").to("out", Produced(name="sink"))


ORDERS = [("a", {"cents": 5, "card": "4711"}, 1), ("b", {"cents": 6, "card": "4712"}, 2), ("a", {"cents": -1}, 3)]


def test_a_key_is_followed_through_reader_and_task_to_the_sink() -> None:
    found = samples(shop, ORDERS, follow="a", processing="skip")
    assert {one["key"] for one in found} == {"a"}
    first = [(one["operator"], one["dropped"], one["value"]) for one in found if one["timestamp"] == 1]
    assert sorted(first) == [
        ("cents", None, '{"cents":5,"card":"4711"}'),
        ("check", None, '{"cents":5,"card":"4711"}'),
        ("sink", None, "5"),
        ("sum", None, "5"),
        ("updates", None, "5"),
    ]
    assert all(one["source"] == ["in", 0, 0] for one in found if one["timestamp"] == 1)
    failed = [(one["operator"], one["dropped"]) for one in found if one["timestamp"] == 3]
    assert failed == [("check", None), ("check", "ValueError: -1 cents")]


def test_nothing_is_sampled_unless_a_key_is_named() -> None:
    assert samples(shop, ORDERS, processing="skip") == []


def test_masked_fields_and_texts_outside_of_fields_are_not_shown() -> None:
    found = samples(shop, ORDERS[:1], follow="a", follow_masked=frozenset({"card"}))
    assert {one["value"] for one in found if one["operator"] == "check"} == {'{"cents":5,"card":"***"}'}

    def texts(builder: StreamsBuilder) -> None:
        builder.stream("in").map_values(lambda value: f"card {value['card']}", named="text").to(
            "out", Produced(name="sink")
        )

    found = samples(texts, ORDERS[:1], follow="a", follow_masked=frozenset({"card"}))
    assert {one["operator"]: one["value"] for one in found} == {"text": '{"cents":5,"card":"***"}', "sink": "***"}


@pytest.mark.parametrize("by_columns", [True, False])
def test_late_records_are_drops_with_their_reason(by_columns: bool) -> None:
    windows = TimeWindows.of_size_with_no_grace(10)

    def build(builder: StreamsBuilder) -> None:
        grouped = builder.stream("in").group_by_key().windowed_by(windows)
        if by_columns:
            grouped.aggregate(n=agg.count(), named="counted").to_stream().to("out")
        else:
            grouped.reduce(lambda one, other: other, named="counted").to_stream().to("out")

    records = [("a", {"n": 1}, 1), ("b", {"n": 1}, 100), ("a", {"n": 2}, 2)]
    found = [one for one in samples(build, records, follow="a") if one["operator"] == "counted"]
    received = [(one["timestamp"], one["source"]) for one in found if one["dropped"] is None]
    assert received == [(1, ["in", 0, 0]), (2, ["in", 0, 2])]
    # Operators that work on columns have no records to show; they count what they drop.
    dropped = [(one["timestamp"], one["dropped"]) for one in found if one["dropped"]]
    assert dropped == ([] if by_columns else [(2, "late")])


def test_the_last_samples_are_kept() -> None:
    builder = StreamsBuilder(default_value_serde=JsonSerde())
    shop(builder)
    with TopologyTestDriver(builder.build(), tasks=1, follow="a", processing="skip") as driver:
        with driver.batch():
            driver.create_input_topic("in").pipe_key_value_list([("a", {"cents": n}) for n in range(-1, 200)])
        counts = driver.counts()
    found = [orjson.loads(name.removeprefix(FOLLOWED)) for name in counts if name.startswith(FOLLOWED)]
    received = [one for one in found if one["dropped"] is None]
    of_the_reader = [one for one in received if one["operator"] in ("check", "cents")]
    assert len(of_the_reader) == MOST
    assert of_the_reader[-1]["source"] == ["in", 0, 200]
    assert len(received) == 2 * MOST
    # What is received does not displace what is dropped, which is what somebody looks for.
    assert [one["source"] for one in found if one["dropped"]] == [["in", 0, 0]]
