"""A slot: runs several live tasks in turn, in one process, until its lease ends or the driver asks it to stop."""

from __future__ import annotations

import gc
import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from types import TracebackType
from typing import Any

from state.commit.decide import slot_transactional_id
from state.commit.live import LiveKafka
from state.commit.protocols import KafkaAccess
from state.commit.shared import SharedProducer
from state.kafka.config import RESEND_S
from state.restore.restorer import RestoreEndedError, RestoreReport
from streams.engine.live.alignment import Reached
from streams.engine.live.link import REACHED, Link
from streams.engine.live.task import LiveTask, Tally
from streams.engine.live.watch import Watch
from streams.engine.source.offsets import SourceOffsets
from streams.engine.step.job import QueryJob
from streams.engine.step.step import figures_of, log_failed_attempt, restored, step_events, task_step
from streams.logs.json_lines import set_context
from streams.logs.recent import SentLines, handling
from streams.metrics.application import StepFigures
from streams.metrics.memory import host_name
from streams.metrics.reports import DriverAddress

REPORT_EVERY_S = 1.0
FIRST_WORD_S = 30.0
"""How long a slot waits for the driver's first message, s. The driver sends it at once."""
MOST_OPENING = 8
"""How many tasks of a slot are opened at the same time."""
LONGEST_S = RESEND_S / 2
"""The longest time, s, until records that a task has processed are committed while other tasks of the slot wait for the next
transaction. Transactions are then mostly short enough to keep their producer."""
COMMITS = 2
"""Processing for a transaction may take this many times as long as the last commit, but no longer than `LONGEST_S`. Where brokers
are slow, tasks would otherwise wait for commits most of the time."""
IDLE_INTERVALS = 10
"""How many intervals a slot rests while nothing arrives. A record or a message of the driver ends the rest."""
COLLECT_EVERY_BYTES = 32 * 1024 * 1024
"""After this many bytes of records, the collector looks for reference cycles among young objects. The objects of each step refer to
each other and to its columns. The collector counts objects and not bytes, and a step on columns has few objects: without this, the
columns of hundreds of steps would stay in memory."""
LOOK_EVERY_S = 5.0
"""How often a task asks for new partitions and for the ends of its own. The ends show whether a client still receives records."""


@dataclass(frozen=True)
class LiveSub:
    """A sub-topology in live execution.

    Attributes:
        query_id: The id of its checkpoint, which is in its markers.
        start: Where a task begins that has never committed a live step.
    """

    job: QueryJob
    query_id: str
    start: SourceOffsets


@dataclass(frozen=True)
class LiveJob:
    """All live sub-topologies of an application.

    Attributes:
        slots: How many processes share their tasks. In the job that Spark plans, the most there may be.
        interval_s: Time between two commits of a slot, s.
        lease_s: How long a slot runs before Spark starts it again, s.
        run_id: The id of the application's run.
        ends: Whether the run ends once all records are read that existed at its start. Slots then report what they have read.
    """

    subs: tuple[LiveSub, ...]
    slots: int
    interval_s: float
    lease_s: float
    run_id: str
    driver: DriverAddress
    ends: bool = False

    def tasks_of(self, slot: int) -> list[tuple[LiveSub, int]]:
        """The tasks of a slot: the same numbers in all sub-topologies, as a task mostly writes to that number of the next one."""
        return [(sub, task) for sub in self.subs for task in range(slot, sub.job.tasks, self.slots)]


class Wake:
    """Ends a wait: readers write to its file when records arrive, and threads call `set`. It is closed at the end of its block."""

    def __init__(self) -> None:
        self._reading, self.file = os.pipe()
        for end in (self._reading, self.file):
            os.set_blocking(end, False)
        self._poll = select.poll()
        self._poll.register(self._reading, select.POLLIN)

    def __enter__(self) -> Wake:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._reading)
        os.close(self.file)

    def set(self, _: object = None) -> None:
        # If the pipe is full, a wait ends anyway.
        with suppress(BlockingIOError):
            os.write(self.file, b"t")

    def listen_to(self, file: int) -> None:
        """Makes data in an open file end a wait as well. The data is not read here."""
        self._poll.register(file, select.POLLIN)

    def wait(self, seconds: float) -> None:
        if any(file == self._reading for file, _ in self._poll.poll(seconds * 1000)):
            os.read(self._reading, 4096)


class Slot:
    """The tasks of one slot.

    Args:
        attempt: The number of failed attempts of Spark's task before this one.
    """

    def __init__(self, job: LiveJob, slot: int, attempt: int, link: Link) -> None:
        self._job = job
        self._slot = slot
        self._attempt = attempt
        self._link = link
        self._tasks: list[LiveTask] = []
        self._order: list[LiveTask] = []
        self._opening: dict[LiveTask, Future[object]] = {}
        self._over = threading.Event()
        self._failed: LiveTask | None = None
        self._watch = Watch(self._report_event)
        self._first = 0
        self._committed_s = 0.0
        self._collected_at = 0
        self._stepped: list[LiveTask] = []
        self._committing: Future[None] | None = None
        self._asking: dict[LiveTask, Future[None]] = {}
        self._told: dict[LiveTask, tuple[Reached, float]] = {}
        self._told_read: dict[LiveTask, object] = {}

    def run(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Runs the tasks until the lease ends.

        Raises:
            StreamsError: A task has failed. The attempt is over, and Spark starts another.
        """
        with ExitStack() as opened:
            # It is closed last, because readers write to it until they are closed.
            self._wake = opened.enter_context(Wake())
            self._wake.listen_to(self._link.file)
            opened.enter_context(self._watch)
            self._shared = opened.enter_context(self._producer())
            self._left = opened.enter_context(ExitStack())
            numbers = self._job.tasks_of(self._slot)
            # No task waits for a thread that asks the brokers, and neither does the commit.
            pool = opened.enter_context(self._pool(1 + len(numbers)))
            self._open(numbers, opened)
            self._reported = self._looked = clock()
            until = self._looked + self._job.lease_s
            due = 0.0
            while self._may_continue() and (now := clock()) < until:
                if self._opening:
                    # The lease begins once all of its tasks work, because a restore may take longer than a lease.
                    until = now + self._job.lease_s
                    if self._take_opened():
                        due = min(due, now)
                self._apply_committed()
                if due <= now and self._committing is None:
                    tasks = self._tasks[self._first :] + self._tasks[: self._first]
                    self._first = (self._first + self._step(tasks, pool, clock)) % max(1, len(tasks))
                    if self._committing is not None:
                        held = any(task.is_held for task in self._stepped)
                        due = now if held else max(due + self._job.interval_s, now)
                self._tell_progress(now)
                self._look(pool, now)
                if now - self._reported >= REPORT_EVERY_S:
                    self._report(now)
                self._rest(due, now, clock)
            self._end(pool, clock)
            self._report(clock())

    def _open(self, numbers: Sequence[tuple[LiveSub, int]], opened: ExitStack) -> None:
        """Starts opening the tasks in threads, so that a task without state need not wait for another task's restore."""
        opened.callback(self._close_untaken)
        pool = opened.enter_context(self._pool(max(1, min(MOST_OPENING, len(numbers)))))
        # At the end this is called first, because nothing waits for a restore: the next lease continues it.
        opened.callback(self._end_opening)
        for sub, number in numbers:
            with self._named(sub.job, number):
                task = self._task(sub, number)
                self._opening[task] = pool.submit(task.__enter__)
                self._opening[task].add_done_callback(self._wake.set)
        self._order = list(self._opening)

    def _take_opened(self) -> list[LiveTask]:
        """Adds the tasks that are now open to the slot's tasks, and returns them."""
        found = [task for task, opening in self._opening.items() if opening.done()]
        for task in found:
            with self._named(task.job, task.task):
                self._opening.pop(task).result()
            self._left.push(partial(self._leave, task))
            self._tasks.append(task)
            self._report_open(task, task.access.stores.report)
        self._tasks.sort(key=self._order.index)
        return found

    def _end_opening(self) -> None:
        self._over.set()
        for opening in self._opening.values():
            opening.cancel()

    def _close_untaken(self) -> None:
        for task, opening in self._opening.items():
            if not opening.done() or opening.cancelled():
                continue
            error = opening.exception()
            if error is None:
                self._report_open(task, task.access.stores.report)
                task.__exit__(None, None, None)
            elif isinstance(error, RestoreEndedError):
                self._report_open(task, error.done)

    def _rest(self, due: float, looked: float, clock: Callable[[], float]) -> None:
        """Waits until there is something to do: the next step is due, records have arrived, or the last step is committed.

        Args:
            due: When the next step is due.
            looked: When the slot last checked whether it was due. It may have become due since, and a wake-up that came during the
                wait for the commit is not repeated.
            clock: The time, s.
        """
        now, seconds = clock(), self._job.interval_s
        if self._committing is None and due > looked:
            seconds = min(seconds, max(due - now, 0.0))
        elif self._committing is None:
            # The last step's report must not be late.
            seconds = min(seconds * IDLE_INTERVALS, max(self._reported + REPORT_EVERY_S - now, 0.0))
            seconds = min(seconds, *(task.rests_s for task in self._tasks if not self._is_paused(task)), seconds)
        self._wake.wait(seconds)

    def _end(self, pool: Executor, clock: Callable[[], float]) -> None:
        """Commits the step under way, and then the positions that are not yet committed to the consumer group."""
        self._apply_all()
        turns = self._tasks
        while turns:
            turns = turns[self._step(turns, pool, clock, last=True) :]
            self._apply_all()

    def _producer(self) -> SharedProducer:
        """Makes the one producer that all tasks share."""
        tasks = self._job.tasks_of(self._slot)
        app = tasks[0][0].job.settings.application_id
        others = sorted({number for _, number in tasks} - {self._slot})
        running = [number for number in range(self._job.slots) if number != self._slot]
        return SharedProducer(
            self._kafka([sub.job for sub, _ in tasks]),
            slot_transactional_id(app, self._slot),
            [slot_transactional_id(app, number) for number in others],
            [slot_transactional_id(app, number) for number in running],
        )

    def _kafka(self, jobs: Sequence[QueryJob]) -> KafkaAccess:
        outputs = sorted({topic for job in jobs for topic in job.outputs})
        return LiveKafka(jobs[0].client, jobs[0].transaction_timeout_ms, bulk=jobs[0].bulk_io, outputs=outputs)

    def _task(self, sub: LiveSub, number: int) -> LiveTask:
        access = task_step(
            sub.job, sub.job.identity(number, sub.query_id), is_over=self._over.is_set, tell=self._link.tell
        )
        tasks = self._job.tasks_of(self._slot)
        shared = len(tasks), sum(len(one.job.sub.topics) for one, _ in tasks)
        return LiveTask(
            sub.job,
            access,
            sub.start,
            self._job.run_id,
            access.kafka.topics,
            wakes=self._wake.file,
            shared=shared,
            producer=self._shared,
        )

    def _pool(self, threads: int) -> Executor:
        return ThreadPoolExecutor(threads, thread_name_prefix="commit")

    def _now_ms(self) -> int:
        return self._link.now_ms()

    def _leave(
        self, task: LiveTask, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes a task. Only the one that failed gets the error: its stores act on it, and delete a damaged database."""
        own = task is self._failed
        task.__exit__(*(kind, error, trace) if own else (None, None, None))

    @contextmanager
    def _named(self, job: QueryJob, number: int, task: LiveTask | None = None) -> Iterator[None]:
        """Names the sub-topology and the task in log lines, and logs a failure: Spark shows only the last attempt."""
        set_context(sub_topology=job.sub.name, task=number)
        try:
            yield
        except Exception as error:
            self._failed = task
            shared = self._shared.transactional_id
            log_failed_attempt(job.identity(number, ""), self._attempt, -1, error, shared)
            raise

    def _may_continue(self) -> bool:
        # Checked right before the next steps: a process that stood still may have lost its driver.
        self._link.listen()
        return not self._link.stopped

    def _is_paused(self, task: LiveTask) -> bool:
        return task.job.sub.name in self._link.paused

    def _step(self, tasks: Sequence[LiveTask], pool: Executor, clock: Callable[[], float], last: bool = False) -> int:
        """Begins a step of each task that has anything to do, and commits them together. Returns how many tasks had their turn.

        If steps take long, only some tasks have their turn. Their records are committed, and the next call begins with the others.
        The time counts from the end of the first step. Until then no transaction is open, and a producer may be replaced.
        """
        long_s = min(max(self._job.interval_s, COMMITS * self._committed_s), LONGEST_S)
        had, until = 0, inf
        for task in tasks:
            had += 1
            if self._begin(task, last):
                now = clock()
                until = min(until, now + long_s)
                if now > until:
                    break
        if self._stepped:
            self._committing = pool.submit(self._commit, clock)
            self._committing.add_done_callback(self._wake.set)
        return had

    def _begin(self, task: LiveTask, last: bool) -> bool:
        """Begins a step if the task has anything to do, and returns whether it had."""
        if self._is_paused(task):
            return False
        # The previous step may have taken so long that the driver is gone. Then the other execution may have taken over.
        self._link.listen()
        if self._link.lost:
            return False
        with self._named(task.job, task.task, task), self._watch.step(task.job.sub.name, task.task):
            begun = task.begin(self._now_ms(), last, self._link.bound(task.job.sub.name))
        if begun:
            self._stepped.append(task)
        return begun

    def _commit(self, clock: Callable[[], float]) -> None:
        began = clock()
        self._stepped[0].commit()
        self._committed_s = clock() - began

    def _apply_committed(self) -> None:
        if self._committing is not None and self._committing.done():
            self._apply_all()

    def _apply_all(self) -> None:
        """Waits for the commit, and applies it to the stores."""
        if self._committing is None:
            return
        first = self._stepped[0]
        with self._named(first.job, first.task):
            self._committing.result()
        self._committing, stepped = None, self._stepped
        self._stepped = []
        for task in stepped:
            with self._named(task.job, task.task, task):
                task.apply()
        self._collect()

    def _collect(self) -> None:
        """Frees the columns of steps that are done, once there may be many of them."""
        passed = sum(task.passed_bytes for task in self._tasks)
        if passed - self._collected_at >= COLLECT_EVERY_BYTES:
            self._collected_at = passed
            gc.collect(1)

    def _look(self, pool: Executor, now: float) -> None:
        """Lets the tasks ask the brokers about their topics, in threads, and then act on the answers."""
        for task in [task for task, asking in self._asking.items() if asking.done()]:
            with self._named(task.job, task.task, task):
                self._asking.pop(task).result()
                task.heed()
        if now - self._looked >= LOOK_EVERY_S and not self._asking:
            self._looked = now
            self._asking = {task: pool.submit(task.ask) for task in self._tasks}

    def _report(self, now: float) -> None:
        """Reports to the driver what the tasks have done since the last report."""
        self._reported = now
        for task in self._tasks:
            if task.tally.steps and self._link.tell({"sub": task.job.sub.name, "report": report_of(task, task.tally)}):
                task.tally = Tally()
            if task.ends:
                positions = [(*place, at, task.ends.get(place, at)) for place, at in task.positions.items()]
                self._link.tell({"sub": task.job.sub.name, "positions": positions})

    def _tell_progress(self, now: float) -> None:
        """Reports how far tasks have come in a backlog and, if the run should end, what they have read."""
        reached: dict[str, list[tuple[Any, ...]]] = {}
        for task in self._tasks:
            if task.reached is not None and self._is_news(task, task.reached, now):
                self._told[task] = task.reached, now
                reached.setdefault(task.job.sub.name, []).append((task.task, *task.reached))
            if self._job.ends and task.read and task.read != self._told_read.get(task):
                read = [(*place, at) for place, at in task.read.items()]
                if self._link.tell({"sub": task.job.sub.name, "read": read}):
                    self._told_read[task] = task.read
        for sub, found in reached.items():
            self._link.tell({"sub": sub, REACHED: found})

    def _is_news(self, task: LiveTask, reached: Reached, now: float) -> bool:
        """Whether to report it: the driver does not know it, or there is a backlog and the last report may be lost."""
        told, told_s = self._told.get(task, (None, now))
        return reached != told or ((reached.asked or reached.is_behind) and now - told_s >= REPORT_EVERY_S)

    def _report_event(self, sub: str, task: int, event: Mapping[str, Any]) -> None:
        self._link.tell({"sub": sub, "task": task, "events": [event]})

    def _report_open(self, task: LiveTask, done: RestoreReport | None) -> None:
        """Reports what a task has restored. Later reports are about steps, and the lease may end before the first step."""
        opened = {"sub": task.job.sub.name, "task": task.task, "events": step_events(self._attempt, -1, done)}
        opened |= {"attempt": self._attempt, "opened": host_name(), "restored": restored(done)}
        self._link.tell(opened)


def report_of(task: LiveTask, tally: Tally) -> StepFigures:
    """Makes the report of what a task has done since its last report."""
    marker = task.session.last
    assert marker is not None, "steps were committed"
    return figures_of(
        marker,
        task.access.stores,
        tally.counts,
        tally.counters,
        {name: spent / tally.steps for name, spent in tally.seconds.items()},
        tally.event_times,
        task=task.task,
        batch_id=marker.version,
        total_s=round(tally.total_s / tally.steps, 6),
        cpu_s=round(tally.cpu_s, 6),
        live=True,
        steps=tally.steps,
    )


def run_slot(job: LiveJob, slot: int, attempt: int, lease: int) -> None:
    """Runs a slot until its lease ends.

    Raises:
        StreamsError: A task has failed.
    """
    link = Link.to(job.driver, lease, slot)
    try:
        # The driver's first message has the pauses and the time. The lease may have ended while the slot waited for a core.
        if link.listen(FIRST_WORD_S) and not link.stopped:
            with handling(SentLines(link.tell, host_name())):
                Slot(job, slot, attempt, link).run()
    finally:
        link.close()


def most_slots(subs: Sequence[LiveSub]) -> int:
    """The largest useful number of slots; with more, some would have no task."""
    return max((sub.job.tasks for sub in subs), default=1)


def slots_for(subs: Sequence[LiveSub], processes: int) -> int:
    """The number of slots that share the tasks: no more than there are processes or tasks."""
    return max(1, min(processes, most_slots(subs)))
