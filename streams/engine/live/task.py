"""A live task: reads its own partition of each source topic (`partitions`), and commits one small step after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from types import TracebackType
from typing import Any

from state.commit.marker import Ranges
from state.commit.session import PreparedStep, TaskSession
from state.commit.shared import SharedProducer
from state.commit.transaction import StepInput
from state.commit.watch import StopWatch
from state.errors import TopicRecreatedError
from state.kafka.config import DEFAULT_PREFETCH_BYTES
from state.kafka.reader import open_range_reader
from state.kafka.topics import TopicInfo, TopicPartition
from streams.engine.graph.outputs import OutputTopics
from streams.engine.graph.settings import Counters
from streams.engine.live.alignment import BEHIND_AFTER_S, FREE, Bound, Reached
from streams.engine.live.arrived import Arrivals, Arrived
from streams.engine.live.partitions import UNHEARD_S, Ending, OpenReader, OwnPartition, OwnPartitions, Pace, Reader
from streams.engine.source.offsets import SourceOffsets
from streams.engine.source.partition_times import asks_for_partition_time, known_times, time_at
from streams.engine.source.topics import SourceTopics, Ticks
from streams.engine.step.global_tables import count_global_tables, global_stores
from streams.engine.step.job import QueryJob
from streams.engine.step.read import StepRows
from streams.engine.step.step import BatchContext, TaskAccess, step_process
from streams.errors import NewPartitionsError
from streams.model.record import NO_TIME

NO_BATCH = -1
"""The number of the micro-batch in the markers of live steps, which have none."""
GROUP_EVERY_S = 1.0
"""How often a task commits its positions to the consumer group, s. Each marker has them, and only tools read the group's. With each
step, they would cost two more requests to the brokers, one after the other."""
POLL_S = 0.004
"""The longest time that a record waits if its reader cannot signal new records, s."""
SOON_S = 0.1
"""How long a task rests while records wait, as for the delay of a retry topic, or exist that its clients have not returned, s."""
TRIM_EVERY_S = 30.0
LEAST_FETCHED_BYTES = 256 * 1024
"""The least that a reader's client fetches ahead, bytes."""
MOST_AT_ONCE_BYTES = 4 * 1024 * 1024
"""The most that a client asks a broker for in one request, bytes."""
_AT_ONCE = {"queued.min.messages": "100000"}
"""A reader of micro-batches fetches nothing while some records wait, to ask the broker less often. For a live task, that would be a
delay."""


@dataclass
class Tally:
    """What a task has done since its last report."""

    steps: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    seconds: dict[str, float] = field(default_factory=dict)
    total_s: float = 0.0
    cpu_s: float = 0.0
    event_times: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Step:
    """A step that was begun. `fence_s` is how long its producer took to be ready, which is not the fault of any record."""

    prepared: PreparedStep
    given: StepRows
    read_to: Mapping[TopicPartition, int]
    noted: Collection[TopicPartition]
    started: float
    cpu_s: float
    fence_s: float


class LiveTask:
    """One task of a sub-topology, within a `with` block.

    Args:
        job: The sub-topology.
        access: The task's step, Kafka and stores.
        start: Where a task begins that has never committed a live step.
        run_id: The id of the application's run, since which idle time counts.
        topics: Looks up the output topics in Kafka.
        open_reader: Opens a reader of one partition.
        read_tables: Reads the global tables up to given ends.
        wakes: The open file that readers write to when records arrive.
        shared: How many tasks the process runs, and how many partitions they read. They share its memory.
        producer: The producer of all tasks of the slot; by default the task has its own.

    Attributes:
        reached: How far it has come; None until it has heard of all its partitions.
        is_held: Whether records wait for other tasks, so that the next step is due as soon as these have come further.
        read: The positions up to which everything was done when the task was last idle.
        passed_bytes: The size of all records that it has processed.
    """

    reached: Reached | None = None
    is_held = False
    passed_bytes = 0
    _emptied: float | None = None
    _answers = _empty = False
    _woken = True
    _recreated: TopicRecreatedError | None = None
    _step: _Step | None = None

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
        shared: tuple[int, int] | None = None,
        producer: SharedProducer | None = None,
    ) -> None:
        self.job = job = replace(job, sub=job.sub.without_shuffle)
        self.session = TaskSession(access.step, clock, producer)
        self.access = access
        self.task = access.step.identity.task
        self.tally = Tally()
        self.ends: dict[TopicPartition, int] = {}
        self.read: Mapping[TopicPartition, int] = {}
        self._start = start
        self._run_id = run_id
        self._topics = topics
        self._open_reader = open_reader or self._kafka_reader
        self._read_tables = read_tables
        self._wakes = wakes
        self._clock = clock
        tasks, partitions = shared or (1, len(job.sub.topics))
        self._pace = Pace(tasks)
        self._share = job.memory.prefetch_bytes // max(1, partitions)
        """The most bytes of a partition's records that wait, and the most that are fetched ahead for it."""
        self._asks_for_times = {
            str(topic) for source in job.sub.sources if asks_for_partition_time(source) for topic in source.topics
        }
        self._partitions = OwnPartitions()
        self._sources = SourceTopics(access.kafka, job.source)
        self._topic_ids: dict[str, str] = {}
        self._hidden: Ranges = {}
        self._ticks = Ticks(None if job.source.tick_ms is None else job.source.tick_ms / 1000)
        self._trimmed = self._noted = self._asked = clock()
        self._global_ends = start.global_topics
        self._open = ExitStack()

    def __enter__(self) -> LiveTask:
        with ExitStack() as opened:
            opened.enter_context(self.session)
            for topic, at in self._positions().items():
                reader = self._open_reader(topic, self.task, at)
                opened.callback(reader.close)
                if (end := self.job.source.until.get((topic, self.task))) is not None:
                    reader = Ending(reader, max(at, end))
                self._woken = self._wakes is not None and reader.wake(self._wakes) and self._woken
                delay_ms = self.job.source.delays.get(topic)
                now, newest_ms = self._clock(), self._partition_time(topic, at)
                self._partitions.add(
                    OwnPartition(topic, self.task, reader, at, now, now, delay_ms=delay_ms, newest_ms=newest_ms)
                )
            times = {one.place: one.newest_ms for one in self._partitions if one.topic in self._asks_for_times}
            self._arrivals = Arrivals(self.job, self.task, times)
            opened.callback(self._arrivals.close)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    @property
    def rests_s(self) -> float:
        """How long the task may rest if no reader signals new records."""
        if self.is_held or self._answers or not self._woken or self._partitions.waits_for_others:
            return POLL_S
        if any(one.waiting or one.expects_more for one in self._partitions):
            return SOON_S
        return max(self._ticks.left(self._clock()), 0.0)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        return {one.place: one.committed for one in self._partitions}

    def begin(self, now_ms: int, last: bool = False, bound: Bound = FREE) -> bool:
        """Processes what has arrived and sends the results. Returns whether there is a step to `commit` and then `apply`.

        Args:
            now_ms: The time of the step.
            last: Whether the task ends after this step, so that the consumer group must get its positions.
            bound: How far it may go.

        Raises:
            KeyPlacementError: A record is not in the partition that its key belongs to.
            RecordFailedError: A record stops the task. The records before it are committed.
            StreamsError: The step has failed, and the task is over.
        """
        self._check_same()
        now = self._clock()
        if not self.job.unplaced:
            # Without a placement, no record has a task yet. The driver looks at the first records, and starts the slots again with
            # one.
            self._poll(now, now_ms)
        tick = self._ticks.take(now)
        taken = self._take_arrived(now_ms, now, bound)
        # All tasks of a slot do this at the same times, because the two requests serve all tasks of a transaction together.
        note = last or now // GROUP_EVERY_S > self._noted // GROUP_EVERY_S
        # Positions are also committed without a record, because a task also passes control records.
        behind = note and any(one.noted != one.read_to and not one.waiting for one in self._partitions)
        if not any(taken) and not tick and not behind:
            self.read = {
                one.place: one.read_to if one.delay_ms is None else one.reader.position for one in self._partitions
            }
            return False
        if tick and not any(taken) and self.job.settings.idle_timeout_ms is not None:
            # The brokers say whether the task is idle, because a client may not have heard of new records yet.
            self._ask_ends()
        if note:
            self._noted = now
        self._step = self._prepared(taken, now_ms, note)
        self.passed_bytes += sum(one.size for one in chain.from_iterable(taken))
        self._pace.note(sum(map(len, chain.from_iterable(taken))), self._clock() - now - self._step.fence_s)
        return True

    def _take_arrived(self, now_ms: int, now: float, bound: Bound) -> list[list[Arrived]]:
        partitions, next_ms = self._partitions, self._partitions.next_ms(now_ms)
        # Records that have just come are not a backlog if all before them were taken at once.
        waited = not self._empty if bound.asked else self._emptied is None or now - self._emptied >= BEHIND_AFTER_S
        behind = next_ms is not None and waited
        if partitions.are_known:
            # If other tasks ask, they must also wait for the results of these records.
            least_ms = min(next_ms if next_ms is not None and (behind or bound.asked) else inf, bound.coming_ms)
            self.reached = Reached(None if least_ms == inf else int(least_ms), behind, bound.asked)
        before_ms = bound.of(self.job.sub.name, self.task, self.reached is None or self.reached.is_behind)
        taken = partitions.take(now_ms, self._most_records, before_ms)
        left_ms = partitions.next_ms(now_ms)
        self.is_held = left_ms is not None and left_ms >= before_ms
        self._answers = bound.asked
        self._empty = partitions.are_empty
        if self._empty:
            self._emptied = now
        return taken

    def _poll(self, now: float, now_ms: int) -> None:
        """Reads the records that have arrived, as long as there is room for them."""
        cpu = time.process_time()
        most_bytes = min(self._share, self.job.source.max_bytes // (self.job.tasks * len(self.job.sub.topics)))
        self._partitions.poll(now, self._most_records, most_bytes, lambda columns: self._arrivals.read(columns, now_ms))
        self.tally.cpu_s += time.process_time() - cpu
        if self._partitions.hold_up(now) and now - self._asked >= UNHEARD_S:
            self._ask_ends()
            self._partitions.note_ends(self.ends)

    @property
    def _most_records(self) -> int:
        return max(1, min(self._pace.most, self.job.source.max_records // self.job.tasks))

    def commit(self) -> None:
        """Commits the step that was begun, and the steps of all tasks that share its producer. It only waits for the brokers."""
        assert self._step is not None, "a step was begun"
        self._check_same()
        self._step.prepared.transaction.commit()

    def apply(self) -> None:
        """Applies the committed step to the stores."""
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
        self._asked = self._clock()
        self.ends = self.access.kafka.end_offsets([one.place for one in self._partitions])

    def _prepared(self, taken: Sequence[Sequence[Arrived]], now_ms: int, note: bool) -> _Step:
        started, cpu, now, watch = time.perf_counter(), time.process_time(), self._clock(), StopWatch()
        self.session.ready()
        watch.lap("fence")
        fence_s = self._clock() - now
        given = self._rows(taken)
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
        prepared = self.session.prepare(step, process, watch=watch)
        return _Step(prepared, given, read_to, offsets.keys(), started, time.process_time() - cpu, fence_s)

    def _rows(self, taken: Sequence[Sequence[Arrived]]) -> StepRows:
        given = StepRows(topic_ids=self._topic_ids, backlog=self._partitions.has_unread(self.ends))
        self._arrivals.begin_step()
        for one, parts in zip(self._partitions, taken, strict=True):
            given.ranges[one.topic] = {str(one.number): (one.committed, one.read_to)}
            for part in parts:
                given.batches += part.batches
                given.counters.add_all(part.counters)
            if parts and one.newest_ms != NO_TIME:
                given.event_times[one.place] = one.newest_ms
            if one.topic in self._asks_for_times and one.read_to != one.committed:
                # The time as of the records taken, because waiting records have already moved the reader's own time.
                given.partition_times[one.place] = (one.read_to, one.newest_ms)
        return given

    def _add(
        self, given: StepRows, counters: Mapping[str, int], seconds: Mapping[str, float], total_s: float, cpu_s: float
    ) -> None:
        tally, last = self.tally, self.session.last
        assert last is not None, "a step was committed"
        tally.steps += 1
        for found in (given.counters, counters):
            tally.counters.add_all(found)
        for name, number in last.counts.items():
            tally.counts[name] = tally.counts.get(name, 0) + number
        for name, spent in seconds.items():
            tally.seconds[name] = tally.seconds.get(name, 0.0) + spent
        tally.total_s += total_s
        tally.cpu_s += cpu_s
        tally.event_times |= given.event_times

    def ask(self) -> None:
        """Asks the brokers whether the topics are still the same and where the partitions end, and trims internal topics.

        These are several requests, one after the other, so the slot calls it in a thread, and then calls `heed` in its own thread.

        Raises:
            NewPartitionsError: A topic has more partitions than there are tasks.
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
        """Replaces clients that receive nothing although records exist, and ends waits for records that cannot be read yet."""
        self._partitions.note_ends(self.ends)
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
        # A thread detected this, and the slot may learn of it only after this step.
        if self._recreated is not None:
            raise self._recreated

    def _global_stores(self, now_ms: int) -> Mapping[str, Any]:
        """The global tables, with everything that was written to them before the records of the step were read."""
        self._global_ends = self._sources.global_ends(self._global_ends)
        if not self._global_ends:
            return {}
        return self._read_tables(self.job, self._global_ends, self.access.kafka, now_ms)

    def _positions(self) -> Mapping[str, int]:
        """Where the task continues in each topic: after its last live step, or else where live execution began."""
        known, last = self._start, self.session.last
        read = {} if last is None else last.live_positions
        if last is not None and read:
            known = known.behind(read, last.topic_ids)
        topics = self._sources.described(known.topic_ids)
        self._topic_ids = known.topic_ids | {name: info.topic_id for name, info in topics.items()}
        # A topic that is hidden at this start may come back, and only the next marker will then know how far it was read.
        self._hidden = {topic: {str(number): (at, at)} for (topic, number), at in read.items() if topic not in topics}
        found = self._sources.places(known, self._own(topics)).at
        if any(at != known.of(*place) for place, at in found.items()):
            # A jump over lost offsets is committed at once, even if there is nothing to read.
            self._noted -= GROUP_EVERY_S
        return {topic: at for (topic, _), at in found.items()}

    def _own(self, topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
        """The task's partitions. If records do not lead to state, a topic may have fewer partitions than there are tasks."""
        return [(topic, self.task) for topic, info in topics.items() if self.task < info.partitions]

    def _partition_time(self, topic: str, at: int) -> int:
        """The partition time at the session's first position."""
        last = self.session.last
        times = known_times(last.operator_state) if last is not None and topic in self._asks_for_times else {}
        return time_at(times.get((topic, self.task), ()), at)

    def _kafka_reader(self, topic: str, partition: int, start: int) -> Reader:
        job, kept = self.job, max(LEAST_FETCHED_BYTES, min(DEFAULT_PREFETCH_BYTES, self._share))
        client = {**_AT_ONCE, "fetch.message.max.bytes": str(min(MOST_AT_ONCE_BYTES, kept)), **job.client}
        return open_range_reader(client, topic, partition, start, job.bulk_io, prefetch_bytes=kept)
