"""A rescale that is killed at any of its requests, and then run again, leaves what one without interruption leaves."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from state.commit.last_marker import read_last_marker
from state.errors import CheckpointMismatchError
from streams import StreamsBuilder
from streams.application.rescale.plan import UsersChoices, check_no_rescale
from streams.application.rescale.rescale import Rescaler
from streams.errors import RescaleError, RescaleUnfinishedError
from streams.testing import TopologyTestDriver
from streams.testing.query import rescaler_of
from streams.testing.simulation import Crash, Event, Fate, SimulatedKafka
from streams.testing.simulation.events import NothingHappens
from tests.rescale import programs
from tests.rescale.programs import LEFT, RIGHT

OLD, NEW = 3, 2
APP = "test"


class KillAt(NothingHappens):
    """Kills the process before its n-th request."""

    def __init__(self, number: int) -> None:
        self.left = number

    def before(self, event: Event) -> Fate:
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
    with TopologyTestDriver(builder.build(), partitions={LEFT: 3, RIGHT: 2}, tasks=OLD) as driver:
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
        with pytest.raises(CheckpointMismatchError, match=r"the application runs\. Stop it"):
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
        with pytest.raises(RescaleError, match="a rescale from 3 to 2 tasks was begun"):
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
