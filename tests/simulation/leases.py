"""Live execution in a simulated cluster: leases of the engine's own slots and tasks, whose records arrive late and in parts.

A slot is one process with several tasks, for as long as its lease. It may die at any event, and it may stand still while another
attempt takes its tasks over, and then continue with its session and its producers; also when the lease, the driver or live
execution itself have come to their end, or in the midst of a switch. It hears that its driver is gone only when it listens.
Requests to commit that were sent twice arrive a second time at any later event.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import orjson

from state.changelog import commits_topic
from state.columns import RecordColumns
from state.commit.step import CommitStep
from state.errors import OffsetsLostError
from state.kafka.topics import TopicPartition
from streams.engine.live.alignment import FREE, Bound
from streams.engine.live.slot import LiveJob, LiveSub, Slot, slots_for
from streams.engine.live.task import TRIM_EVERY_S, LiveTask
from streams.engine.source.offsets import TopicOffsets, topics_to_json
from streams.engine.step.job import QueryJob
from streams.engine.step.step import TaskAccess
from streams.metrics.reports import DriverAddress
from streams.testing.simulation import RequestEvent
from tests.simulation.attempt import Attempt
from tests.simulation.cluster import Cluster, Host
from tests.simulation.spark import Checkpoint, Stage, global_tables, stores_of
from tests.simulation.verify import markers, read_marker

LEASE_S = 1e9
QUIET_ROUNDS = 6
"""How often a slot looks for records in vain before its lease ends: the clock moves on in between."""
QUIET_MS = (1_000, int(TRIM_EVERY_S * 1_000))


class Arriving:
    """Reads a partition (`streams.engine.live.task.Reader`); of the records that are there, some may still be on their way."""

    def __init__(self, cluster: Cluster, topic: str, partition: int, start: int) -> None:
        self._cluster = cluster
        self._topic, self._partition = topic, partition
        self.position = start
        self.at_end = False

    def poll(self, max_records: int) -> list[RecordColumns]:
        """See `Reader`."""
        kafka = self._cluster.kafka
        log = kafka.log(self._topic, self._partition)
        if self.position < log.begin:
            raise OffsetsLostError(self._topic, self._partition, self.position, earliest=log.begin, latest=log.end)
        columns = kafka.columns(self._topic, self._partition, self.position)
        if columns is None:
            # Only control records are left, which a client passes.
            self.position, self.at_end = log.stable_end, True
            return []
        self._cluster.before(RequestEvent("read", f"{self._topic}-{self._partition}", f"from {self.position} on"))
        count = min(len(columns), max_records)
        count = (count, (count + 1) // 2, 0)[self._cluster.chaos.choose(3, "all records are here, or half, or none")]
        if count:
            self.position = int(columns.offsets[count - 1]) + 1
        self.at_end = count == len(columns)
        return [columns.part(0, count)] if count else []

    def wake(self, file: int) -> bool:
        """See `Reader`."""
        return False

    def reopen(self) -> None:
        """See `Reader`."""

    def close(self) -> None:
        """See `Reader`."""


class AtOnce(Executor):
    """Does at once what threads would do at some time, so that a history is the same each time that it is played."""

    def submit(self, work: Any, /, *given: Any, **named: Any) -> Future[Any]:
        """See `Executor`; if the process dies, it dies here."""
        done: Future[Any] = Future()
        try:
            done.set_result(work(*given, **named))
        except Exception as error:
            done.set_exception(error)
        return done


SILENT = os.pipe()[0]
"""An open file from which nothing can ever be read."""


class SimulatedLink:
    """What a slot hears (`streams.engine.live.slot.Link`): its lease ends once nothing is left to read, or earlier."""

    def __init__(self, lease: Lease, slot: int) -> None:
        self._lease, self._slot = lease, slot
        self.file = SILENT
        self.stopped = self.lost = False
        self.paused = lease.leases.paused
        self._quiet = 0

    def listen(self) -> None:
        """See `Link`."""
        leases, cluster = self._lease.leases, self._lease.leases.cluster
        cluster.before(RequestEvent("listen", f"slot {self._slot}"))
        if leases.closed:
            self.stopped = self.lost = True
        elif cluster.chaos.choose(2, "lease goes on, or ends") == 1:
            self.stopped = True
        elif not leases.unread(leases.job.tasks_of(self._slot)):
            self._quiet += 1
            self.stopped |= self._quiet > QUIET_ROUNDS
            cluster.advance(QUIET_MS[cluster.chaos.choose(2, "a moment, or longer")])

    def bound(self, sub: str) -> Bound:
        """See `Link`; `tests/live/test_alignment.py` has tasks that wait for each other."""
        return FREE

    def tell(self, message: Mapping[str, Any]) -> bool:
        """See `Link`."""
        orjson.dumps(message)
        return True


class SimulatedSlot(Slot):
    """The engine's slot, in a simulated process."""

    def __init__(self, cluster: Cluster, host: Host, job: LiveJob, slot: int, attempt: int, link: Any) -> None:
        super().__init__(job, slot, attempt, link)
        self._cluster, self._host = cluster, host

    def _task(self, sub: LiveSub, number: int) -> LiveTask:
        identity = sub.job.identity(number, sub.query_id)
        stores = stores_of(self._cluster, self._host, sub.job, identity)
        kafka: Any = self._cluster.kafka
        access = TaskAccess(CommitStep(identity, kafka, stores, sub.job.crash), kafka, stores)

        def read_tables(job: QueryJob, ends: Mapping[str, TopicOffsets], *_: object) -> Mapping[str, Any]:
            return global_tables(self._cluster, self._host, job, stores, topics_to_json(ends))

        return LiveTask(
            sub.job,
            access,
            sub.start,
            self._job.run_id,
            open_reader=self._open_reader,
            read_tables=read_tables,
            clock=self._cluster.seconds,
            producer=self._shared,
        )

    def _begin(self, task: LiveTask, last: bool) -> bool:
        begun = super()._begin(task, last)
        if (
            begun
            and self._cluster.chaos.choose(2, "lease: a task is quick, or takes so long that the others have to wait")
            == 1
        ):
            self._cluster.advance(1_000)
        return begun

    def _kafka(self, jobs: Sequence[QueryJob]) -> Any:
        return self._cluster.kafka

    def _open_reader(self, topic: str, partition: int, start: int) -> Arriving:
        return Arriving(self._cluster, topic, partition, start)

    def _pool(self, threads: int) -> Executor:
        return AtOnce()

    def _now_ms(self) -> int:
        return self._cluster.now_ms

    def _report(self, now: float) -> None:
        """Nobody reads it."""


class LiveQuery:
    """What one sub-topology has done live; see `Query`."""

    live, repeats = True, False

    def __init__(self, cluster: Cluster, sub: LiveSub, checkpoint: Checkpoint) -> None:
        self._cluster, self._sub = cluster, sub
        self.job, self.checkpoint = sub.job, checkpoint
        self.topic = commits_topic(sub.job.settings.application_id, sub.job.sub.name)

    @property
    def begun(self) -> int:
        """See `Query`."""
        return sum(len(markers(self._cluster.kafka, self.topic, task)) for task in range(self.job.tasks))

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """See `Query`."""
        found = {}
        for task in range(self.job.tasks):
            last = [read_marker(one) for one in markers(self._cluster.kafka, self.topic, task)[-1:]]
            read = last[0].live_positions if last else {}
            for topic in self.job.sub.topics:
                found[topic, task] = read.get((topic, task), self._sub.start.of(topic, task))
        return found


class CutShort(Exception):
    """The driver waits no longer for the slots of a lease, because an operator asks for the other execution."""


class Leases:
    """The live sub-topologies of an application, in one run of a driver.

    Args:
        cluster: The cluster.
        subs: The sub-topologies.
        processes: How many slots there may be.
        run: The name of the run.
        queries: What the sub-topologies have done.

    Attributes:
        paused: The names of the sub-topologies that are paused.
        closed: Whether the driver has closed the connections of its slots, or is gone.
    """

    def __init__(
        self, cluster: Cluster, subs: Sequence[LiveSub], processes: int, run: str, queries: Sequence[LiveQuery]
    ) -> None:
        self.cluster, self.queries = cluster, list(queries)
        nobody = DriverAddress("", 0, b"")
        self.job = LiveJob(tuple(subs), slots_for(subs, processes), 0.0, LEASE_S, run, nobody)
        self.paused: frozenset[str] = frozenset()
        self.closed = False
        self._rested: int | None = None

    def trigger(self) -> bool:
        """Runs a lease; False if there was nothing to do.

        Raises:
            Crash: The driver died.
            CutShort: The application is to be switched, and slots still run.
            QueryFailed: The driver gave up.
        """
        everything = [one for slot in range(self.job.slots) for one in self.job.tasks_of(slot)]
        if self._rested == self.cluster.now_ms and not self.unread(everything) and self._has_passed_all(everything):
            return False
        Lease(self).run()
        self._rested = self.cluster.now_ms
        return True

    def _has_passed_all(self, tasks: Collection[tuple[LiveSub, int]]) -> bool:
        """Whether control records, too, are behind the positions: a lease that ends early leaves them to the next one."""
        ends, kafka = {query.job.sub.name: query.ends for query in self.queries}, self.cluster.kafka
        return all(
            sub.job.sub.name in self.paused or ends[sub.job.sub.name][topic, task] >= kafka.log(topic, task).stable_end
            for sub, task in tasks
            for topic in sub.job.sub.topics
            if task < kafka.partition_count(topic)
        )

    def unread(self, tasks: Collection[tuple[LiveSub, int]]) -> bool:
        """Whether tasks that are not paused have records to read."""
        ends = {query.job.sub.name: query.ends for query in self.queries}
        return any(
            self.cluster.kafka.columns(topic, task, ends[name][topic, task]) is not None
            for sub, task in tasks
            for name in [sub.job.sub.name]
            if name not in self.paused
            for topic in sub.job.sub.topics
            if task < self.cluster.kafka.partition_count(topic)
        )


class Lease(Stage):
    """The slots of one lease."""

    def __init__(self, leases: Leases) -> None:
        super().__init__(leases.cluster)
        self.leases = leases

    def run(self) -> None:
        """Runs the slots until they end."""
        self._run_all(list(range(self.leases.job.slots)))

    def _one_thing(self, waiting: list[int]) -> None:
        if self._running and self._chaos.choose(2, "switched while slots run: no, or yes") == 1:
            raise CutShort
        super()._one_thing(waiting)

    def _start(self, task: int) -> Attempt:
        cluster, host = self._cluster, self._some_host(task)
        job, tries = self.leases.job, self._failures[task]

        def work(_: Attempt) -> bool:
            SimulatedSlot(cluster, host, job, task, tries, SimulatedLink(self, task)).run(cluster.seconds)
            return True

        attempt = Attempt(f"slot {task} on {host.name}, attempt {tries}", task, work, self._may_pause())
        attempt.live = True
        return attempt
