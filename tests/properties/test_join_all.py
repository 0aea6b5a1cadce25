"""`join_all` for every window, number of streams, input, split, restart and interleaving: the rows of brute force."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import JoinWindows, StreamJoined
from tests.properties import join_all_model, model
from tests.properties.model import Entry
from tests.properties.runs import Feed, bag, examples, run

DISORDER = 10
TOPICS = ("one", "two", "three", "four")


class Shape(NamedTuple):
    """A join: {name of the stream: topic}, this stream first; lengths in ms."""

    streams: dict[str, str]
    difference: int
    grace: int
    persistent: bool

    def build(self, builder: Any) -> None:
        this, *others = self.streams
        streams = {name: builder.stream(topic) for name, topic in self.streams.items()}
        windows = JoinWindows.of_time_difference_and_grace(self.difference, self.grace)
        joined = streams[this].join_all(
            {name: streams[name] for name in others},
            lambda values: [value["v"] for value in values.values()],
            windows,
            StreamJoined(persistent=self.persistent),
            this=this,
        )
        joined.to("out")

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.streams.values()))


@st.composite
def shapes(draw: Any, grace: Any, most: int = 4, times: int = 1) -> Shape:
    """Three streams or more, now and then one of them twice."""
    chosen = draw(st.permutations(TOPICS[: draw(st.integers(3, most))]))
    streams = {f"{topic}-stream": topic for topic in chosen}
    if draw(st.integers(0, 3)) == 0:
        streams[draw(st.sampled_from(("again", "A.gain_2")))] = draw(st.sampled_from(chosen))
    return Shape(streams, draw(st.integers(0, 40)) * times, draw(grace) * times, draw(st.booleans()))


@st.composite
def feeds(draw: Any, topics: tuple[str, ...], partitions: int, disorder: int, times: int = 1) -> Feed:
    """Records of a few keys close together, since combinations of several streams are rare; as `runs.feeds` otherwise."""
    newest, log, cuts = 0, [], []
    for number in range(draw(st.integers(12, 30))):
        newest += draw(st.sampled_from((0, 0, 1, 2, 4, 7, 11, 45)))
        time = max(0, newest - draw(st.sampled_from((0, 0, 0, 1, disorder // 2, disorder))))
        key = draw(st.sampled_from(("a", "a", "a", "a", "b", "b", None)))
        value = None if draw(st.integers(0, 19)) == 0 else {"v": number}
        place = draw(st.integers(0, partitions - 1))
        log.append(Entry(draw(st.sampled_from(topics)), place, key, value, time * times))
        cuts.append(draw(st.sampled_from((0, 0, 0, 1, 1, 2))))
    return Feed(log, cuts)


@pytest.mark.slow
@examples
@given(data=st.data(), shape=shapes(st.integers(DISORDER, 30)), tasks=st.integers(1, 3))
def test_within_grace_only_the_records_count(data, shape, tasks):
    """Each combination within the window once, whatever the order of arrival, tasks, splits and restarts."""
    feed = data.draw(feeds(shape.topics, 3, DISORDER))
    rows, late = run(shape.build, feed, partitions=3, tasks=tasks)
    assert late == 0
    assert bag(rows) == bag(join_all_model.in_time(model.by_time(feed.log), shape.streams, shape.difference))


@pytest.mark.slow
@examples
@given(data=st.data(), shape=shapes(st.integers(0, 15)))
def test_the_order_alone_decides_results_and_lateness(data, shape):
    """With records that come too late the very same rows in the same order; splits and restarts play no part."""
    feed = data.draw(feeds(shape.topics, 2, 60))
    rows, late = run(shape.build, feed, partitions=2, tasks=1)
    order = model.merged(feed.steps)
    assert (rows, late) == join_all_model.with_late(order, shape.streams, shape.difference, shape.grace)


@pytest.mark.slow
@examples
@given(data=st.data(), shape=shapes(st.integers(DISORDER, 30), most=3, times=10_000))
def test_expired_rows_are_never_needed_again(data, shape):
    """Windows of minutes over hours: segments of the stores go, and no combination with them."""
    feed = data.draw(feeds(shape.topics, 3, DISORDER, times=10_000))
    rows, late = run(shape.build, feed, partitions=3, tasks=2)
    assert late == 0
    assert bag(rows) == bag(join_all_model.in_time(feed.log, shape.streams, shape.difference))
