"""A small application that has really run: its topics in the simulated Kafka, its checkpoint and its stores on this disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from state.commit.marker import CommitMarker
from state.commit.step import CommitStep
from state.errors import KafkaClientError
from state.kafka.topics import TopicPartition, TopicSpec
from state.restore.place import TaskPlace
from state.restore.verify import rebuild_task
from streams import Materialized, StreamsBuilder
from streams.application.doctor.examine import examine
from streams.application.doctor.inspection import Finding, Inspection, Severity
from streams.application.owned_topics import write_manifest
from streams.application.prepare import Application, PreparedSub, plan_application
from streams.checkpoint.files import LocalFiles
from streams.cluster.admin import Replicas
from streams.cluster.java_admin import CoordinatorView, OpenProducer
from streams.config import StreamsConfig
from streams.testing.simulation import SimulatedKafka
from streams.topology.topology import Topology
from tests.simulation.chaos import Quiet
from tests.simulation.cluster import Cluster
from tests.simulation.spark import Checkpoint, Query, QueryFailed
from tests.simulation.start import start_queries

APP, NOW_MS = "app", 1_700_000_000_000
HANGING = 999


class Kafka(SimulatedKafka):
    """The simulated broker, with topics' settings and the requests that only operators make."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(hook=cluster)
        self.brokers: dict[int, dict[str, str]] = {1: {"transaction.max.timeout.ms": "900000"}}
        self.members: list[str] = []
        self.in_sync: dict[TopicPartition, Replicas] = {}

    def delete_group(self, group: str) -> bool:
        return self.groups.pop(group, None) is not None

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
        # What it runs are queries of micro-batches, with a checkpoint of Spark's that may be damaged.
        settings["execution"] = "micro-batch"
        self.config = StreamsConfig(**{**settings, **self.settings})
        self.kafka.create_topics([TopicSpec("in", 2), TopicSpec("out", 2)])
        self.driver: Query | None = None
        self.files = LocalFiles(self.config.checkpoint_dir)
        self.checkpoint = Checkpoint(self.files, "in")

    def plan(self) -> tuple[Application, PreparedSub]:
        application = plan_application(self.topology, self.config, self.kafka)  # type: ignore[arg-type]
        return application, application.subs[0]

    def feed(self, *keys: str, at_ms: int = NOW_MS) -> None:
        for key in keys:
            for partition in range(2):
                self.kafka.append("in", key.encode(), b"1", at_ms, partition=partition)

    def start(self, name: str = "one") -> Query:
        """A start of the application on the checkpoint that is on the disk, up to its first micro-batch."""
        ((self.driver,), _) = start_queries(self.cluster, self.topology, self.config, self.files, name)
        write_manifest(self.plan()[0].plan, self.config.checkpoint_dir)
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
        while driver.trigger():
            pass
        return self

    def run_half(self, *keys: str) -> None:
        """Feeds records, of which task 0 commits its part, while task 1 fails."""

        def half(step: CommitStep, *given: Any) -> Any:
            if step.identity.task == 1:
                raise KafkaClientError("task 1 dies")
            return run(step, *given)

        run = CommitStep.run
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CommitStep, "run", half)
            with pytest.raises(QueryFailed, match="task 1 dies"):
                self.run(*keys)

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
