"""Live steps of several tasks in one transaction: all or nothing, whichever task is at fault, and whoever else writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from state.columns import RecordColumns
from state.commit.decide import TaskIdentity, slot_transactional_id
from state.commit.session import PreparedStep, TaskSession
from state.commit.shared import SharedProducer
from state.commit.step import CommitStep, StepInput
from state.errors import (
    CheckpointMismatchError,
    FencedError,
    OpenTransactionError,
    ProducerStateError,
    UnexpectedOffsetError,
)
from state.restore.task_stores import WorkerMemory
from streams.application.markers import MarkerAccess
from streams.checkpoint.compare import SubIdentity
from streams.engine.live.link import DriverAddress
from streams.engine.live.slot import LiveJob
from streams.testing.simulation import SimulatedKafka, SimulatedStores, SimulatedTable
from streams.testing.simulation.kafka import SimulatedProducer
from tests.commit.test_step import COMMITS, SPECS, TOPICS, A, Points, process

TASKS = 3


class Quiet(Points):
    """Crash points of several tasks, none of which is armed."""

    def reach(self, point: str, task: int, version: int) -> None:
        self.reached.append(point)


class World:
    """A sub-topology with some tasks, whose stores are on one disk."""

    def __init__(self) -> None:
        self.kafka = SimulatedKafka(dict.fromkeys(TOPICS, TASKS))
        self.tables = [SimulatedTable() for _ in range(TASKS)]

    @contextmanager
    def slot(
        self, slot: int, tasks: Sequence[int], others: Sequence[int] = (), running: Sequence[int] = ()
    ) -> Iterator[dict[int, TaskSession]]:
        """The sessions of a slot that has some of the tasks."""
        named, working = ([slot_transactional_id("app", one) for one in slots] for slots in (others, running))
        with ExitStack() as opened:
            shared = opened.enter_context(
                SharedProducer(self.kafka, slot_transactional_id("app", slot), named, working)
            )
            yield {task: opened.enter_context(self.session(task, shared)) for task in tasks}

    def session(self, task: int, shared: SharedProducer | None = None) -> TaskSession:
        identity = TaskIdentity("app", "in", task, TASKS, "query", "hash")
        stores = SimulatedStores(self.kafka, identity, SPECS, self.tables[task], WorkerMemory())
        return TaskSession(CommitStep(identity, self.kafka, stores, Quiet()), shared=shared)

    def elsewhere(self) -> None:
        """From now on, sessions are opened on another host."""
        self.tables = [SimulatedTable() for _ in range(TASKS)]

    def counts(self) -> dict[int, int]:
        """Task -> how many steps are visible in its commits and its changelog."""
        found = {}
        for task in range(TASKS):
            rows = [self.kafka.columns(topic, task) for topic in (COMMITS, A)]
            markers, changes = (0 if one is None else len(one) for one in rows)
            assert changes == 2 * markers
            found[task] = markers
        return found


def prepared(sessions: Mapping[int, TaskSession]) -> list[PreparedStep]:
    steps = []
    for task, one in sessions.items():
        read = one.last.version if one.last else 0
        given = StepInput(-1, "", {"in": {str(task): (read, read + 1)}}, {("in", task): read + 1}, {}, 1, live=True)
        steps.append(one.prepare(given, process))
    return steps


def step(sessions: Mapping[int, TaskSession]) -> None:
    """A step of each task, in one transaction."""
    steps = prepared(sessions)
    steps[0].transaction.commit()
    for one, done in zip(sessions.values(), steps, strict=True):
        one.apply(done)


@pytest.fixture
def world() -> World:
    return World()


def test_all_tasks_of_a_transaction_are_committed_at_once(world: World) -> None:
    with world.slot(0, [0, 1, 2]) as sessions:
        steps = prepared(sessions)
        assert len({id(one.transaction) for one in steps}) == 1
        assert world.counts() == {0: 0, 1: 0, 2: 0}
        steps[0].transaction.commit()
        assert world.counts() == {0: 1, 1: 1, 2: 1}
        for one, done in zip(sessions.values(), steps, strict=True):
            one.apply(done)
        step({task: sessions[task] for task in (0, 2)})
        step(sessions)
    assert world.counts() == {0: 3, 1: 2, 2: 3}
    assert world.kafka.groups["app"] == {("in", 0): 3, ("in", 1): 2, ("in", 2): 3}
    for task, one in sessions.items():
        assert one.last is not None
        assert (one.last.version, one.last.transactional_id) == (world.counts()[task], "app-slot~0")


@pytest.mark.parametrize("topic", [A, COMMITS])
@pytest.mark.parametrize("task", range(TASKS))
def test_records_of_another_writer_in_the_logs_of_one_task_hinder_all(world: World, topic: str, task: int) -> None:
    with world.slot(0, [0, 1, 2]) as sessions:
        step(sessions)
        foreign = world.kafka.producer("foreign")
        foreign.init_transactions()
        foreign.begin()
        foreign.send(topic, task, b"k", b"v", 1)
        world.kafka.time_out("foreign")
        with pytest.raises(UnexpectedOffsetError):
            step(sessions)
    assert world.counts() == {0: 1, 1: 1, 2: 1}


def test_half_a_step_is_never_committed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.slot(0, [0, 1]) as sessions:
        first = prepared({0: sessions[0]})[0]
        send = SimulatedProducer.send
        monkeypatch.setattr(SimulatedProducer, "send", lambda *given: world.kafka.log("no such topic", 0))
        with pytest.raises(Exception, match="no such topic"):
            prepared({1: sessions[1]})
        monkeypatch.setattr(SimulatedProducer, "send", send)
        with pytest.raises(ProducerStateError, match="has a step that has failed"):
            first.transaction.commit()
        with pytest.raises(ProducerStateError, match="has a step that has failed"):
            prepared({0: sessions[0]})
    assert world.counts() == {0: 0, 1: 0, 2: 0}


def test_a_new_producer_looks_at_the_markers_of_all_tasks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has been away has fenced the living one, so that must not be in vain."""
    with world.slot(0, [0, 1, 2]) as zombies:
        step(zombies)
        world.elsewhere()
        with world.slot(0, [2]) as one:
            step(one)
        monkeypatch.setattr(SimulatedProducer, "again", lambda _: False)
        with pytest.raises(CheckpointMismatchError, match=r"task 2 .*another process has committed"):
            step({0: zombies[0]})
    assert world.counts() == {0: 1, 1: 1, 2: 2}


def test_a_new_producer_asks_once_for_all_tasks_and_reads_no_marker_that_nothing_is_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Task after task, a slot with thirty stood still for seconds whenever a transaction had taken long."""
    asked, read = list[int](), list[str]()
    log_ends, reads = SimulatedKafka.log_ends, SimulatedKafka.read

    def ends(kafka: SimulatedKafka, places: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], tuple[int, int]]:
        asked.append(len(places))
        return log_ends(kafka, places)

    def reading(kafka: SimulatedKafka, topic: str, *given: int) -> Iterator[RecordColumns]:
        read.append(topic)
        return reads(kafka, topic, *given)

    with world.slot(0, [0, 1, 2]) as sessions:
        step(sessions)
        step({1: sessions[1]})
        monkeypatch.setattr(SimulatedProducer, "again", lambda _: False)
        monkeypatch.setattr(SimulatedKafka, "log_ends", ends)
        monkeypatch.setattr(SimulatedKafka, "read", reading)
        step(sessions)
        assert (asked, read) == ([TASKS * (1 + len(SPECS))], [])
        # What was aborted behind a marker is looked at: it could be a step.
        foreign = world.kafka.producer("foreign")
        foreign.init_transactions()
        foreign.begin()
        foreign.send(COMMITS, 2, b"k", b"v", 1)
        world.kafka.time_out("foreign")
        step(sessions)
        assert read == [COMMITS]
    assert world.counts() == {0: 3, 1: 4, 2: 3}


def test_a_producer_that_has_written_nothing_is_not_replaced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fenced: list[str] = []
    init = SimulatedProducer.init_transactions

    def count(producer: SimulatedProducer) -> None:
        fenced.append(producer.transactional_id)
        init(producer)

    monkeypatch.setattr(SimulatedProducer, "init_transactions", count)
    monkeypatch.setattr(SimulatedProducer, "again", lambda producer: not producer._begun and bool(producer._sent))
    with world.slot(0, [0, 1]) as sessions:
        step(sessions)
        step(sessions)
        assert fenced.count("app-slot~0") == 1


def test_what_another_slot_has_left_open_is_ended_by_the_id_in_the_marker(world: World) -> None:
    """With two slots, the task was in slot 1; with one, it is in slot 0."""
    with world.slot(1, [1]) as old:
        step(old)
        prepared(old)
        world.elsewhere()
        with world.slot(0, [0, 1, 2]) as sessions:
            step(sessions)
        with pytest.raises(FencedError):
            step(old)
    assert world.counts() == {0: 1, 1: 2, 2: 1}


def test_what_another_slot_has_left_open_is_ended_even_if_no_marker_names_it(world: World) -> None:
    with world.slot(1, [1]) as old:
        prepared(old)
        world.elsewhere()
        with pytest.raises(OpenTransactionError), world.slot(0, [0, 1, 2]):
            pass
        with world.slot(0, [0, 1, 2], others=[1, 2]) as sessions:
            step(sessions)
    assert world.counts() == {0: 1, 1: 1, 2: 1}


def test_a_slot_that_runs_at_the_same_time_is_not_fenced(world: World) -> None:
    """With more slots than before, a task's last marker names a slot that has begun already, with other tasks."""
    with world.slot(0, [0, 1, 2]) as sessions:
        step(sessions)
    world.elsewhere()
    with world.slot(0, [0, 2], running=[1]) as first:
        step(first)
        with world.slot(1, [1], running=[0]) as second:
            step(first)
            step(second)
    assert world.counts() == {0: 3, 1: 2, 2: 3}


def test_what_the_last_lease_left_open_is_ended_by_the_slot_that_has_its_id(world: World) -> None:
    with world.slot(0, [0, 1, 2]) as sessions:
        step(sessions)
        prepared(sessions)[0].transaction.producer.flush()
        world.elsewhere()
        with pytest.raises(OpenTransactionError), world.slot(1, [1], running=[0]):
            pass
        with world.slot(0, [0, 2], running=[1]), world.slot(1, [1], running=[0]) as second:
            step(second)
    assert world.counts() == {0: 1, 1: 2, 2: 1}


def test_a_session_with_the_tasks_own_id_is_ended(world: World) -> None:
    """As an earlier version had it, and as micro-batches have it."""
    with world.session(1) as old:
        step({1: old})
        assert old.last is not None
        assert old.last.transactional_id == ""
        prepared({1: old})
        world.elsewhere()
        with world.slot(0, [0, 1, 2]) as sessions:
            step(sessions)
        with pytest.raises(FencedError):
            prepared({1: old})
    assert world.counts() == {0: 1, 1: 2, 2: 1}


def test_two_that_do_not_fence_each_other_are_told_apart_by_their_offsets(world: World) -> None:
    """A slot of another number of slots begins anew when all ids are fenced already, and neither ends the other."""
    with world.slot(1, [1]) as first:
        world.elsewhere()
        with world.slot(0, [0, 1, 2]) as second:
            step(first)
            with pytest.raises(UnexpectedOffsetError):
                step(second)
        # What the second has left behind is in the way.
        with pytest.raises(UnexpectedOffsetError):
            step(first)
    world.elsewhere()
    with world.slot(0, [0, 1, 2]) as sessions:
        step(sessions)
    assert world.counts() == {0: 1, 1: 2, 2: 1}


def access(world: World) -> MarkerAccess:
    return MarkerAccess(world.kafka, SubIdentity("app", "in", TASKS, "hash"))  # type: ignore[arg-type]


def test_a_marker_is_not_replaced_behind_the_back_of_a_slot(world: World) -> None:
    with world.slot(1, [1]) as sessions:
        step(sessions)
    markers = access(world).fenced()
    last = markers[1]
    assert last is not None
    with world.slot(1, [1]) as sessions:
        steps = prepared(sessions)
        assert not access(world).replace(1, last, replace(last, query_id="another"))
        steps[0].transaction.commit()
    assert world.counts()[1] == 2


def test_a_slot_commits_nothing_behind_a_marker_that_was_replaced(world: World) -> None:
    with world.slot(1, [1]) as sessions:
        step(sessions)
    last = access(world).fenced()[1]
    assert last is not None
    with world.slot(1, [1]) as sessions:
        assert access(world).replace(1, last, replace(last, query_id="another"))
        with pytest.raises(UnexpectedOffsetError):
            step(sessions)
    found = access(world).read()[1]
    assert found is not None
    assert (found.query_id, found.transactional_id) == ("another", "")


def test_markers_are_read_when_all_slots_are_fenced(world: World) -> None:
    """Nothing names the slot: it has committed nothing yet."""
    with world.slot(0, [0, 1, 2]) as sessions:
        steps = prepared(sessions)
        assert access(world).fenced() == {0: None, 1: None, 2: None}
        with pytest.raises(FencedError):
            steps[0].transaction.commit()
    assert world.counts() == {0: 0, 1: 0, 2: 0}


def test_a_task_is_in_no_slot_with_a_larger_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fenced goes by this: see `slot_transactional_id`."""
    from types import SimpleNamespace
    from typing import Any

    subs: Any = tuple(SimpleNamespace(job=SimpleNamespace(tasks=tasks)) for tasks in (1, 3, 8))
    for slots in range(1, 9):
        job = LiveJob(subs, slots, 0.1, 60.0, "run", DriverAddress("", 0, b""))
        for slot in range(slots):
            assert all(task >= slot for _, task in job.tasks_of(slot))
