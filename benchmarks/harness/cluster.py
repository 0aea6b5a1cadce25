"""The broker of a benchmark: topics, and how much a system writes to its internal ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicSpec
from streams.broker import EmbeddedBroker, fetch_jars

_KEPT = {"retention.ms": "-1"}
"""The broker's retention goes by event time, which is long ago."""
_PATIENT = {"broker.session.timeout.ms": "60000"}
"""The broker's settings: where the machine stands still for four seconds, the embedded broker's usual ones would take it for dead,
and the run would measure the way back."""


@dataclass(frozen=True)
class Cluster:
    """A Kafka cluster.

    Attributes:
        servers: Its addresses.
        logs: The folder below which the broker has its logs; None if they are elsewhere.
        broker: The broker, if it belongs to the benchmark.
    """

    servers: str
    logs: Path | None = None
    broker: EmbeddedBroker | None = None

    @property
    def client(self) -> dict[str, str]:
        """Kafka client properties."""
        return {"bootstrap.servers": self.servers}

    def create(self, topics: Iterable[str], partitions: int) -> None:
        """Creates topics."""
        with KafkaAdmin(self.client) as admin:
            admin.create_topics([TopicSpec(name, partitions, dict(_KEPT), 1) for name in topics])

    def delete(self, topics: Iterable[str]) -> None:
        """Deletes topics."""
        with KafkaAdmin(self.client) as admin:
            admin.delete_topics(topics)

    def topics(self) -> list[str]:
        """All topics."""
        with KafkaAdmin(self.client) as admin:
            return admin.topic_names()

    def internal_topics(self, application_id: str) -> list[str]:
        """The topics that a system has made for itself: changelogs, repartition topics, commit logs."""
        return sorted(name for name in self.topics() if application_id in name)

    def log_bytes(self, topics: Iterable[str]) -> int | None:
        """Bytes of the topics' log segments on disk, as far as they are not yet deleted; None if the logs are elsewhere."""
        if self.logs is None:
            return None
        return sum(path.stat().st_size for topic in topics for path in self.logs.rglob(f"{topic}-[0-9]*/*.log"))

    def end_offsets(self, topics: Iterable[str]) -> int:
        """The sum of the ends of the topics' partitions."""
        with KafkaAdmin(self.client) as admin:
            found = admin.describe_topics(list(topics))
            places = [(name, number) for name, info in found.items() for number in range(info.partitions)]
            return sum(admin.end_offsets(places).values()) if places else 0


@contextmanager
def own_cluster(folder: Path) -> Iterator[Cluster]:
    """A broker for the duration of the context."""
    fetch_jars()
    with EmbeddedBroker(folder, properties=_PATIENT, die_with_parent=True) as broker:
        yield Cluster(broker.bootstrap_servers, folder, broker)
