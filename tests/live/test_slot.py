"""A slot whose tasks fail: each is closed with its own error only. It asks the brokers in a thread; a restore counts once."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from state.errors import StateCorruptedError
from state.restore.plan import Action
from state.restore.restorer import RestoreEndedError, RestoreReport, StoreReport
from streams.engine.live import slot as slots
from streams.engine.live.alignment import FREE, Bound, Reached
from streams.engine.live.link import REACHED, Link
from streams.engine.live.slot import LiveJob, LiveSub, Slot, Wake
from streams.engine.live.task import Tally
from streams.engine.source.offsets import SourceOffsets
from streams.errors import NewPartitionsError
from streams.metrics.reports import DriverAddress
from tests.live.test_task import APP, World, copy


class SpokenTo:
    """A link that stops nothing."""

    stopped, lost, paused = False, False, frozenset[str]()

    def __init__(self) -> None:
        self.file, self.said = os.pipe()

    def listen(self) -> None:
        """Nothing is said."""

    def now_ms(self) -> int:
        return 0

    def bound(self, sub: str) -> Bound:
        return FREE

    def tell(self, message: object) -> bool:
        """Nobody listens."""
        return True


class Task:
    """A task without records."""

    def __init__(self, job: Any, access: Any, *_: object, **__: object) -> None:
        self.job, self.access, self.task, self.tally = job, access, access.number, Tally()
        self.ends: dict[object, int] = {}
        self.rests_s = 0.0
        self.reached, self.is_held = None, False
        self.passed_bytes = 0

    def __enter__(self) -> None:
        """It is open."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """It is closed."""

    def begin(self, now_ms: int, last: bool, bound: Bound) -> bool:
        return False

    def ask(self) -> None:
        """All is as it was."""

    def heed(self) -> None:
        """Nothing is to be done."""


def slot_of(task: type[Task], monkeypatch: pytest.MonkeyPatch, interval_s: float = 0.01) -> Slot:
    """A slot with three tasks."""

    def opened(job: object, identity: Any, **_: object) -> Any:
        nothing = SimpleNamespace(report=None)
        return SimpleNamespace(number=identity.task, kafka=SimpleNamespace(topics=None), stores=nothing)

    monkeypatch.setattr(slots, "LiveTask", task)
    monkeypatch.setattr(slots, "task_step", opened)
    sub = LiveSub(World(copy("in"), partitions=3).job, "query", SourceOffsets({}))
    job = LiveJob((sub,), 1, interval_s, 60.0, "run", DriverAddress("", 0, b""))
    link: Link = SpokenTo()  # type: ignore[assignment]
    return Slot(job, 0, 0, link)


def test_a_damaged_database_is_the_fault_of_its_task_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores of a task are deleted if they are closed with such an error."""
    closed: dict[int, object] = {}
    begun: set[int] = set()

    class Damaged(Task):
        def __exit__(self, kind: object, error: object, trace: object) -> None:
            closed[self.task] = error

        def begin(self, now_ms: int, last: bool, bound: Bound) -> bool:
            begun.add(self.task)
            if self.task == 1 and len(begun) == 3:
                raise StateCorruptedError("db", "damaged")
            return False

    with pytest.raises(StateCorruptedError) as raised:
        slot_of(Damaged, monkeypatch).run()
    assert closed == {0: None, 1: raised.value, 2: None}


def test_no_step_begins_once_the_driver_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first task's function has hung for so long that another execution may have taken over."""
    begun = []

    class Hangs(Task):
        def begin(self, now_ms: int, last: bool, bound: Bound) -> bool:
            begun.append(self.task)
            slot._link.listen = lose  # type: ignore[method-assign]
            return False

    def lose() -> None:
        slot._link.stopped = slot._link.lost = True

    slot = slot_of(Hangs, monkeypatch)
    slot.run()
    assert begun == [0]


def test_tasks_ask_the_brokers_while_others_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tasks are opened in threads, so the first ones may have heeded twice before the last one asks.
    asking, heeded = threading.Event(), set[int]()

    class Asking(Task):
        def begin(self, now_ms: int, last: bool, bound: Bound) -> bool:
            if asking.is_set():
                answers.set()
            return False

        def ask(self) -> None:
            asking.set()
            assert answers.wait(10.0), "no task has processed meanwhile"
            if heeded == {0, 1, 2}:
                raise NewPartitionsError(APP, self.job.sub.name, "in", partitions=4, tasks=3)

        def heed(self) -> None:
            heeded.add(self.task)

    answers = threading.Event()
    monkeypatch.setattr(slots, "LOOK_EVERY_S", 0.0)
    with pytest.raises(NewPartitionsError):
        slot_of(Asking, monkeypatch).run()


def test_at_the_ends_of_their_partitions_tasks_say_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class AtItsEnd(Task):
        def begin(self, now_ms: int, last: bool, bound: Bound) -> bool:
            self.reached = Reached(None, False, False)
            passes.append(self.task)
            # Tasks are opened in threads: the last one comes later.
            link.stopped = min(passes.count(task) for task in range(3)) > 20
            return False

    passes: list[int] = []
    slot = slot_of(AtItsEnd, monkeypatch)
    link: Any = slot._link
    told: list[Any] = []
    monkeypatch.setattr(link, "tell", told.append)
    slot.run()
    said = sorted(one for message in told for one in message.get(REACHED, ()))
    assert said == [(task, None, False, False) for task in range(3)]


def test_open_tasks_process_while_another_one_restores(monkeypatch: pytest.MonkeyPatch) -> None:
    restored, begun = threading.Event(), []

    class Restoring(Task):
        def __enter__(self) -> None:
            if self.task == 1:
                assert restored.wait(10.0), "no task has processed meanwhile"

        def begin(self, now_ms: int, last: bool, bound: Bound) -> bool:
            begun.append(self.task)
            if {0, 2} <= set(begun):
                restored.set()
            if self.task == 1:
                slot._link.stopped = True
            return False

    slot = slot_of(Restoring, monkeypatch)
    slot.run()
    assert begun.index(1) > max(begun.index(0), begun.index(2))
    assert [task.task for task in slot._tasks] == [0, 1, 2]


def test_a_stop_does_not_wait_for_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    closed: list[int] = []
    over: list[int] = []

    class Restoring(Task):
        def __enter__(self) -> None:
            if self.task != 1:
                opened.append(self.task)
            else:
                slot._link.stopped = True
                assert slot._over.wait(10.0), "the slot goes on"
                over.append(self.task)
                raise RestoreEndedError

        def __exit__(self, kind: object, error: object, trace: object) -> None:
            closed.append(self.task)

    slot = slot_of(Restoring, monkeypatch)
    slot.run()
    assert over == [1]
    assert sorted(closed) == sorted(opened)


def test_a_task_that_cannot_be_opened_ends_the_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Failing(Task):
        def __enter__(self) -> None:
            if self.task == 1:
                raise StateCorruptedError("db", "damaged")

        def __exit__(self, kind: object, error: object, trace: object) -> None:
            closed.append((self.task, error))

    with pytest.raises(StateCorruptedError):
        slot_of(Failing, monkeypatch).run()
    assert set(closed) <= {(0, None), (2, None)}


def test_a_slot_waits_no_longer_than_until_somebody_wakes_it() -> None:
    with Wake() as wake:
        for _ in range(100_000):
            wake.set()
        began = time.monotonic()
        for _ in range(100):
            wake.wait(0.0)
        waiter = threading.Timer(0.05, wake.set)
        waiter.start()
        wake.wait(30.0)
        assert 0.04 < time.monotonic() - began < 15.0
        waiter.join()


@pytest.mark.parametrize("cut_off", [False, True])
def test_a_restore_is_told_even_if_the_lease_ends_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch, cut_off: bool
) -> None:
    """As when an executor comes or goes: the next lease finds the state there, and would say that nothing was restored."""
    entered = threading.Barrier(3)
    done = RestoreReport(0, (StoreReport("totals", Action.TAIL, "", 5),), "the replica in var")

    class Restored(Task):
        def __init__(self, job: Any, access: Any, *_: object, **__: object) -> None:
            super().__init__(job, access)
            self.access = SimpleNamespace(stores=SimpleNamespace(report=done))

        def __enter__(self) -> None:
            entered.wait(10.0)
            link.stopped = True
            if cut_off:
                ended = RestoreEndedError()
                ended.done = done
                time.sleep(0.2)
                raise ended

        def begin(self, now_ms: int, last: bool, bound: Bound) -> bool:
            return False

    slot = slot_of(Restored, monkeypatch)
    link: Any = slot._link
    told: list[Any] = []
    monkeypatch.setattr(link, "tell", told.append)
    slot.run()
    opened = [message for message in told if "opened" in message]
    assert sorted(message["task"] for message in opened) == [0, 1, 2]
    how = {message["restored"].how for message in opened}
    assert how == {"taken over from the replica in var, then 5 changelog records"}
    assert not any("report" in message for message in told)


def test_what_the_driver_says_ends_a_wait_and_is_left_for_who_reads_it() -> None:
    hears, speaks = os.pipe()
    with Wake() as wake:
        wake.listen_to(hears)
        began = time.monotonic()
        os.write(speaks, b"stop")
        for _ in range(2):
            wake.wait(30.0)
        assert time.monotonic() - began < 15.0
        assert os.read(hears, 10) == b"stop"


def test_an_idle_slot_looks_once_in_several_intervals_and_hears_its_driver_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rests = list[float]()

    class Idle(Task):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.rests_s = 60.0

    def wait(self: Wake, seconds: float) -> None:
        rests.append(seconds)
        os.write(slot._link.said, b"stop")  # type: ignore[attr-defined]
        real_wait(self, 30.0)
        slot._link.stopped = len(rests) > 20

    slot, real_wait, began = slot_of(Idle, monkeypatch), Wake.wait, time.monotonic()
    monkeypatch.setattr(Wake, "wait", wait)
    slot.run()
    assert max(rests) == pytest.approx(slots.IDLE_INTERVALS * slot._job.interval_s)
    assert time.monotonic() - began < 30.0


def test_a_step_of_all_tasks_is_one_commit_and_a_long_one_is_committed_without_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, done = 0.0, []

    class Steps(Task):
        steps = 0

        def begin(self, now_ms: int, last: bool, bound: Bound) -> bool:
            nonlocal now
            if len(slot._tasks) < 3:
                return False
            self.steps += 1
            if self.steps > 2:
                return False
            # The first step of task 1 is a long one.
            now += 1.0 if (self.task, self.steps) == (1, 1) else 0.0
            done.append(f"begin {self.task}")
            return True

        def commit(self) -> None:
            done.append(f"commit {self.task}")

        def apply(self) -> None:
            done.append(f"apply {self.task}")
            link.stopped = len(done) == 15

    slot = slot_of(Steps, monkeypatch)
    link: Any = slot._link
    slot.run(lambda: now)
    first = "begin 0, begin 1, commit 0, apply 0, apply 1"
    second = "begin 2, begin 0, begin 1, commit 2, apply 2, apply 0, apply 1"
    assert ", ".join(done) == f"{first}, {second}, begin 2, commit 2, apply 2"


def test_a_step_that_becomes_due_while_stores_are_brought_to_the_last_one_begins_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records that came during the commit have woken the slot then, and wake it no more."""
    now, rests = 0.0, list[float]()

    class OneStep(Task):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.rests_s, self.steps = 60.0, 0

        def begin(self, now_ms: int, last: bool, bound: Bound) -> bool:
            # A task that is opened later, in its thread, has its first turn at once, and so have all.
            self.steps += len(slot._tasks) == 3
            return (self.task, self.steps) == (0, 1)

        def commit(self) -> None:
            """It takes no time."""

        def apply(self) -> None:
            nonlocal now
            now += 1.05 * slot._job.interval_s
            rests.clear()

    def wait(self: Wake, seconds: float) -> None:
        rests.append(seconds)
        slot._link.stopped = now > 0 and len(rests) == 2
        real_wait(self, min(seconds, 30.0))

    slot, real_wait = slot_of(OneStep, monkeypatch), Wake.wait
    monkeypatch.setattr(Wake, "wait", wait)
    slot.run(lambda: now)
    assert rests == [0.0, slots.IDLE_INTERVALS * slot._job.interval_s]


def test_columns_of_finished_steps_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The objects of a step refer to each other, and those of steps on columns are too few for the collector to come by itself."""

    class Circle:
        def __init__(self) -> None:
            self.itself = self

    kept: list[weakref.ref[Circle]] = []
    alive: list[int] = []

    class OnColumns(Task):
        def begin(self, now_ms: int, last: bool, bound: Bound) -> bool:
            if slot._link.stopped:
                return False
            alive.append(sum(one() is not None for one in kept))
            kept.append(weakref.ref(Circle()))
            self.passed_bytes += slots.COLLECT_EVERY_BYTES // 4
            return True

        def commit(self) -> None:
            """It takes no time."""

        def apply(self) -> None:
            slot._link.stopped = len(kept) >= 100  # type: ignore[misc]

    slot = slot_of(OnColumns, monkeypatch)
    gc.disable()
    try:
        slot.run()
    finally:
        gc.enable()
    assert max(alive) < 10
