"""What the DSL builds does what it says, run by the driver: re-keys in the head and behind state, joins, aggregates."""

import pytest

from streams import (
    Branched,
    Int64Serde,
    JoinWindows,
    Materialized,
    StreamsBuilder,
    StringSerde,
    TimeWindowedSerde,
    TimeWindows,
    Window,
    Windowed,
    agg,
)
from streams.testing.driver import TopologyTestDriver

FLIGHTS = [("a", 5, "X"), ("a", 20, "X"), ("b", 30, "Y"), ("a", 40, "X")]


@pytest.fixture(scope="module")
def results():
    """All records of each output topic, by topic."""
    builder = StreamsBuilder()
    flights, carriers = builder.stream("flights"), builder.table("carriers")
    late = (
        flights.filter(lambda v: v["d"] > 10).select_key(lambda v: v["c"]).left_join(carriers, lambda v, n: {**v, **n})
    )
    late.map_values(lambda v: v["name"]).to("late")
    late.group_by(lambda v: v["o"]).count().to_stream().to("by-origin")
    windows = TimeWindows.of_size_with_no_grace(100)
    flights.group_by_key().windowed_by(windows).aggregate(n=agg.count(), m=agg.max("d")).to_stream().to("windows")
    carrier = flights.select_key(lambda v: v["c"])
    largest = carrier.group_by_key().max("d", materialized=Materialized(name="largest"))
    carrier.join(largest, lambda v, largest: largest["max"] - v["d"]).to("below-largest")
    branches = flights.split().branch(lambda v: v["d"] > 10, Branched("late")).default_branch(Branched("early"))
    hour = JoinWindows.of_time_difference_with_no_grace(1000)
    branches["late"].join(branches["early"], lambda late, early: [late["d"], early["d"]], hour).to("pairs")

    serdes = {"by-origin": (StringSerde(), Int64Serde()), "windows": (TimeWindowedSerde(StringSerde(), 100), None)}
    with TopologyTestDriver(builder.build(), partitions={"flights": 2}) as driver:
        driver.create_input_topic("carriers").pipe_input("UA", {"name": "United"}, timestamp=1)
        topic = driver.create_input_topic("flights", StringSerde())
        for at, (key, delay, origin) in enumerate(FLIGHTS):
            topic.pipe_input(key, {"d": delay, "c": "UA", "o": origin}, timestamp=10 * at + 10)
        outputs = ("late", "by-origin", "windows", "below-largest", "pairs")
        topics = {name: driver.create_output_topic(name, *serdes.get(name, (StringSerde(), None))) for name in outputs}
        return {name: [(r.key, r.value) for r in topic.read_records_to_list()] for name, topic in topics.items()}


def test_results(results):
    assert results["late"] == [("UA", "United")] * 3
    assert sorted(results["by-origin"]) == [("X", 1), ("X", 2), ("Y", 1)]
    assert dict(results["windows"]) == {
        Windowed("a", Window(0, 100)): {"n": 3, "m": 40},
        Windowed("b", Window(0, 100)): {"n": 1, "m": 30},
    }
    assert results["below-largest"] == [("UA", 0)] * 4
    assert results["pairs"] == [("a", [20, 5]), ("a", [40, 5])]
