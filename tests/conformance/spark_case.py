"""One case on real Spark and Kafka.

All records are written first, to topics with one partition. Then one query for each sub-topology takes them in the
micro-batches of `stretches`, planned by `scripted_source`; a repartition topic is read in the pieces in which it was
written. At a mark `restart` the application ends, loses its local state and starts again. Joins by foreign key send records
round in a circle between two queries: there both run all the time, and each stretch is written when all is still.
"""

from __future__ import annotations

import io
import itertools
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSource
from rich.console import Console

from state.errors import TopicNotFoundError
from state.kafka.admin import KafkaAdmin
from streams.config import Execution, StreamsConfig
from streams.config import Mode as ConfiguredMode
from streams.driver.progress import Progress
from streams.driver.runner import StreamsApplication
from streams.engine.source.offsets import SourceOffsets, TopicOffsets
from streams.engine.step.job import QueryJob
from streams.metrics.application import StepFigures
from streams.operators.operator import Mode
from streams.topology.plan import Plan, build_plan
from streams.topology.topology import Topology
from tests.conformance.case import Case, CaseError
from tests.conformance.compare import Row
from tests.conformance.driver_engine import Outcome, row_of
from tests.conformance.json_values import CompactJsonSerde
from tests.conformance.scripted_source import first_beyond, scripted
from tests.conformance.spark_cluster import Cluster
from tests.conformance.stretches import Stretch, cut
from tests.spark.harness import Sent
from tests.spark.live import running_in_thread, write_transaction

_TIMEOUT_S = 150.0


def late_of(step: StepFigures) -> int:
    """How many records a step has dropped as late."""
    late = (n for name, n in step.counters.items() if name.startswith("dropped:") and name.endswith(":late"))
    return 0 if step.skipped else sum(late)


def sent(record: dict[str, Any]) -> tuple[str, Sent]:
    """A record of a case as it is written, with its topic."""
    if unknown := set(record) - {"topic", "key", "value", "timestamp"}:
        raise CaseError(f"a record has unknown fields {sorted(unknown)}")
    topic, serde = record["topic"], CompactJsonSerde()
    key, value = (serde.serialize(topic, record[part]) for part in ("key", "value"))
    return topic, Sent(key, value, record["timestamp"])


def rows_of(cluster: Cluster, sinks: Mapping[str, Any], prefix: str) -> Iterator[Row]:
    """What is in the topics of sinks; rows have the topics' names without the prefix."""
    for topic, sink in sinks.items():
        for record in cluster.read(topic):
            key = sink.key_serde.deserialize(topic, record.key)
            value = sink.value_serde.deserialize(topic, record.value)
            yield row_of(topic.removeprefix(prefix), key, value, record.timestamp)


class _Application(StreamsApplication):
    """The engine's, with micro-batches that end where the case wants it."""

    def __init__(self, run: SparkCase, limit: int) -> None:
        super().__init__(run.topology, run.config, run.progress)
        self._case_run, self._limit = run, limit

    def make_source(self, job: QueryJob) -> type[DataSource]:
        """The script is written when the query starts: those before it have then filled its repartition topics."""
        return scripted(super().make_source(job), job, self._case_run.ends(job, self._limit))


class _Steps(Progress):
    """Notes how far the topics that sub-topologies write for each other reach after each micro-batch."""

    def __init__(self, run: SparkCase) -> None:
        super().__init__(run.prefix, Console(file=io.StringIO()))
        self._run = run
        self.late = 0

    def step(self, sub: str, batch_id: int, steps: Collection[StepFigures]) -> None:
        """See `Progress`."""
        super().step(sub, batch_id, steps)
        self.late += sum(map(late_of, steps))
        self._run.stepped(sub, batch_id)


@dataclass
class SparkCase:
    """One case, while it runs."""

    cluster: Cluster
    prefix: str
    case: Case
    mode: Mode
    topology: Topology
    script: dict[str, list[SourceOffsets]] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    written: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Settings and plan."""
        self.config = StreamsConfig(
            application_id=self.prefix,
            bootstrap_servers=self.cluster.servers,
            base_dir=self.cluster.folder / self.prefix,
            mode=ConfiguredMode(self.mode),
            available_now=not self.circular,
            # The script says where each of them ends.
            execution=Execution.MICRO_BATCH,
        )
        self.progress = _Steps(self)
        self.runs: list[list[Stretch]] = cut(self.case, self.plan, self.mode)
        self.stretches = [stretch for run in self.runs for stretch in run]

    @cached_property
    def plan(self) -> Plan:
        return build_plan(self.topology, self.prefix)

    @property
    def sinks(self) -> dict[str, Any]:
        """The topics to look at."""
        return {sink.topic: sink for sink in self.topology.sinks() if isinstance(sink.topic, str)}

    @cached_property
    def inputs(self) -> list[str]:
        """Topics that the case fills."""
        read = {topic for sub in self.plan.sub_topologies for topic in sub.topics} - set(self.plan.repartition_topics)
        tables = {str(table.source.topics[0]) for table in self.topology.global_tables.values()}
        return sorted({record["topic"] for record in self.case.records if "topic" in record} | read | tables)

    @cached_property
    def circular(self) -> bool:
        """Whether a sub-topology reads what a later one writes."""
        order = {sub.name: at for at, sub in enumerate(self.plan.sub_topologies)}
        writers = {sink.topic: order[sub.name] for sub in self.plan.sub_topologies for sink in sub.sinks}
        return any(writers.get(t, -1) >= order[sub.name] for sub in self.plan.sub_topologies for t in sub.topics)

    def outcome(self) -> Outcome:
        """Runs the case and reads what came of it."""
        self.cluster.create_topics(sorted({*self.inputs, *self.sinks}))
        error: Exception | None = None
        try:
            (self._run_circle if self.circular else self._run_scripted)()
        except CaseError:
            raise
        except Exception as problem:
            error = problem
        rows = list(rows_of(self.cluster, self.sinks, f"{self.prefix}."))
        return Outcome(rows, error, self._failed_at() if error else -1, self.progress.late)

    # Scripted ---------------------------------------------------------------------------------------------------------

    def _run_scripted(self) -> None:
        self._send(itertools.chain.from_iterable(self.stretches))
        limit = 0
        for at, run in enumerate(self.runs):
            limit += len(run)
            if at:
                shutil.rmtree(self.config.state_dir, ignore_errors=True)
            _Application(self, limit).run(self.cluster.session)

    def ends(self, job: QueryJob, limit: int) -> list[SourceOffsets]:
        """Where the first `limit` micro-batches of a sub-topology end."""
        info = self.cluster.admin.describe_topics([*job.sub.topics, *job.source.global_topics])
        internal = set(self.plan.repartition_topics)
        at = dict.fromkeys(info, 0)
        ends = []
        for step, stretch in enumerate(self.stretches[:limit]):
            for index in stretch:
                if (topic := self.case.records[index]["topic"]) in at:
                    at[topic] += 1
            for topic in internal & set(at):
                at[topic] = self.written.get((topic, step), at[topic])
            now = {topic: TopicOffsets(info[topic].topic_id, (at[topic],)) for topic in info}
            ends.append(
                SourceOffsets(
                    {topic: now[topic] for topic in job.sub.topics}, {t: now[t] for t in job.source.global_topics}
                )
            )
        self.script[job.sub.name] = ends
        return ends

    def stepped(self, sub: str, batch_id: int) -> None:
        """A sub-topology has done its n-th micro-batch: notes what it has written."""
        if self.circular:
            return
        self.done[sub] = batch_id + 1
        step = self._step_of(sub, batch_id)
        written = [str(s.topic) for p in self.plan.sub_topologies if p.name == sub for s in p.sinks]
        internal = [(topic, 0) for topic in written if topic in self.plan.repartition_topics]
        if internal and step is not None:
            # A commit returns before its control records are written: the committed end may lag behind it.
            for (topic, _), end in self.cluster.admin.end_offsets(internal, committed=False).items():
                self.written[topic, step] = end

    def _step_of(self, sub: str, batch: int) -> int | None:
        """The stretch that a sub-topology takes as its n-th micro-batch; some have nothing for it."""
        ends = self.script[sub]
        position = SourceOffsets({topic: replace(of, offsets=(0,)) for topic, of in ends[0].topics.items()})
        for _ in range(batch + 1):
            found = first_beyond(position, ends)
            if found is None:
                return None
            position = found
        return ends.index(position)

    def _failed_at(self) -> int:
        """The record at which the first sub-topology that did not get through stood."""
        for sub, ends in self.script.items():
            step = self._step_of(sub, self.done.get(sub, 0)) if ends else None
            if step is not None:
                return self.stretches[step][0]
        return -1

    # In a circle ------------------------------------------------------------------------------------------------------

    def _run_circle(self) -> None:
        for run in self.runs:
            shutil.rmtree(self.config.state_dir, ignore_errors=True)
            application = StreamsApplication(self.topology, self.config, self.progress)
            with running_in_thread(application, self.cluster.session) as check:
                for stretch in run:
                    self._send(stretch)
                    deadline = time.monotonic() + _TIMEOUT_S
                    while not self._still():
                        check()
                        if time.monotonic() > deadline:
                            raise CaseError(f"nothing moves since record {stretch[-1]}")
                        time.sleep(0.02)

    def _still(self) -> bool:
        """Whether everything that was written has been processed, and nothing is on its way."""
        places = [(topic, 0) for sub in self.plan.sub_topologies for topic in sub.topics]
        # The group's offsets first: a step commits them together with what it writes.
        try:
            # A client of its own: one that has once asked for a topic in vain goes on believing that there is none.
            with KafkaAdmin({"bootstrap.servers": self.cluster.servers}) as admin:
                taken = admin.group_offsets(self.prefix, places)
                ends = admin.end_offsets(places, committed=False)  # What is not quite committed is on its way too.
        except TopicNotFoundError:
            return False  # The application has only just begun to make its topics.
        return all(taken.get(place, 0) == end for place, end in ends.items())

    # Kafka ------------------------------------------------------------------------------------------------------------

    def _send(self, indexes: Iterable[int]) -> None:
        """In transactions: their producer keeps the order, and writes the timestamp 0, for others "now"."""
        write_transaction(self.cluster.servers, (sent(self.case.records[index]) for index in indexes))
