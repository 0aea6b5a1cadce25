"""A small application that has really run: its topics in the simulated Kafka, its checkpoint and its stores on this disk."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from state.commit.marker import CommitMarker
from state.kafka.topics import TopicPartition, TopicSpec
from state.restore.rebuild import TaskPlace, rebuild_task
from streams import Materialized, StreamsBuilder
from streams.application.doctor.examine import examine
from streams.application.doctor.findings import Finding, Severity
from streams.application.doctor.inspection import Inspection
from streams.application.preflight import Preflight
from streams.application.prepare import Application, PreparedSub, ensure_internal_topics, plan_application
from streams.application.topology_manifest import write_manifest
from streams.checkpoint.files import LocalFiles
from streams.checkpoint.log import read_checkpoint, write_first_batch, write_query_id
from streams.cluster.java_admin import CoordinatorView, OpenProducer
from streams.cluster.survey import Replicas
from streams.config import StreamsConfig
from streams.microbatch.job import QueryJob
from streams.source.planner import BatchPlanner
from streams.testing.simulation import SimulatedKafka
from streams.topology.topology import Topology
from tests.simulation.chaos import Quiet
from tests.simulation.cluster import Cluster
from tests.simulation.spark import Checkpoint, DriverRun

APP, NOW_MS = "app", 1_700_000_000_000
HANGING = 999


class Kafka(SimulatedKafka):
    """The simulated broker, with topics' settings and the requests that only operators make."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(hook=cluster)
        self.settings: dict[str, dict[str, str]] = {}
        self.brokers: dict[int, dict[str, str]] = {1: {"transaction.max.timeout.ms": "900000"}}
        self.members: list[str] = []
        self.in_sync: dict[TopicPartition, Replicas] = {}

    def topic_names(self) -> list[str]:
        return sorted(self.topics)

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        for spec in specs:
            self.create_topic(spec.name, spec.partitions, spec.config.get("cleanup.policy", "delete"))
            self.settings[spec.name] = dict(spec.config)

    def topic_config(self, name: str) -> dict[str, str]:
        return {"cleanup.policy": "delete", "retention.ms": "-1", **self.settings.get(name, {})}

    def group_offsets(self, group: str, places: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        wanted = None if places is None else set(places)
        return {at: to for at, to in self.groups.get(group, {}).items() if wanted is None or at in wanted}

    def delete_group(self, group: str) -> bool:
        return self.groups.pop(group, None) is not None

    def delete_topics(self, names: Iterable[str]) -> None:
        for name in names:
            self.delete_topic(name)

    # --- the survey

    def broker_settings(self) -> Mapping[int, Mapping[str, str]]:
        return self.brokers

    def replicas(self, topics: Collection[str]) -> dict[TopicPartition, Replicas]:
        places = [(name, n) for name in topics for n in range(self.partition_count(name))]
        return {place: self.in_sync.get(place, Replicas(1, 1)) for place in places}

    def group_members(self, group: str) -> list[str]:
        return self.members

    # --- transactions

    def open_producers(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, list[OpenProducer]]:
        ids = {id(of[1]): number for number, one in enumerate(self._transactional.values()) for of in one.open.values()}
        return {
            place: [OpenProducer(ids.get(id(span), HANGING), 0, -1, span.first) for span in self.log(*place)._open]
            for place in partitions
        }

    def coordinators(self, producer_ids: Collection[int]) -> dict[int, CoordinatorView]:
        return {
            number: CoordinatorView(name, one.epoch, "Ongoing", NOW_MS - 5_000, 60_000, frozenset(one.open))
            for number, (name, one) in enumerate(self._transactional.items())
            if one.open
        }

    def fence(self, transactional: Any) -> int:
        if not isinstance(transactional, str):
            return super().fence(transactional)
        self.time_out(transactional)
        return 0

    def abort(self, place: TopicPartition, producer: OpenProducer) -> None:
        log = self.log(*place)
        span = next(one for one in log._open if one.first == producer.start_offset)
        span.decided = False
        log.close_span(span, self.now_ms)


def counting() -> Topology:
    """Counts records by key."""
    builder = StreamsBuilder()
    counted = builder.stream("in").group_by_key().count(materialized=Materialized("counts", caching=False))
    counted.to_stream().to("out")
    return builder.build()


class _Preflight(Preflight):
    def _planner(self, prepared: PreparedSub) -> BatchPlanner:
        return BatchPlanner(self.admin, self.application.source_spec(prepared.sub), self.admin.sample)  # type: ignore[attr-defined]


@dataclass
class World:
    """An application in a cluster.

    Attributes:
        folder: Where checkpoint and state are.
        topology: The program.
        settings: Further settings.
    """

    folder: Path
    topology: Topology = field(default_factory=counting)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster = Cluster(Quiet(), hosts=1)
        self.kafka = self.cluster.kafka = Kafka(self.cluster)
        self.cluster.advance(NOW_MS)
        settings: dict[str, Any] = {"application_id": APP, "bootstrap_servers": "nowhere:1", "base_dir": self.folder}
        self.config = StreamsConfig(**{**settings, **self.settings})
        self.kafka.create_topics([TopicSpec("in", 2), TopicSpec("out", 2)])
        self.checkpoint = Checkpoint()
        self.driver: DriverRun | None = None
        self.files = LocalFiles(self.config.checkpoint_dir)

    def plan(self) -> tuple[Application, PreparedSub]:
        application = plan_application(self.topology, self.config, self.kafka)  # type: ignore[arg-type]
        return application, application.subs[0]

    def job(self) -> QueryJob:
        application, prepared = self.plan()
        return QueryJob(
            sub=prepared.sub,
            tasks=prepared.tasks,
            settings=application.task_settings({"out": 2}),
            source=application.source_spec(prepared.sub),
            client={},
            state_dir=self.config.state_dir,
            transaction_timeout_ms=60_000,
            spill_bytes=2**30,
            bulk_io=False,
        )

    def feed(self, *keys: str, at_ms: int = NOW_MS) -> None:
        for key in keys:
            for partition in range(2):
                self.kafka.append("in", key.encode(), b"1", at_ms, partition=partition)

    def start(self, checkpoint: Checkpoint | None = None, name: str = "one") -> DriverRun:
        """A start of the application, up to its first micro-batch."""
        application, _ = self.plan()
        ensure_internal_topics(application, self.kafka, lambda _: None)  # type: ignore[arg-type]
        write_manifest(application.plan, self.config.checkpoint_dir)
        self.checkpoint = checkpoint or self.checkpoint
        return DriverRun(self.cluster, self.job(), self.checkpoint, name)

    def start_again(self) -> DriverRun:
        """A start of the application on the checkpoint that is on the disk, which commands may have replaced."""
        application, prepared = self.plan()
        ensure_internal_topics(application, self.kafka, lambda _: None)  # type: ignore[arg-type]
        kept = read_checkpoint(self.files, prepared.sub.name)
        firsts = _Preflight(application, self.files, self.kafka, lambda _: None, self.kafka).run()  # type: ignore[arg-type]
        if kept.query_id is None or kept.query_id != self.checkpoint.query_id:
            self.checkpoint = Checkpoint(kept.query_id)
        self.checkpoint.first = firsts.get(prepared.sub.name)
        self.driver = self.start(self.checkpoint)
        return self.driver

    def counted(self) -> list[tuple[bytes | None, int]]:
        """All results: a key and its count."""
        found = filter(None, (self.kafka.columns("out", number) for number in range(2)))
        return sorted(
            row
            for columns in found
            for row in zip(columns.keys.to_pylist(), map(int.from_bytes, columns.values.to_pylist()), strict=True)
        )

    def run(self, *keys: str) -> World:
        """Feeds records and processes all of them, and leaves checkpoint and stores on the disk."""
        self.feed(*(keys or ("a", "b", "c")))
        driver = self.driver or self.start()
        self.driver = driver
        while driver.trigger():
            pass
        self.save()
        return self

    def save(self) -> None:
        """Writes the checkpoint as Spark and the engine do."""
        _, prepared = self.plan()
        name, made = prepared.sub.name, self.checkpoint
        assert made.query_id is not None
        assert made.first is not None
        write_query_id(self.files, name, made.query_id)
        write_first_batch(self.files, name, made.first)
        for number, batch in enumerate(made.offsets):
            self.files.write(f"{name}/offsets/{number}", f'v1\n{{"conf":{{}}}}\n{json.dumps(batch.end)}'.encode())
        for number in range(made.committed):
            self.files.write(f"{name}/commits/{number}", b'v1\n{"nextBatchWatermarkMs":0}')

    def restore(self) -> None:
        """Local state of all tasks on this disk."""
        _, prepared = self.plan()
        specs = [node.spec for node in prepared.sub.stores.values()]
        for task in range(prepared.tasks):
            place = TaskPlace(APP, prepared.sub.name, task, prepared.tasks, prepared.sub.topology_hash)
            rebuild_task(self.kafka, place, specs, self.config.state_dir)  # type: ignore[arg-type]

    def marker(self, task: int = 0) -> CommitMarker:
        return self.checkpoint.state[task].marker

    def inspection(self, **changes: Any) -> Inspection:
        options: dict[str, Any] = {
            "topology": self.topology,
            "config": self.config,
            "target": "app.py",
            "files": self.files,
            "admin": self.kafka,
            "survey": self.kafka,
            "kafka": self.kafka,
            "transactions": lambda: self.kafka,
            "pause": lambda: None,
            "now_ms": lambda: self.cluster.now_ms,
        }
        return Inspection(**{**options, **changes})

    def findings(self, **changes: Any) -> dict[str, list[Finding]]:
        """What the doctor finds, by check, without what is well."""
        return {
            result.check: bad
            for result in examine(self.inspection(**changes))
            if (bad := [one for one in result.findings if one.severity is not Severity.OK])
        }


def only(found: Mapping[str, Sequence[Finding]], check: str) -> Finding:
    """The first finding of the one check that has found something."""
    assert set(found) == {check}, {name: [str(one.says) for one in of] for name, of in found.items()}
    return found[check][0]
