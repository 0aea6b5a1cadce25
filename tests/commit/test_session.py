"""Live steps of one task over the simulated Kafka: what a session takes from the step before, and when it asks again."""

from __future__ import annotations

import pytest

from state.commit.session import TaskSession
from state.commit.step import CommitStep, StepInput
from state.errors import CheckpointMismatchError, FencedError, UnexpectedOffsetError
from streams.testing.simulation import SimulatedTable
from streams.testing.simulation.kafka import SimulatedProducer
from tests.commit.test_step import COMMITS, IDENTITY, A, Points, Task, process


def session(task: Task, points: Points | None = None) -> TaskSession:
    return TaskSession(CommitStep(IDENTITY, task.kafka, task.stores(), points or Points()))


def live_step(one: TaskSession, read_to: int) -> None:
    ranges = {"in": {"0": (read_to - 1, read_to)}}
    done = one.prepare(StepInput(-1, "", ranges, {("in", 0): read_to}, {}, 1, live=True), process)
    done.transaction.commit()
    one.apply(done)


def test_steps_follow_each_other_on_one_producer() -> None:
    task, points = Task(), Points()
    with session(task, points) as one:
        for number in (1, 2, 3):
            live_step(one, number)
    assert points.reached.count("after_init") == 1
    assert one.last is not None
    assert (one.last.version, one.last.live, one.last.ranges) == (3, True, {"in": {"0": (2, 3)}})
    assert task.values("out") == [b"1", b"1", b"2", b"2", b"3", b"3"]
    assert task.rows("a") == {b"x": b"3", b"y": b"3"}
    assert task.kafka.groups["app"] == {("in", 0): 3}


def test_a_session_continues_at_the_last_marker_with_lost_state() -> None:
    task = Task()
    with session(task) as one:
        live_step(one, 1)
    task.table = SimulatedTable()
    with session(task) as one:
        assert one.last is not None
        assert one.last.ranges == {"in": {"0": (0, 1)}}
        live_step(one, 2)
    assert task.values("out") == [b"1", b"1", b"2", b"2"]


def test_a_producer_that_may_not_write_again_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    task, points = Task(), Points()
    monkeypatch.setattr(SimulatedProducer, "again", lambda producer: not producer._begun and not producer._sent)
    with session(task, points) as one:
        for number in (1, 2):
            live_step(one, number)
    assert points.reached.count("after_init") == 2
    assert task.values("out") == [b"1", b"1", b"2", b"2"]


def test_a_session_that_another_one_has_fenced_is_over() -> None:
    task = Task()
    with session(task) as zombie:
        live_step(zombie, 1)
        task.table = SimulatedTable()  # of another host
        with session(task) as one:
            live_step(one, 2)
        with pytest.raises(FencedError):
            live_step(zombie, 2)
    assert task.values("out") == [b"1", b"1", b"2", b"2"]


def test_a_session_does_not_continue_behind_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zombie whose producer must be replaced would fence the living one: it sees the other's marker, and ends."""
    task = Task()
    with session(task) as zombie:
        live_step(zombie, 1)
        task.table = SimulatedTable()  # of another host
        with session(task) as one:
            live_step(one, 2)
        monkeypatch.setattr(SimulatedProducer, "again", lambda _: False)
        with pytest.raises(CheckpointMismatchError, match="another process has committed"):
            live_step(zombie, 2)
    assert task.values("out") == [b"1", b"1", b"2", b"2"]


@pytest.mark.parametrize("topic", [A, COMMITS])
def test_records_of_another_writer_fail_the_step_before_it_commits(topic: str) -> None:
    task = Task()
    with session(task) as one:
        live_step(one, 1)
        foreign = task.kafka.producer("foreign")
        foreign.init_transactions()
        foreign.begin()
        foreign.send(topic, 0, b"k", b"v", 1)
        foreign.commit()
        with pytest.raises(UnexpectedOffsetError):
            live_step(one, 2)
    assert task.values("out") == [b"1", b"1"]


@pytest.mark.parametrize("lost", [True, False])
def test_a_session_begins_behind_aborted_records_but_not_behind_those_of_a_step_whose_marker_is_lost(
    lost: bool,
) -> None:
    task = Task()
    with session(task) as one:
        live_step(one, 1)
    log = task.kafka.log(COMMITS, 0)
    entries, end = len(log.entries), log.end
    with session(task) as one:
        ranges = {"in": {"0": (1, 2)}}
        done = one.prepare(StepInput(-1, "", ranges, {("in", 0): 2}, {}, 1, live=True), process)
        if lost:
            done.transaction.commit()
    if not lost:
        with session(task) as one:
            live_step(one, 2)
        assert task.values("out") == [b"1", b"1", b"2", b"2"]
        return
    del log.entries[entries:]
    log.end = end
    with pytest.raises(CheckpointMismatchError, match=f"{A}.*committed records of a later step"), session(task):
        pass
    assert task.values("out") == [b"1", b"1", b"2", b"2"]


def test_a_task_without_a_marker_but_with_state_is_refused() -> None:
    task = Task()
    with session(task) as one:
        live_step(one, 1)
    task.kafka.delete_topic(COMMITS)
    task.kafka.create_topic(COMMITS, 1)
    with (
        pytest.raises(CheckpointMismatchError, match="neither Spark's checkpoint nor the commits topic"),
        session(task),
    ):
        pass
