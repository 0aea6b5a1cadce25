"""A secured broker, users with some rights, and an application that uses every kind of resource."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from state.kafka.admin import KafkaAdmin
from state.kafka.connection import grant_rights
from state.kafka.topics import TopicSpec
from streams import Consumed, JsonSerde, StreamsBuilder, StringSerde
from streams.application.rights import NeededRights, Right, needed_rights
from streams.broker import EmbeddedBroker
from streams.config import ErrorPolicy, StreamsConfig
from streams.drills.topics import read_first
from streams.topology.topology import Topology

ORDERS, CUSTOMERS, COUNTS, DEAD = "orders", "customers", "counts", "dead-orders"
APPLICATION = "secured"
_SOON_S = 60.0


def counts_by_country() -> Topology:
    """Orders with customers of a global table, counted by country behind a repartition topic."""
    builder = StreamsBuilder()
    text = Consumed(key_serde=StringSerde(), value_serde=JsonSerde())
    customers = builder.global_table(CUSTOMERS, text)
    (
        builder.stream(ORDERS, text)
        .join(customers, lambda order, customer: customer["country"], key_selector=lambda order: order["customer"])
        .group_by(lambda key, country: country)
        .count()
        .to_stream()
        .to(COUNTS)
    )
    return builder.build()


def settings(client: Mapping[str, str], folder: Path, **more: object) -> StreamsConfig:
    """The application's settings for a user's client properties."""
    kafka = {key: value for key, value in client.items() if key != "bootstrap.servers"}
    given = {
        "deserialization": ErrorPolicy("dlq"),
        "dead_letter_topic": DEAD,
        "available_now": True,
        "global_table_errors": ErrorPolicy("fail"),
        **more,
    }
    return StreamsConfig(
        application_id=APPLICATION, bootstrap_servers=client["bootstrap.servers"], kafka=kafka, base_dir=folder, **given
    )


@dataclass
class Secured:
    """The cluster, seen by its admin.

    Attributes:
        broker: The secured broker.
    """

    broker: EmbeddedBroker
    admin: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.admin = self.broker.client()

    def needed(self, folder: Path) -> NeededRights:
        """What the application needs."""
        return needed_rights(counts_by_country(), settings(self.admin, folder))

    def grant(self, user: str, rights: Iterable[Right]) -> None:
        """Gives a user rights, and waits until the broker has them."""
        wanted = [(one.resource.value, one.name, one.prefixed, one.operations) for one in rights]
        count = grant_rights(self.admin, f"User:{user}", wanted)
        deadline = time.monotonic() + _SOON_S
        while self._granted(user) < count:
            assert time.monotonic() < deadline, f"the broker has not taken over the ACLs of {user}"
            time.sleep(0.02)

    def _granted(self, user: str) -> int:
        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{user}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        client = AdminClient(self.admin)
        return len(client.describe_acls(every, request_timeout=_SOON_S).result())

    def make_topics(self) -> None:
        """Makes the application's own topics, with records."""
        with KafkaAdmin(self.admin) as admin:
            admin.create_topics(
                [TopicSpec(name, 2, {"retention.ms": "-1"}, 1) for name in (ORDERS, CUSTOMERS, COUNTS, DEAD)]
            )
        self.send(CUSTOMERS, [("ann", b'{"country": "no"}'), ("bob", b'{"country": "fr"}')])
        self.send(ORDERS, [("1", b'{"customer": "ann"}'), ("2", b'{"customer": "bob"}'), ("3", b'{"customer": "ann"}')])
        self.send(ORDERS, [("4", b"not JSON")])

    def send(self, topic: str, records: Sequence[tuple[str, bytes]]) -> None:
        """Produces records as the admin."""
        producer = Producer({**self.admin, "enable.idempotence": True, "partitioner": "murmur2_random"})
        for key, value in records:
            producer.produce(topic, value, key.encode(), timestamp=1_000)
        assert producer.flush(_SOON_S) == 0

    def table(self, topic: str) -> dict[bytes | None, bytes | None]:
        """The last committed value of each key of a topic."""
        return {record.key: record.value for record in read_first(self.admin, topic, 1_000)}

    def topics(self) -> list[str]:
        """The names of all topics but Kafka's own."""
        with KafkaAdmin(self.admin) as admin:
            return [name for name in admin.topic_names() if not name.startswith("__")]

    def offsets(self) -> dict[tuple[str, int], int]:
        """What the application's group has committed."""
        with KafkaAdmin(self.admin) as admin:
            return admin.group_offsets(APPLICATION)

    def log_ends(self) -> dict[tuple[str, int], int]:
        """The end of each partition's log."""
        with KafkaAdmin(self.admin) as admin:
            found = admin.describe_topics(self.topics())
            return admin.end_offsets(
                [(name, p) for name, info in found.items() for p in range(info.partitions)], committed=False
            )


def without(rights: Sequence[Right], index: int) -> list[Right]:
    """Rights without one of them."""
    return [right for number, right in enumerate(rights) if number != index]
