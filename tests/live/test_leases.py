"""How many slots a lease has: as many as Spark can run at once, and what is told of those that have not begun."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from state.kafka.topics import TopicPartition
from streams.driver.executors import await_executors, executors_asked_for, tasks_at_once
from streams.driver.leases import (
    ASK_EVERY_S,
    OBSTACLE,
    STEADY_S,
    UNREAD_AFTER_S,
    LeaseWatch,
    UnreadPartitions,
    held_slots,
)
from streams.driver.session import processes_of
from streams.engine.live.slot import LiveJob, LiveSub, most_slots, slots_for
from streams.engine.source.offsets import SourceOffsets, TopicOffsets
from streams.logs.events import PARTITIONS_UNREAD, Event, Events
from streams.metrics.reports import DriverAddress
from tests.live.test_task import APP, World, copy


class Executors(list[Any]):
    """Spark's list of executors: pairs of an id and how many tasks it runs at once."""

    def size(self) -> int:
        return len(self)

    def apply(self, at: int) -> Any:
        name, tasks = self[at]
        return SimpleNamespace(id=lambda: name, maxTasks=lambda: tasks)


def session(master: str, executors: Sequence[tuple[str, int]] = (), conf: Mapping[str, str] | None = None) -> Any:
    found = Executors(executors)
    store = SimpleNamespace(executorList=lambda active: found)
    java = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store))
    context = SimpleNamespace(master=master, _conf=conf or {}, _jsc=java, defaultParallelism=4)
    return SimpleNamespace(sparkContext=context, executors=found)


def test_tasks_run_on_executors_and_not_on_the_driver() -> None:
    assert tasks_at_once(session("k8s://x", [("driver", 16), ("1", 1), ("2", 1)])) == 2
    assert tasks_at_once(session("spark://x", [("driver", 0), ("0", 4), ("3", 2)])) == 6
    assert tasks_at_once(session("local[4]", [("driver", 4)])) == 4


@pytest.mark.parametrize(
    ("master", "conf", "processes", "executors"),
    [
        ("k8s://x", {"spark.executor.instances": "3"}, 1, 3),
        ("yarn", {}, 1, 2),
        ("k8s://x", {"spark.executor.instances": "10", "spark.executor.cores": "4"}, 4, 10),
        ("k8s://x", {"spark.executor.cores": "4", "spark.task.cpus": "2"}, 2, 2),
        ("local-cluster[3,2,1024]", {}, 6, 3),
        ("local[4]", {}, 4, 1),
    ],
)
def test_settings_say_what_spark_was_asked_for(
    master: str, conf: Mapping[str, str], processes: int, executors: int
) -> None:
    assert processes_of(session(master, conf=conf)) == processes
    assert executors_asked_for(master, conf) == executors  # type: ignore[arg-type]


def test_a_start_waits_for_executors_but_not_for_ever() -> None:
    spark = session("k8s://x", [("driver", 0)], {"spark.executor.instances": "2"})

    def come() -> bool:
        spark.executors.append((str(len(spark.executors)), 1))
        return False

    await_executors(spark, come)
    assert tasks_at_once(spark) == 2
    began = time.monotonic()
    await_executors(session("k8s://x"), lambda: False, wait_s=0.1)
    await_executors(session("k8s://x"), lambda: True)
    assert time.monotonic() - began < 10


class Slots:
    """What a driver knows of its slots."""

    def __init__(self) -> None:
        self.lease, self.begun = 0, frozenset[int]()

    def end_leases(self) -> None:
        self.lease += 1


class Watched:
    """A watch, with what Spark can run, and what it has told."""

    def __init__(self, possible: int) -> None:
        self.now, self.possible, self.driver = 0.0, possible, Slots()
        self.told: list[tuple[int, list[int], bool]] = []
        self.watch = LeaseWatch(
            self.driver,
            lambda: self.possible,
            lambda slots, missing, long: self.told.append((slots, list(missing), long)),
            clock=lambda: self.now,
        )

    def look(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.watch.look()


def test_applications_of_one_process_know_of_each_other_s_slots() -> None:
    one, two = Watched(3), Watched(1)
    with one.watch, two.watch:
        assert (one.watch.begin(), two.watch.begin()) == (3, 1)
        assert (held_slots(), held_slots(one.driver), held_slots(two.driver)) == (4, 1, 3)
    assert held_slots() == 0


def test_a_lease_ends_once_spark_can_run_another_number_of_slots_for_some_seconds() -> None:
    watched = Watched(4)
    assert watched.watch.begin() == 4
    watched.driver.begun = frozenset(range(4))
    for _ in range(60):
        watched.look()
    assert watched.driver.lease == 0
    # An executor was lost, and comes back.
    watched.possible = 2
    watched.look(), watched.look(STEADY_S / 2)
    watched.possible = 4
    watched.look(), watched.look(STEADY_S)
    assert watched.driver.lease == 0
    watched.possible = 2
    watched.look(), watched.look(STEADY_S)
    assert watched.driver.lease == 1
    assert watched.watch.begin() == 2
    watched.possible = 6
    watched.look()
    # More come.
    watched.possible = 8
    watched.look(STEADY_S), watched.look(STEADY_S)
    assert watched.driver.lease == 2
    assert watched.told == []


def test_slots_that_have_not_begun_are_told_and_after_a_while_for_long() -> None:
    watched = Watched(3)
    watched.watch.begin()
    watched.driver.begun = frozenset({1})
    watched.look(), watched.look()
    assert watched.told == [(3, [0, 2], False)]
    watched.look(ASK_EVERY_S)
    watched.driver.begun = frozenset({0, 1})
    watched.look(UNREAD_AFTER_S)
    assert watched.told[1:] == [(3, [0, 2], False), (3, [2], True)]
    watched.driver.begun = frozenset({0, 1, 2})
    watched.look(), watched.look()
    assert watched.told[3:] == [(3, [], False)]


class Metrics:
    """What is noted of an application."""

    def __init__(self) -> None:
        self.found: dict[TopicPartition, tuple[int, int]] = {}
        self.obstacles: dict[str, str] = {}

    def positions(self, sub: str, found: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.found.update(found)

    def obstacle(self, name: str, why: str | None) -> None:
        self.obstacles.pop(name, None)
        if why is not None:
            self.obstacles[name] = why


class Admin:
    """A cluster in which each partition ends at 100, and one was read up to 70."""

    def end_offsets(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 100)

    def group_offsets(self, group: str, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        assert group == APP
        return {place: 70 for place in places if place == ("in", 1)}


def test_partitions_that_nobody_reads_have_a_known_lag_and_are_named() -> None:
    sub = LiveSub(World(copy("in"), partitions=4).job, "query", SourceOffsets({"in": TopicOffsets("id", (5, 5, 5, 5))}))
    job = LiveJob((sub,), most_slots([sub]), 0.1, 60.0, "run", DriverAddress("", 0, b""))
    assert (most_slots([sub]), slots_for([sub], 3), slots_for([sub], 9), slots_for([sub], 0)) == (4, 3, 4, 1)
    heard: list[Event] = []
    metrics: Any = Metrics()
    unread = UnreadPartitions(job, {}, Events(APP, listener=heard.append), metrics)
    unread._admin = Admin  # type: ignore[assignment]
    unread.missing(2, [1], False)
    assert metrics.found == {("in", 1): (70, 100), ("in", 3): (5, 100)}
    assert not heard
    for _ in range(2):
        unread.missing(2, [1], True)
    (event,) = heard
    assert (event.kind, event.fields) == (PARTITIONS_UNREAD, {"partitions": ["in-1", "in-3"]})
    assert "no slot reads in-1, in-3: 1 of 2 slots" in event.message
    assert metrics.obstacles == {OBSTACLE: event.message}
    unread.missing(2, [], False)
    assert not metrics.obstacles
