"""One sub-topology under the test driver, which does in memory the work of Spark around the steps of production.

A micro-batch takes all available records. As in Spark's offset log, the end offsets are recorded before any task runs, so a failed
micro-batch is repeated over the same records; the copies of the markers are recorded when the micro-batch is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from state.changelog import changelog_topic, commits_topic
from state.commit.crash_points import POINTS, CrashPoints
from state.commit.decide import TaskIdentity
from state.commit.marker import CommitMarker, MarkerCopy, read_last_marker
from state.commit.protocols import Send
from state.commit.step import CommitStep, StepInput
from state.kafka.placement import Placement
from state.restore.task_stores import TaskStateManager
from state.stores.task_store import TaskStore
from streams.application.markers import placed_marker
from streams.application.rescale.plan import UsersChoices
from streams.application.rescale.rescale import RescaleContext, Rescaler, SubRescale
from streams.checkpoint.compare import Markers, SubIdentity
from streams.engine.graph.outputs import OutputTopics
from streams.engine.graph.settings import TaskSettings
from streams.engine.graph.typed_stores import typed_stores
from streams.engine.reader.pipeline import ReaderPipeline
from streams.engine.source.offsets import FirstBatch, OffsetRange, SourceOffsets, TopicOffsets, batch_digest
from streams.engine.source.partition_times import PartitionTimes, asks_for_partition_time
from streams.engine.source.topics import SourceSpec, due_before_ms
from streams.engine.step.job import QueryJob
from streams.engine.step.read import PlannedCall, PlannedRange, TaskRow, call_every_task, read_range
from streams.engine.step.step import BatchContext, run_step
from streams.errors import RescaleError
from streams.testing.memory import MemoryDisks, MemoryGlobalTables
from streams.testing.simulation import Crash, SimulatedKafka
from streams.topology.plan import SubTopology


class ProcessDied(Crash):
    """A task's process has ended, as requested by the test."""

    def __init__(self, wipe_state: bool) -> None:
        super().__init__("crashed")
        self.wipe_state = wipe_state


@dataclass(frozen=True, slots=True)
class _Armed:
    point: str
    task: int | None
    wipe_state: bool


@dataclass
class RequestedCrashes:
    """The requested crashes, which happen one after the other.

    Attributes:
        happened: The number of crashes so far.
    """

    happened: int = 0
    _waiting: list[_Armed] = field(default_factory=list)

    def arm(self, point: str, task: int | None, wipe_state: bool) -> None:
        """Requests a crash when a task reaches a point.

        Raises:
            ValueError: The point is unknown.
        """
        if point not in POINTS:
            raise ValueError(f"{point!r} is not a crash point; there are {', '.join(POINTS)}")
        self._waiting.append(_Armed(point, task, wipe_state))

    def armed(self, point: str, task: int, version: int) -> bool:
        """Whether `reach` would crash here."""
        return bool(self._waiting) and self._waiting[0].point == point and self._waiting[0].task in (None, task)

    def reach(self, point: str, task: int, version: int) -> None:
        """Crashes, once, if the next crash was requested for this point."""
        if self.armed(point, task, version):
            self.happened += 1
            raise ProcessDied(self._waiting.pop(0).wipe_state)


QUERY_ID = "test"


@dataclass(frozen=True, slots=True)
class _OnlyWrites:
    """The effects of a step that only writes to a store, without changing the state of operators."""

    operator_state: Mapping[str, Any]
    stream_time: int
    sends: tuple[Send, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    records_in: int = 0


class DriverQuery:
    """Runs the micro-batches of one sub-topology.

    Args:
        sub: The sub-topology.
        tasks: The number of tasks.
        settings: The application's settings.
        kafka: The topics.
        disks: The stores of tasks.
        global_tables: The application's global tables.
        faults: The requested crashes of tasks.
        count: Receives the counters of each step.
        output_topics: The limits of output topics.

    Attributes:
        commits_topic: The topic of the sub-topology's markers.
    """

    def __init__(
        self,
        sub: SubTopology,
        tasks: int,
        settings: TaskSettings,
        kafka: SimulatedKafka,
        disks: MemoryDisks,
        global_tables: MemoryGlobalTables,
        faults: RequestedCrashes,
        count: Callable[[Mapping[str, int]], None],
        output_topics: OutputTopics,
    ) -> None:
        self.tasks = tasks
        self._query_id = QUERY_ID
        self._settings = settings
        self._kafka = kafka
        self._disks = disks
        self._faults = faults
        self._count = count
        self._output_topics = output_topics
        self._done = SourceOffsets({})
        self._logged: SourceOffsets | None = None
        self._batch_id = 0
        self._copies: dict[int, MarkerCopy] = {}
        self._reading: dict[int, TaskStore] = {}
        self._open_for_reading = ExitStack()
        self._starts = 1
        self.replace(sub, global_tables)

    def replace(self, sub: SubTopology, global_tables: MemoryGlobalTables) -> None:
        """Uses another version of the sub-topology from the next restart on."""
        self.sub = sub
        self._global_tables = global_tables
        # The resources that a process opens for operators in heads are shared by all heads, and closed here.
        self._head = ReaderPipeline(sub, self.tasks, self._settings)
        app = self._settings.application_id
        source = SourceSpec(dict.fromkeys(sub.topics, "earliest"), delays=sub.delays)
        self._job = QueryJob(sub, self.tasks, self._settings, source, {}, Path(), 60_000, 1 << 26, False, self._faults)
        self.commits_topic = commits_topic(app, sub.name)
        for topic in (self.commits_topic, *(changelog_topic(app, store) for store in sub.stores)):
            self._kafka.create_topic(topic, self.tasks)
        asked = any(asks_for_partition_time(one) for one in sub.sources)
        self._times = PartitionTimes(self._kafka, self.commits_topic, lambda partitions: None) if asked else None

    def pending(self, now_ms: int) -> bool:
        """Whether there are records that no step has processed, not counting records that wait for a retry."""
        return any(self._end(place, now_ms) > self._done.of(*place) for place in self._places())

    def step(self, now_ms: int, every_task: bool = False) -> None:
        """Processes all available records as one micro-batch, or repeats the micro-batch that failed.

        Args:
            now_ms: The micro-batch's wall clock.
            every_task: Whether to run tasks without records, too (a wall-clock step).
        """
        if self._logged is None:
            self._logged = SourceOffsets(self._ends(now_ms), tick=self._done.tick + every_task, now_ms=now_ms)
        self._stop_reading()
        died = False
        while True:
            try:
                copies = self._run(self._logged, now_ms)
                break
            except ProcessDied as death:
                self._lose_process(death.wipe_state)
                died = True
            except BaseException:
                self._head.close()
                raise
        if died:
            self._restore()
        self._copies.update(copies)
        self._done, self._logged = self._logged, None
        self._batch_id += 1

    def restart(self, wipe_state: bool) -> None:
        """Stops, optionally loses the local state, and starts again from changelogs and markers."""
        self._lose_process(wipe_state)
        self._restore()
        self._starts += 1

    @property
    def at_rest(self) -> SourceOffsets | None:
        """The position after the last micro-batch; None while a failed one waits to be repeated."""
        return self._done if self._logged is None else None

    def rescaled(self, tasks: int) -> None:
        """Continues with another number of tasks, after their topics have replaced the topics of the tasks so far."""
        self._lose_process(wipe_state=False)
        self.tasks = tasks
        self._copies = {}
        last = read_last_marker(self._kafka, (self.commits_topic, 0))
        self._query_id = last.marker.query_id if last else QUERY_ID
        self.replace(self.sub, self._global_tables)
        self._restore()
        self._starts += 1

    def close(self) -> None:
        """Closes the stores and the resources of operators in the head."""
        self._stop_reading()
        self._head.close()

    @property
    def markers(self) -> list[CommitMarker]:
        """The last marker of each task that has committed."""
        return [copy.marker for copy in self._copies.values()]

    def typed_store(self, name: str, task: int) -> Any:
        """A store of a task as operators see it, after the last micro-batch."""
        if task not in self._reading:
            self._reading[task] = self._open_for_reading.enter_context(self._stores(task, 0).open())
        return typed_stores(self.sub, self._reading[task], self._settings.application_id)[name]

    def write_store(self, name: str, task: int, write: Callable[[Any], None], now_ms: int) -> None:
        """Writes to a store of a task in a separate step, so that the changelog has the write, too.

        Raises:
            RuntimeError: A failed micro-batch waits to be repeated.
        """
        if self._logged is not None:
            raise RuntimeError(f"store {name!r} cannot be written while a failed micro-batch waits to be repeated")
        self._stop_reading()

        def process(store: TaskStore, last: CommitMarker | None) -> _OnlyWrites:
            write(typed_stores(self.sub, store, self._settings.application_id)[name])
            return _OnlyWrites(*((last.operator_state, last.stream_time) if last else ({}, -1)))

        given = StepInput(self._batch_id, batch_digest(self._done, self._done), {}, {}, {}, now_ms)
        step = CommitStep(self._identity(task), self._kafka, self._stores(task, now_ms), CrashPoints())
        self._copies[task] = step.run(given, self._copies.get(task), process).copy
        self._batch_id += 1

    def _stop_reading(self) -> None:
        self._open_for_reading.close()
        self._reading.clear()

    def _places(self) -> Iterator[tuple[str, int]]:
        for topic in self.sub.topics:
            for partition in range(self._kafka.partition_count(topic)):
                yield topic, partition

    def _ends(self, now_ms: int) -> dict[str, TopicOffsets]:
        ends: dict[str, TopicOffsets] = {}
        for name, info in self._kafka.describe_topics(self.sub.topics).items():
            offsets = tuple(self._end((name, partition), now_ms) for partition in range(info.partitions))
            ends[name] = TopicOffsets(info.topic_id, offsets)
        return ends

    def _end(self, place: tuple[str, int], now_ms: int) -> int:
        """The end of a partition. In a retry topic, it is before the first record that is not due, as for `BatchPlanner`."""
        delay = self.sub.delays.get(place[0])
        if delay is None:
            return self._kafka.log(*place).stable_end
        due = self._kafka.offsets_for_times({place: due_before_ms(now_ms, delay)})[place]
        return max(due, self._done.of(*place))

    def _run(self, end: SourceOffsets, now_ms: int) -> dict[int, MarkerCopy]:
        """Runs one attempt of the micro-batch: the head over the records, then a step of each task that has input."""
        rows: dict[int, list[TaskRow]] = {}
        for row in self._rows(end):
            rows.setdefault(row.task, []).append(row)
        batch = BatchContext(self._batch_id, now_ms, str(self._starts))
        copies = {}
        for task in sorted(rows):
            step = CommitStep(self._identity(task), self._kafka, self._stores(task, now_ms), self._faults)
            copy, topics = self._copies.get(task), self._output_topics
            result, given = run_step(self._job, step, batch, rows[task], copy, self._tables, topics)
            version = result.copy.marker.version
            self._faults.reach("before_report", task, version)
            copies[task] = result.copy
            self._faults.reach("report_given", task, version)
            self._count(result.counters)
            self._count(given.counters)
        return copies

    def _rows(self, end: SourceOffsets) -> Iterator[TaskRow]:
        digest = batch_digest(self._done, end)
        places = [place for place in self._places() if end.of(*place) > self._done.of(*place)]
        ranges = [OffsetRange(*place, self._done.of(*place), end.of(*place)) for place in places]
        times = self._times.before(ranges) if self._times else {}
        for offsets in ranges:
            place = offsets.topic, offsets.partition
            columns = self._kafka.columns(*place, offsets.start, offsets.end)
            topic_id = end.topics[offsets.topic].topic_id
            planned = PlannedRange(digest, topic_id, offsets, times.get(place), now_ms=end.now_ms)
            if columns is not None:
                yield from read_range(self._job, planned, [columns])
        if end.tick != self._done.tick:
            yield from call_every_task(self._job, PlannedCall(digest))

    def _tables(self, ends: Mapping[str, Any]) -> Mapping[str, Any]:
        """The global tables, which the driver has updated."""
        return self._global_tables.stores

    def _identity(self, task: int) -> TaskIdentity:
        return self._job.identity(task, self._query_id)

    def _stores(self, task: int, now_ms: int) -> TaskStateManager:
        specs = [node.spec for node in self.sub.stores.values()]
        return self._disks.stores(self._kafka, self._identity(task), specs, now_ms)

    def _lose_process(self, wipe_state: bool) -> None:
        """Ends the process and discards its memory."""
        self._stop_reading()
        self._head.close()
        self._disks.crash(self.sub.name, wipe_state)

    def _restore(self) -> None:
        """Restores the stores of all tasks to the last commits, including tasks without input."""
        for task in range(self.tasks):
            last = read_last_marker(self._kafka, (self.commits_topic, task))
            if last is not None:
                stores = self._stores(task, 0)
                with stores.open() as store:
                    stores.restore_to(store, last.marker)


class NoFiles:
    """A checkpoint folder without checkpoints, because the test driver keeps its own."""

    def names(self, folder: str) -> list[str]:
        """Returns no names."""
        return []

    def read(self, path: str) -> bytes | None:
        """Returns None, since there are no files."""
        return None

    def write(self, *_: object) -> None:
        """Does nothing."""

    move = delete = write


def rescaler_of(
    queries: Sequence[DriverQuery],
    application_id: str,
    kafka: SimulatedKafka,
    tasks: int,
    choices: UsersChoices,
    placement: Placement | None = None,
) -> Rescaler:
    """The rescale of some queries, or the rest of an interrupted rescale.

    Args:
        queries: The queries; none is running.
        application_id: Their application.
        kafka: The topics.
        tasks: The new number of tasks.
        choices: The user's choices.
        placement: The new rule that assigns keys to tasks; None: the current one.
    """
    at_rest = {query.sub.name: query.at_rest for query in queries}

    def first_of(sub: SubIdentity, markers: Markers) -> FirstBatch:
        offsets = at_rest[sub.name]
        if offsets is None:
            raise RescaleError(f"{sub}: the last micro-batch has failed and is not finished: send a record, or restart")
        return FirstBatch(offsets)

    admin: Any = kafka
    context = RescaleContext(admin, kafka, NoFiles(), first_of, choices, None)
    subs = []
    for query in queries:
        found = kafka.describe_topics([query.commits_topic]).get(query.commits_topic)
        old = query.tasks if found is None else found.partitions
        before = None if found is None else placed_marker(kafka, query.commits_topic, range(old))
        now = None if before is None else Placement(before.placement)
        subs.append(SubRescale(application_id, query.sub, old, tasks, context, now, placement))
    return Rescaler(subs)


def rescale(
    queries: Sequence[DriverQuery], application_id: str, kafka: SimulatedKafka, tasks: int, choices: UsersChoices
) -> None:
    """Rescales some queries, which then continue with the new number of tasks; the arguments are as for `rescaler_of`.

    Raises:
        RescaleError: The rescale is refused.
    """
    rescaler = rescaler_of(queries, application_id, kafka, tasks, choices)
    moved = {sub.sub.name for sub in rescaler.waiting}
    rescaler.run()
    for query in queries:
        # A query that already has the new number of tasks was moved before an interruption.
        if query.sub.name in moved or query.tasks != tasks:
            query.rescaled(tasks)
