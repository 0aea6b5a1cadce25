"""Random histories with rescales in between have the results of the same history without: for all kinds of state."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams import StreamsBuilder
from streams.testing import TopologyTestDriver
from tests.properties.model import Entry
from tests.properties.runs import FAR, Feed, bag, examples, feeds, place, sequences
from tests.rescale.programs import BY_TIME, BY_UPDATE, COALESCING, DISORDER, LEFT, RIGHT, SIDES

few = settings(examples, max_examples=max(2, examples.max_examples // 10), suppress_health_check=[HealthCheck.too_slow])
FLUSH = tuple(f"~{number}" for number in range(40))
"""Keys for each of up to seven tasks."""
KEYS = ("a", "b", "c", "d", "e", "f")
Rescales = dict[int, int]
"""Number of a record -> the number of tasks from then on."""


def play(
    build: Any,
    feed: Feed,
    tasks: int,
    rescales: Rescales,
    flushed: bool = False,
    beats: bool = False,
    grown: Rescales | None = None,
) -> list[Any]:
    """The results of a program, record by record, with as many tasks as said from each record on.

    Args:
        build: The program.
        feed: The records.
        tasks: The number of tasks at the start.
        rescales: See `Rescales`.
        flushed: Whether everything is closed at the end.
        beats: Whether the time of all tasks moves on with each record.
        grown: Number of a record -> the number of partitions of the left topic from then on.
    """
    builder = StreamsBuilder()
    build(builder).to("out")
    partitions = {LEFT: 3, RIGHT: 2, "out": 1}
    with TopologyTestDriver(builder.build(), partitions=partitions, tasks=tasks) as driver:
        topics = {topic: driver.create_input_topic(topic) for topic in {entry.topic for entry in feed.log}}
        for number, entry in enumerate(feed.log):
            if number in (grown or {}):
                driver._kafka.create_topic(LEFT, grown[number])
            if number in rescales:
                driver.rescale(rescales[number])
            if beats:
                with driver.batch():
                    newest = max(one.time for one in feed.log[: number + 1])
                    for key in FLUSH:
                        driver.create_input_topic(LEFT).pipe_input(key, {"v": 0}, newest)
            topics[entry.topic].pipe_input(entry.key, entry.value, entry.time)
        if flushed:
            for topic in topics.values():
                for key in FLUSH:
                    topic.pipe_input(key, {"v": 0}, FAR)
        found = driver.create_output_topic("out").read_records_to_list()
        rows = [(place(record.key), record.value, record.timestamp) for record in found]
        return [row for row in rows if "~" not in str(row[0])]


rescales_at = st.dictionaries(st.integers(0, 21), st.sampled_from((1, 2, 3, 4, 6, 7)), min_size=1, max_size=3)


@pytest.mark.parametrize("name", BY_UPDATE)
@few
@given(feed=feeds(SIDES, disorder=DISORDER, keys=KEYS, nulls=False), tasks=st.integers(1, 4), rescales=rescales_at)
def test_results_and_their_order_per_key_stay_the_same(name, feed, tasks, rescales):
    expected = play(BY_UPDATE[name], feed, tasks, {})
    assert sequences(play(BY_UPDATE[name], feed, tasks, rescales)) == sequences(expected)


@pytest.mark.parametrize("name", BY_TIME)
@few
@given(feed=feeds(SIDES, disorder=DISORDER, keys=KEYS, nulls=False), tasks=st.integers(1, 4), rescales=rescales_at)
def test_results_that_wait_for_time_come_as_before_where_time_does_not_depend_on_tasks(name, feed, tasks, rescales):
    expected = play(BY_TIME[name], feed, tasks, {}, flushed=True, beats=True)
    assert sequences(play(BY_TIME[name], feed, tasks, rescales, flushed=True, beats=True)) == sequences(expected)


@pytest.mark.parametrize("name", sorted(BY_TIME.keys() - COALESCING))
@few
@given(feed=feeds(SIDES, disorder=DISORDER, keys=KEYS, nulls=False), tasks=st.integers(1, 4), rescales=rescales_at)
def test_results_that_wait_for_time_are_all_there_and_each_once(name, feed, tasks, rescales):
    expected = play(BY_TIME[name], feed, tasks, {}, flushed=True)
    assert bag(play(BY_TIME[name], feed, tasks, rescales, flushed=True)) == bag(expected)


def test_input_partitions_that_are_added_split_no_state():
    entries = [Entry(LEFT, 0, KEYS[number % 6], {"v": number}, number * 3) for number in range(24)]
    feed = Feed(entries, [1] * 24)
    expected = play(BY_UPDATE["windows"], feed, 2, {})
    assert sequences(play(BY_UPDATE["windows"], feed, 2, {12: 5}, grown={6: 4, 18: 9})) == sequences(expected)
