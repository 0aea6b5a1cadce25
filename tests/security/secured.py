"""Certificates for tests, and a TLS server that presents one of them."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from state.kafka.admin import KafkaAdmin
from state.kafka.connection import grant_rights
from state.kafka.topics import TopicSpec
from streams import Consumed, JsonSerde, StreamsBuilder, StringSerde
from streams.application.rights import NeededRights, Right, needed_rights
from streams.broker import EmbeddedBroker
from streams.config import ErrorPolicy, StreamsConfig
from streams.drills.topics import read_first
from streams.topology.topology import Topology


@dataclass(frozen=True)
class Authority:
    """An authority that signs certificates, in a folder."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, folder: Path) -> Authority:
        """A new authority, whose certificate is `ca.pem` in the folder."""
        key, name = ec.generate_private_key(ec.SECP256R1()), _name("authority")
        basic = x509.BasicConstraints(ca=True, path_length=None)
        made = _builder(name, name, key, 365).add_extension(basic, critical=True).sign(key, hashes.SHA256())
        folder.mkdir(parents=True, exist_ok=True)
        authority = cls(folder, key, made)
        authority.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return authority

    @property
    def file(self) -> Path:
        """The file with the authority's certificate."""
        return self.folder / "ca.pem"

    def server(self, *, address: str = "127.0.0.1", days: int = 365) -> ssl.SSLContext:
        """The context of a server with a certificate for an address, valid for some days from now (below 0: expired)."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        made = _builder(_name("server"), self.certificate.subject, key, days).add_extension(names, critical=False)
        file = self.folder / f"server-{address}-{days}.pem"
        file.write_bytes(
            made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=400))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


@contextmanager
def server(context: ssl.SSLContext | None) -> Iterator[int]:
    """A server on this machine, and its port: it completes TLS handshakes; without a context, it is a service without TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_serve, args=(listening, context), daemon=True).start()
        yield listening.getsockname()[1]


def _serve(listening: socket.socket, context: ssl.SSLContext | None) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            connection.settimeout(5)
            if context is None:
                connection.recv(1)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            else:
                with context.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(1)


# --- A secured broker, users with some rights, and an application that uses every kind of resource.

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
