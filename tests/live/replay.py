"""A replay in live execution over the simulated Kafka: its tasks, slots and driver do things in any order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from state.changelog import changelog_topic, commits_topic
from state.commit.decide import TaskIdentity
from state.commit.step import CommitStep
from state.restore.task_stores import WorkerMemory
from streams.engine.graph.settings import Counters, TaskSettings
from streams.engine.live.alignment import FREE, UNSAID, Alignment, Bound, readings
from streams.engine.live.ends import RunEnd
from streams.engine.live.task import LiveTask
from streams.engine.source.offsets import SourceOffsets, TopicOffsets
from streams.engine.source.planner import SourceSpec
from streams.engine.step.job import QueryJob
from streams.engine.step.step import TaskAccess
from streams.testing.simulation import SimulatedKafka, SimulatedStores, SimulatedTable
from streams.topology.plan import SubTopology, build_plan
from streams.topology.topology import Topology
from tests.live.test_task import APP, Arriving

SLOTS = 2
"""A task is in the slot of its number."""
PATIENCE = 20_000


@dataclass
class SlotsView:
    """What one slot knows and has said; messages take their time, each way in their order."""

    bounds: Mapping[str, Bound]
    told: deque[tuple[str, list[tuple[Any, ...]]]]
    coming: deque[Mapping[str, Bound]]


class Replay:
    """An application that works off what its topics hold.

    Args:
        partitions: The number of partitions of all topics, and so of tasks.
        random: Decides what comes next.
        aligned: Whether the driver keeps the tasks together.
    """

    def __init__(self, topology: Topology, partitions: int, random: Random, aligned: bool = True) -> None:
        self.plan = build_plan(topology, APP)
        self.partitions = partitions
        self.random = random
        self.aligned = aligned
        self.counters = Counters()
        self.now = 0.0
        subs = self.plan.sub_topologies
        topics = {topic for sub in subs for topic in sub.topics} | {
            str(sink.topic) for sub in subs for sink in sub.sinks
        }
        logs = [commits_topic(APP, sub.name) for sub in subs]
        logs += [changelog_topic(APP, store) for sub in subs for store in sub.stores]
        self.kafka = SimulatedKafka(dict.fromkeys([*sorted(topics), *logs], partitions))
        self.outputs = topics - {topic for sub in subs for topic in sub.topics}
        self.until: dict[tuple[str, int], int] = {}
        self.readers: dict[LiveTask, list[Arriving]] = {}

    @property
    def internal(self) -> set[str]:
        """The repartition topics."""
        return set(self.plan.repartition_topics)

    def run(self) -> None:
        """Runs until everything is read up to the ends of now, and everything that comes of it."""
        inputs = {topic for sub in self.plan.sub_topologies for topic in sub.topics} - self.internal
        places = [(topic, number) for topic in sorted(inputs) for number in range(self.partitions)]
        self.until = self.kafka.end_offsets(places)
        clock = lambda: self.now  # noqa: E731
        names = [sub.name for sub in self.plan.sub_topologies]
        alignment = Alignment(dict.fromkeys(names, self.partitions), readings(self.plan.sub_topologies), clock)
        end = RunEnd(self.plan.sub_topologies, self.until)
        slots = [SlotsView({}, deque(), deque()) for _ in range(SLOTS)]
        with ExitStack() as opened:
            waiting = [(sub, number) for sub in self.plan.sub_topologies for number in range(self.partitions)]
            # Some tasks are faster than others all the time, and some begin later.
            speed: dict[LiveTask, int] = {}
            told: dict[LiveTask, object] = {}
            for turn in range(PATIENCE):
                self.now += self.random.choice((0.001, 0.01, 0.3))
                if waiting and self.random.random() < 0.2:
                    task = opened.enter_context(self._task(*waiting.pop(self.random.randrange(len(waiting)))))
                    speed[task] = self.random.choice((1, 3, 20))
                if speed:
                    (task,) = self.random.choices(list(speed), list(speed.values()))
                    self._step(task, slots[task.task % SLOTS], told, end)
                self._deliver(slots, alignment)
                if turn % 20 == 0 and not waiting and end.is_reached((), self._written):
                    break
            else:
                raise AssertionError("tasks wait for each other, and for nothing else")
            for task in speed:
                for name, count in task.tally.counters.items():
                    self.counters.add(name, count)

    def _written(self, topics: Sequence[str]) -> Mapping[tuple[str, int], int]:
        return self.kafka.end_offsets([(topic, number) for topic in topics for number in range(self.partitions)])

    def _step(self, task: LiveTask, slot: SlotsView, told: dict[LiveTask, object], end: RunEnd) -> None:
        for reader in self.readers[task]:
            reader.due = self.random.choice((0, 1, 5, 1_000))
        name = task.job.sub.name
        bound = slot.bounds.get(name, UNSAID) if self.aligned else FREE
        if task.begin(int(self.now * 1000), bound=bound):
            task.commit()
            task.apply()
        elif task.read:
            end.hear(name, [(*place, at) for place, at in task.read.items()])
        if task.reached is not None and (told.get(task) != task.reached or self.random.random() < 0.05):
            told[task] = task.reached
            slot.told.append((name, [(task.task, *task.reached)]))

    def _deliver(self, slots: Sequence[SlotsView], alignment: Alignment) -> None:
        """Lets some of the messages arrive."""
        slot = self.random.choice(slots)
        if slot.told and self.random.random() < 0.7:
            alignment.hear(*slot.told.popleft())
            bounds = alignment.bounds()
            for each in slots:
                each.coming.append(bounds)
        slot = self.random.choice(slots)
        if slot.coming and self.random.random() < 0.7:
            slot.bounds = slot.coming.popleft()

    def _task(self, sub: SubTopology, number: int) -> LiveTask:
        counts = dict.fromkeys((str(sink.topic) for sink in sub.sinks), self.partitions)
        settings = TaskSettings(application_id=APP, partition_counts=counts)
        source = SourceSpec(dict.fromkeys(sub.topics, "earliest"), until=self.until)
        job = QueryJob(sub, self.partitions, settings, source, {}, Path(), 0, 0, bulk_io=False)
        identity = TaskIdentity(APP, sub.name, number, self.partitions, "query", sub.topology_hash)
        specs = [node.spec for node in sub.stores.values()]
        stores = SimulatedStores(self.kafka, identity, specs, SimulatedTable(), WorkerMemory())
        access: Any = TaskAccess(CommitStep(identity, self.kafka, stores, job.crash), self.kafka, stores)  # type: ignore[arg-type]
        ids = self.kafka.topic_ids(sub.topics)
        start = SourceOffsets({name: TopicOffsets(ids[name], (0,) * self.partitions) for name in sub.topics})
        readers: list[Arriving] = []

        def opened(topic: str, partition: int, at: int) -> Arriving:
            readers.append(Arriving(self.kafka, topic, partition, at))
            return readers[-1]

        task = LiveTask(job, access, start, "run", open_reader=opened, clock=lambda: self.now)
        self.readers[task] = readers
        return task

    @property
    def late(self) -> int:
        """How many records were dropped as late."""
        return sum(
            count for name, count in self.counters.items() if name.startswith("dropped:") and name.endswith("late")
        )

    def results(self) -> Counter[tuple[bytes | None, bytes | None]]:
        """The records in the topics of results, in any order."""
        return records_in(self.kafka, self.outputs, self.partitions)


def records_in(
    kafka: SimulatedKafka, topics: Iterable[str], partitions: int
) -> Counter[tuple[bytes | None, bytes | None]]:
    """The keys and values in topics."""
    found: Counter[tuple[bytes | None, bytes | None]] = Counter()
    for topic in topics:
        for number in range(partitions):
            columns = kafka.columns(topic, number)
            if columns is not None:
                found.update(zip(columns.keys.to_pylist(), columns.values.to_pylist(), strict=True))
    return found
