"""A live task: reads its own partition of each source topic (`partitions`), and commits one small step after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from state.columns import RecordColumns
from state.commit.marker import Ranges
from state.commit.session import TaskSession
from state.commit.step import PreparedStep
from state.commit.transaction import StepInput
from state.errors import TopicRecreatedError
from state.kafka.reader import open_range_reader
from state.kafka.topics import TopicPartition
from streams.errors import KeyPlacementError, NewPartitionsError
from streams.live.partitions import OpenReader, OwnPartition, OwnPartitions, Reader
from streams.microbatch.global_tables import count_global_tables, global_stores
from streams.microbatch.job import QueryJob
from streams.microbatch.read import StepRows
from streams.microbatch.step import BatchContext, TaskAccess, about_restore, count_copy, step_process
from streams.runtime.outputs import OutputTopics
from streams.runtime.reader.pipeline import ReaderPipeline
from streams.runtime.settings import Counters
from streams.source.offsets import SourceOffsets
from streams.source.topics import SourceTopics, Ticks

NO_BATCH = -1
"""The micro-batch in the markers of live steps."""
GROUP_EVERY_S = 1.0
"""How often a task commits its positions to the consumer group. They are in each marker, and only tools read the group's: with
each step, they would cost two more requests to the brokers, one after the other."""
POLL_S = 0.004
"""How long a record waits at most before a task sees it whose readers cannot say that records arrive."""
TRIM_EVERY_S = 30.0
_AT_ONCE = {"queued.min.messages": "100000"}
"""A reader of micro-batches fetches nothing while some records wait, to ask the broker less often. Here that would be a delay."""


@dataclass
class Tally:
    """What a task has done since its last report.

    Attributes:
        restore: What its session has restored at the beginning; empty in later reports, so that it counts once.
    """

    steps: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    seconds: dict[str, float] = field(default_factory=dict)
    total_s: float = 0.0
    cpu_s: float = 0.0
    event_times: dict[TopicPartition, int] = field(default_factory=dict)
    restore: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Step:
    """A step that was begun."""

    prepared: PreparedStep
    given: StepRows
    read_to: Mapping[TopicPartition, int]
    noted: Collection[TopicPartition]
    started: float
    cpu_s: float


class LiveTask:
    """One task of a sub-topology, within a `with` block.

    Args:
        job: The sub-topology.
        access: The task's step, Kafka and stores.
        start: Where a task begins that has never committed a live step.
        run_id: The id of the application's run, since which idle time counts.
        topics: What Kafka knows of the output topics.
        open_reader: Opens a reader of one partition.
        read_tables: Reads the global tables up to given ends.
        wakes: The open file that readers write to when records arrive.
    """

    def __init__(
        self,
        job: QueryJob,
        access: TaskAccess,
        start: SourceOffsets,
        run_id: str,
        topics: OutputTopics | None = None,
        open_reader: OpenReader | None = None,
        read_tables: Callable[..., Mapping[str, Any]] = global_stores,
        wakes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job = job
        self.session = TaskSession(access.step, clock)
        self.access = access
        self.task = access.step.identity.task
        self.tally = Tally()
        self.ends: dict[TopicPartition, int] = {}
        self._start = start
        self._run_id = run_id
        self._topics = topics
        self._open_reader = open_reader or self._kafka_reader
        self._read_tables = read_tables
        self._wakes = wakes
        self._woken = True
        self._clock = clock
        self._head = ReaderPipeline(job.sub, job.tasks, job.settings)
        self._counted = Counters()
        self._partitions = OwnPartitions()
        self._sources = SourceTopics(access.kafka, job.source)
        self._topic_ids: dict[str, str] = {}
        self._hidden: Ranges = {}
        self._recreated: TopicRecreatedError | None = None
        self._ticks = Ticks(None if job.source.tick_ms is None else job.source.tick_ms / 1000)
        self._trimmed = self._noted = clock()
        self._global_ends = start.global_topics
        self._step: _Step | None = None
        self._open = ExitStack()

    def __enter__(self) -> LiveTask:
        with ExitStack() as opened:
            opened.callback(self._head.close)
            opened.enter_context(self.session)
            self.tally.restore = about_restore(self.access.stores.report)
            count_copy(self.access.stores.report, self.tally.counters)
            for topic, at in self._positions().items():
                reader = self._open_reader(topic, self.task, at)
                opened.callback(reader.close)
                self._woken = self._wakes is not None and reader.wake(self._wakes) and self._woken
                delay_ms = self.job.source.delays.get(topic)
                self._partitions.add(OwnPartition(topic, self.task, reader, at, self._clock(), delay_ms=delay_ms))
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    @property
    def rests_s(self) -> float:
        """How long the task has nothing to do, if no reader says that records have arrived."""
        if not self._woken or self._partitions.waits_for_others:
            return POLL_S
        return max(self._ticks.left(self._clock()), 0.0)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        return {one.place: one.committed for one in self._partitions}

    def begin(self, now_ms: int, last: bool = False) -> bool:
        """Processes what has arrived and sends the results; returns whether there is a step to `commit` and then `apply`.

        Args:
            now_ms: The time of the step.
            last: The task ends behind this step, so that the consumer group gets its positions.

        Raises:
            KeyPlacementError: A record is in another partition than its key's.
            StreamsError: The step has failed; the task is over.
        """
        self._check_same()
        now = self._clock()
        self._partitions.poll(now)
        tick = self._ticks.take(now)
        taken = self._partitions.take(now_ms)
        note = last or now - self._noted >= GROUP_EVERY_S
        # Without a record, too, as a task also passes control records.
        behind = note and any(one.noted != one.read_to and not one.waiting for one in self._partitions)
        if not any(taken) and not tick and not behind:
            return False
        if tick and not any(taken) and self.job.settings.idle_timeout_ms is not None:
            # Whether the task is idle is for the brokers to say: a client may not have heard yet.
            self._ask_ends()
        if note:
            self._noted = now
        self._step = self._prepared(taken, now_ms, note)
        return True

    def commit(self) -> None:
        """Commits the step that was begun. Only waits for the brokers, so several tasks may do it at once, in threads."""
        assert self._step is not None, "a step was begun"
        self._check_same()
        self._step.prepared.transaction.commit()

    def apply(self) -> None:
        """Brings the stores to the step that was committed."""
        assert self._step is not None, "a step was begun"
        step, self._step = self._step, None
        cpu = time.process_time()
        result = self.session.apply(step.prepared)
        for one in self._partitions:
            one.committed = step.read_to[one.place]
            if one.place in step.noted:
                one.noted = one.committed
        count_global_tables(self.job, self._global_ends, step.given.counters)
        cpu_s = step.cpu_s + time.process_time() - cpu
        self._add(step.given, result.counters, result.seconds, time.perf_counter() - step.started, cpu_s)

    def _ask_ends(self) -> None:
        self.ends = self.access.kafka.end_offsets([one.place for one in self._partitions])

    def _prepared(self, taken: Sequence[Sequence[RecordColumns]], now_ms: int, note: bool) -> _Step:
        started, cpu = time.perf_counter(), time.process_time()
        given = self._rows(taken, now_ms)
        read_to = {one.place: one.read_to for one in self._partitions}
        offsets = {one.place: one.read_to for one in self._partitions if note and one.read_to != one.noted}
        batch = BatchContext(NO_BATCH, now_ms, self._run_id)
        step = StepInput(
            batch_id=NO_BATCH,
            batch="",
            ranges={**self._hidden, **given.ranges},
            offsets=offsets,
            topic_ids=self._topic_ids,
            now_ms=now_ms,
            live=True,
        )
        process = step_process(self.job, self.task, batch, given, lambda _: self._global_stores(now_ms), self._topics)
        prepared = self.session.prepare(step, process)
        return _Step(prepared, given, read_to, offsets.keys(), started, time.process_time() - cpu)

    def _rows(self, taken: Sequence[Sequence[RecordColumns]], now_ms: int) -> StepRows:
        given = StepRows(topic_ids=self._topic_ids, backlog=self._partitions.has_unread(self.ends))
        self._head.now_ms = now_ms
        for one, pieces in zip(self._partitions, taken, strict=True):
            given.ranges[one.topic] = {str(one.number): (one.committed, one.read_to)}
            for columns in pieces:
                for task, rows in self._head.run(columns):
                    if task != self.task:
                        raise KeyPlacementError(
                            self.job.settings.application_id, self.job.sub.name, columns.topic, columns.partition,
                            first=int(columns.offsets[0]), last=int(columns.offsets[-1]), task=task,
                        )  # fmt: skip
                    given.batches.append(rows)
            if pieces and (newest := self._head.event_time(*one.place)) is not None:
                given.event_times[one.place] = newest
        self._head.touched.clear()
        counted = Counters(self._head.counters)
        for name, count in counted.items():
            if count != self._counted.get(name, 0):
                given.counters.add(name, count - self._counted.get(name, 0))
        self._counted = counted
        return given

    def _add(
        self, given: StepRows, counters: Mapping[str, int], seconds: Mapping[str, float], total_s: float, cpu_s: float
    ) -> None:
        tally, last = self.tally, self.session.last
        assert last is not None, "a step was committed"
        tally.steps += 1
        for found in (given.counters, counters):
            for name, count in found.items():
                tally.counters.add(name, count)
        for name, number in last.counts.items():
            tally.counts[name] = tally.counts.get(name, 0) + number
        for name, spent in seconds.items():
            tally.seconds[name] = tally.seconds.get(name, 0.0) + spent
        tally.total_s += total_s
        tally.cpu_s += cpu_s
        tally.event_times |= given.event_times

    def ask(self) -> None:
        """Asks the brokers whether the topics are still the same and where its partitions end, and trims internal topics.

        These are several requests, one after the other, so the slot calls it in a thread, and then `heed` in its own.

        Raises:
            NewPartitionsError: A topic has got more.
            TopicRecreatedError: A topic was recreated under the same name. The task commits nothing more.
        """
        try:
            self._check_topics()
        except TopicRecreatedError as error:
            self._recreated = error
            raise
        self._ask_ends()
        if self._clock() - self._trimmed >= TRIM_EVERY_S:
            self._trimmed = self._clock()
            self._sources.trim({one.place: one.committed for one in self._partitions}, self._topic_ids)

    def heed(self) -> None:
        """Replaces clients that hear nothing of records that exist."""
        self._partitions.replace_silent(self.ends, self._clock())

    def _check_topics(self) -> None:
        """Checks that the topics are the same, and that there is a task for each partition."""
        for topic, info in self._sources.described(self._topic_ids).items():
            if info.partitions > self.job.tasks:
                raise NewPartitionsError(
                    self.job.settings.application_id, self.job.sub.name, topic,
                    partitions=info.partitions, tasks=self.job.tasks,
                )  # fmt: skip

    def _check_same(self) -> None:
        # A thread has asked, and the slot may hear of it only after this step.
        if self._recreated is not None:
            raise self._recreated

    def _global_stores(self, now_ms: int) -> Mapping[str, Any]:
        """The global tables, with all that was written to them before the records of the step were read."""
        self._global_ends = self._sources.global_ends(self._global_ends)
        if not self._global_ends:
            return {}
        return self._read_tables(self.job, self._global_ends, self.access.kafka, now_ms)

    def _positions(self) -> Mapping[str, int]:
        """Where the task continues in each topic: behind its last live step, or else where live execution has begun."""
        known, last = self._start, self.session.last
        read = {} if last is None else last.live_positions
        if last is not None and read:
            known = known.behind(read, last.topic_ids)
        topics = self._sources.described(known.topic_ids)
        self._topic_ids = known.topic_ids | {name: info.topic_id for name, info in topics.items()}
        # A topic that this start does not see may come back, and the next marker is all that will say how far it was read.
        self._hidden = {topic: {str(number): (at, at)} for (topic, number), at in read.items() if topic not in topics}
        found = self._sources.places(known, [(topic, self.task) for topic in topics]).at
        if any(at != known.of(*place) for place, at in found.items()):
            # A jump over lost offsets is committed at once, even if there is nothing to read.
            self._noted -= GROUP_EVERY_S
        return {topic: at for (topic, _), at in found.items()}

    def _kafka_reader(self, topic: str, partition: int, start: int) -> Reader:
        job = self.job
        return open_range_reader({**_AT_ONCE, **job.client}, topic, partition, start, job.bulk_io)
