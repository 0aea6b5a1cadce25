"""A rescale that is killed at any of its requests, and then run again, leaves what one without interruption leaves."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.commit.marker import read_last_marker
from state.errors import CheckpointMismatchError
from streams import Processor, Retry, StreamsBuilder, StringSerde
from streams.application.rescale.plan import UsersChoices, check_no_rescale
from streams.application.rescale.rescale import Rescaler
from streams.errors import RescaleError, RescaleUnfinishedError
from streams.testing import TopologyTestDriver
from streams.testing.query import rescaler_of
from streams.testing.simulation import Crash, Fate, RequestEvent, SimulatedKafka
from streams.testing.simulation.kafka import NothingHappens
from tests.budget import up_to
from tests.properties.model import Entry
from tests.properties.runs import FAR, Feed, bag, feeds, place, sequences
from tests.rescale import programs
from tests.rescale.programs import BY_TIME, BY_UPDATE, COALESCING, DISORDER, LEFT, RIGHT, SIDES

OLD, NEW = 3, 2
APP = "test"


class KillAt(NothingHappens):
    """Kills the process before its n-th request."""

    def __init__(self, number: int) -> None:
        self.left = number

    def before(self, event: RequestEvent) -> Fate:
        self.left -= 1
        if self.left < 0:
            raise Crash(str(event))
        return Fate.NOW


@contextmanager
def application() -> Iterator[TopologyTestDriver]:
    """An application of two sub-topologies and several kinds of stores, with three tasks each."""
    builder = StreamsBuilder()
    programs.count_by_new_key(builder).to("counts")
    programs.stream_join("left_join")(builder).to("joined")
    # Nothing but the tests' own repartition topic is between the two, whatever the execution.
    with TopologyTestDriver(
        builder.build(), partitions={LEFT: 3, RIGHT: 2}, tasks=OLD, execution="micro-batch"
    ) as driver:
        for number in range(8):
            topic = driver.create_input_topic((LEFT, RIGHT)[number % 3 == 2])
            topic.pipe_input("abcd"[number * 3 % 4], {"v": number}, number * 5)
        yield driver


def rescaler(driver: TopologyTestDriver, kafka: SimulatedKafka, tasks: int = NEW) -> Rescaler:
    return rescaler_of(driver._queries, APP, kafka, tasks, UsersChoices())


def contents(kafka: SimulatedKafka) -> dict[str, Any]:
    """The committed records of each topic, markers without the id of their query."""
    found: dict[str, Any] = {}
    for topic in sorted(kafka.topics):
        for partition in range(kafka.partition_count(topic)):
            last = read_last_marker(kafka, (topic, partition)) if topic.endswith("-commits") else None
            records = [(entry.key, entry.value, entry.timestamp) for entry in kafka.log(topic, partition).readable()]
            found[f"{topic}-{partition}"] = replace(last.marker, query_id="") if last else records
    return found


def killed(driver: TopologyTestDriver, number: int) -> SimulatedKafka | None:
    """Kafka after a rescale that was killed before its n-th request; None if it has fewer."""
    kafka = copy.deepcopy(driver._kafka)
    kafka.hook = KillAt(number)
    try:
        rescaler(driver, kafka).run()
    except Crash:
        kafka.hook = NothingHappens()
        return kafka
    return None


def kills(driver: TopologyTestDriver) -> Iterator[SimulatedKafka]:
    number = 0
    while (kafka := killed(driver, number)) is not None:
        yield kafka
        number += 1
    assert number > 100


@pytest.mark.slow
def test_a_killed_rescale_keeps_starts_away_and_goes_on_or_is_taken_back():
    with application() as driver:
        names = [query.sub.name for query in driver._queries]
        before, whole = contents(driver._kafka), copy.deepcopy(driver._kafka)
        rescaler(driver, whole).run()
        after, taken_back, forward_only = contents(whole), 0, 0
        assert not any(topic.endswith("-rescale") for topic in whole.topics)
        for kafka in kills(driver):
            if any(topic.endswith("-rescale") for topic in kafka.topics):
                with pytest.raises(RescaleUnfinishedError, match="Run the same"):
                    check_no_rescale(APP, names, kafka)
            else:
                # Nothing was begun, or only the last answer is missing.
                assert contents(kafka) in (before, after)
                continue
            other = copy.deepcopy(kafka)
            rescaler(driver, kafka).run()
            assert contents(kafka) == after
            try:
                rescaler(driver, other).abort()
            except RescaleError:
                forward_only += 1
            else:
                assert contents(other) in (before, after)
                taken_back += contents(other) == before
        assert taken_back > 30
        assert forward_only > 30


def test_a_task_that_commits_during_the_copy_is_found_out_and_nothing_is_replaced():
    with application() as driver:
        one = rescaler(driver, driver._kafka)
        for sub in one.waiting:
            sub.begin()
            sub.stage()
        driver.create_input_topic(LEFT).pipe_input("a", {"v": 1}, 100)
        before = contents(driver._kafka)
        with pytest.raises(CheckpointMismatchError, match=r"Stop the application"):
            one.run()
        topics = [topic for topic in before if "-changelog-" in topic and "rescale" not in topic]
        assert {topic: contents(driver._kafka)[topic] for topic in topics} == {topic: before[topic] for topic in topics}
        # Copied anew, the record is in it.
        rescaler(driver, driver._kafka).run()


def test_a_running_task_cannot_commit_any_more_once_its_marker_is_closed():
    with application() as driver:
        one = rescaler(driver, driver._kafka)
        for step in ("begin", "stage", "close"):
            for sub in one.waiting:
                getattr(sub, step)()
        with pytest.raises(CheckpointMismatchError, match="a rescale has taken over its state"):
            driver.create_input_topic(LEFT).pipe_input("a", {"v": 1}, 100)


def test_another_number_of_tasks_has_to_wait_for_the_end_of_an_unfinished_rescale():
    with application() as driver:
        kafka = killed(driver, 60)
        assert kafka is not None
        with pytest.raises(RescaleError, match=r"a rescale from 3 to 2 tasks \(murmur2\) was begun"):
            rescaler(driver, kafka, tasks=5)


def test_only_the_program_that_began_a_rescale_can_finish_it():
    with application() as driver:
        one = rescaler(driver, driver._kafka)
        for step in ("begin", "stage", "close"):
            for sub in one.waiting:
                getattr(sub, step)()
        changed = rescaler(driver, driver._kafka)
        for sub in changed.waiting:
            sub._identity = replace(sub._identity, topology_hash="another")
        with pytest.raises(CheckpointMismatchError, match="the state was written by another topology"):
            changed.run()


# --- A rescale of an application that retries: records that wait are neither lost nor overtaken.

KEYS = "abcdefgh"
FIRST, SECOND = "test-ship-retry-1-repartition", "test-ship-retry-2-repartition"


class Ship(Processor):
    """Fails on values of which the class says so, at most so many times."""

    failures: ClassVar[dict[str, int]] = {}

    def process(self, record: Any) -> None:
        left = Ship.failures.get(record.value, 0)
        if left:
            Ship.failures[record.value] = left - 1
            raise ValueError(f"no truck for {record.value}")
        self.ctx.forward(record)


def shipping(keep_order: bool) -> Any:
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    retry = Retry((1_000, 10_000), dead_letters="orders.dlq", keep_order=keep_order)
    builder.stream("orders").process_values(Ship, named="ship", on_error=retry).to("shipped")
    return builder.build()


def shipped(keep_order: bool, rescales: dict[int, int]) -> dict[str, list[str]]:
    """Key -> its results in order: every first record fails twice, and tasks change in between."""
    Ship.failures = {f"{key}{number}": 2 for key in KEYS for number in (0, 3)}
    with TopologyTestDriver(shipping(keep_order), partitions={"orders": 2}, tasks=2, start_ms=100_000) as driver:
        orders = driver.create_input_topic("orders")
        for number in range(6):
            if number in rescales:
                driver.rescale(rescales[number])
            for key in KEYS:
                orders.pipe_input(key, f"{key}{number}", 100_000 + number)
            driver.advance_wall_clock_time(700)
        for number in range(6, 18):
            if number in rescales:
                driver.rescale(rescales[number])
            driver.advance_wall_clock_time(9_000)
        found = driver.create_output_topic("shipped").read_records_to_list()
        assert driver.create_output_topic("orders.dlq").is_empty
        results: dict[str, list[str]] = {}
        for record in found:
            results.setdefault(record.key, []).append(record.value)
        return results


@pytest.mark.slow
@pytest.mark.parametrize("rescales", [{2: 3}, {1: 1, 4: 5}, {3: 4, 6: 2, 7: 3}, {2: 7, 8: 1}])
def test_records_that_wait_come_back_in_the_order_of_their_keys(rescales: dict[int, int]) -> None:
    assert shipped(True, rescales) == {key: [f"{key}{number}" for number in range(6)] for key in KEYS}


@pytest.mark.slow
@pytest.mark.parametrize("rescales", [{2: 3}, {3: 4, 6: 2, 7: 3}])
def test_without_order_they_come_back_when_they_are_due(rescales: dict[int, int]) -> None:
    assert shipped(False, rescales) == shipped(False, {})


# --- Random histories with rescales in between have the results of the same history without: for all kinds of state.

few = up_to(2)
FLUSH = tuple(f"~{number}" for number in range(40))
"""Keys for each of up to seven tasks."""
FEED_KEYS = ("a", "b", "c", "d", "e", "f")
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
                with driver.batch():
                    for key in FLUSH:
                        topic.pipe_input(key, {"v": 0}, FAR)
        found = driver.create_output_topic("out").read_records_to_list()
        rows = [(place(record.key), record.value, record.timestamp) for record in found]
        return [row for row in rows if "~" not in str(row[0])]


rescales_at = st.dictionaries(st.integers(0, 21), st.sampled_from((1, 2, 3, 4, 6, 7)), min_size=1, max_size=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_UPDATE)
@few
@given(feed=feeds(SIDES, disorder=DISORDER, keys=FEED_KEYS, nulls=False), tasks=st.integers(1, 4), rescales=rescales_at)
def test_results_and_their_order_per_key_stay_the_same(name, feed, tasks, rescales):
    expected = play(BY_UPDATE[name], feed, tasks, {})
    assert sequences(play(BY_UPDATE[name], feed, tasks, rescales)) == sequences(expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_TIME)
@few
@given(feed=feeds(SIDES, disorder=DISORDER, keys=FEED_KEYS, nulls=False), tasks=st.integers(1, 4), rescales=rescales_at)
def test_results_that_wait_for_time_come_as_before_where_time_does_not_depend_on_tasks(name, feed, tasks, rescales):
    expected = play(BY_TIME[name], feed, tasks, {}, flushed=True, beats=True)
    assert sequences(play(BY_TIME[name], feed, tasks, rescales, flushed=True, beats=True)) == sequences(expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BY_TIME.keys() - COALESCING))
@few
@given(feed=feeds(SIDES, disorder=DISORDER, keys=FEED_KEYS, nulls=False), tasks=st.integers(1, 4), rescales=rescales_at)
def test_results_that_wait_for_time_are_all_there_and_each_once(name, feed, tasks, rescales):
    expected = play(BY_TIME[name], feed, tasks, {}, flushed=True)
    assert bag(play(BY_TIME[name], feed, tasks, rescales, flushed=True)) == bag(expected)


def test_input_partitions_that_are_added_split_no_state():
    entries = [Entry(LEFT, 0, FEED_KEYS[number % 6], {"v": number}, number * 3) for number in range(24)]
    feed = Feed(entries, [1] * 24)
    expected = play(BY_UPDATE["windows"], feed, 2, {})
    assert sequences(play(BY_UPDATE["windows"], feed, 2, {12: 5}, grown={6: 4, 18: 9})) == sequences(expected)
