"""Idle time does what a record of the later time would do, however steps are cut and the application restarts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    EmitStrategy,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from streams.testing import TopologyTestDriver
from tests.properties.runs import Feed, bag, feeds, place, some

FILLER = "~"
WINDOWS = {
    "tumbling": TimeWindows.of_size_and_grace(20, 10),
    "hopping": TimeWindows.of_size_and_grace(20, 10).advance_by(5),
    "sliding": SlidingWindows.of_time_difference_and_grace(20, 10),
    "sessions": SessionWindows.of_inactivity_gap_and_grace(8, 10),
}
JOINED = JoinWindows.of_time_difference_and_grace(10, 10)


def windowed(name: str, emit: str) -> Any:
    def build(builder: Any) -> Any:
        stream = builder.stream("in").merge(builder.stream("other")).group_by_key().windowed_by(WINDOWS[name])
        if emit == "on close":
            return stream.emit_strategy(EmitStrategy.on_window_close()).count().to_stream()
        counts = stream.count(materialized=Materialized(caching=False))
        return (counts.suppress(Suppressed.until_window_closes()) if emit == "suppressed" else counts).to_stream()

    return build


def pair(left: Any, right: Any) -> Any:
    return [left, right]


KINDS = {
    **{f"{name}, {emit}": windowed(name, emit) for name in WINDOWS for emit in ("on close", "suppressed")},
    **{f"{name}, updates": windowed(name, "updates") for name in ("tumbling", "sessions")},
    "left join": lambda builder: builder.stream("in").left_join(builder.stream("other"), pair, JOINED),
    "outer join": lambda builder: builder.stream("in").outer_join(builder.stream("other"), pair, JOINED),
    "self-join": lambda builder: (stream := builder.stream("in")).left_join(stream, pair, JOINED.before(-1)),
    "as-of join": lambda builder: builder.stream("in").as_of_join(
        builder.stream("other"), pair, within=10, grace=10, left=True
    ),
    "deduplicate": lambda builder: builder.stream("in").deduplicate(10, grace=10),
    "rows that expire": lambda builder: (
        builder.stream("in").to_table(Materialized(name="rows", ttl=25, caching=False)).to_stream()
    ),
}


def run(build: Any, feed: Feed, idle: list[int], by_records: bool) -> tuple[Any, int]:
    """Rows, and how many records were late; idle time is either that, or made by a record with the time that it leads to."""
    builder = StreamsBuilder(optimize=True)
    build(builder).to("out")
    topology = builder.build()
    with TopologyTestDriver(topology, idle_timeout_ms=None if by_records else 1) as driver:
        topics = {
            str(name): driver.create_input_topic(str(name)) for source in topology.sources() for name in source.topics
        }
        time, at = -1, 0
        for step, waited in zip(feed.steps, idle, strict=False):
            with driver.batch():
                for topic, _, key, value, timestamp in step:
                    if topic in topics:
                        topics[topic].pipe_input(key, value, timestamp)
                        time = max(time, timestamp)
            at += len(step)
            if feed.cuts[at - 1] == 2:
                driver.restart()
                driver.advance_wall_clock_time(0)
            if time >= 0 and waited:
                time += waited
                if by_records:
                    topics["in"].pipe_input(FILLER, {"v": 0}, time)
                else:
                    driver.advance_wall_clock_time(waited)
        records = driver.create_output_topic("out").read_records_to_list()
        rows = [(place(one.key), one.value, one.timestamp) for one in records]
        kept = [row for row in rows if FILLER not in (row[0], row[0][0])]
        return bag(kept), driver.dropped("late")


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_idle_time_is_like_a_record(name: str) -> None:
    @some
    @given(
        feed=feeds(("in", "other"), disorder=15, keys=("a", "b"), nulls=False),
        idle=st.lists(st.sampled_from((0, 1, 7, 10, 30)), min_size=22, max_size=22),
    )
    def check(feed: Feed, idle: list[int]) -> None:
        assert run(KINDS[name], feed, idle, by_records=False) == run(KINDS[name], feed, idle, by_records=True)

    check()
