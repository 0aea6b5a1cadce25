"""Requests that only Kafka's own admin client in Java can make: open transactions, and the end of hanging ones (KIP-664).

librdkafka has none of them. The client comes from the embedded broker's jars and runs in a Java process of its own, which py4j
starts and which ends with this one. The properties of librdkafka are translated; the ones that cannot be are refused by name,
because a client with other credentials than the user named would be worse than none.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from state.errors import KafkaClientError
from state.kafka.topics import TopicPartition
from streams.broker.jars import class_path, find_java, jar_of_pyspark
from streams.errors import ConfigError


class OpenProducer(NamedTuple):
    """A producer with an open transaction, as the partition's leader knows it.

    Attributes:
        coordinator_epoch: The epoch of the coordinator that closed the producer's last transaction here; -1: none yet.
        start_offset: The offset of the transaction's first record.
    """

    producer_id: int
    epoch: int
    coordinator_epoch: int
    start_offset: int


class CoordinatorView(NamedTuple):
    """A transactional id, as its coordinator knows it.

    Attributes:
        state: The name of the state, such as `Ongoing`.
        started_ms: When the transaction began, ms since 1970; None: there is none.
    """

    transactional_id: str
    epoch: int
    state: str
    started_ms: int | None
    timeout_ms: int
    partitions: frozenset[TopicPartition]


_SAME = {"bootstrap.servers", "security.protocol", "ssl.endpoint.identification.algorithm", "client.id"}


def java_properties(client: Mapping[str, str]) -> dict[str, str]:
    """Properties of librdkafka as properties of Kafka's Java clients.

    Raises:
        ConfigError: A property about the connection has no counterpart.
    """
    found = {key: value for key, value in client.items() if key in _SAME}
    if found.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""
    mechanism = client.get("sasl.mechanism") or client.get("sasl.mechanisms")
    if mechanism:
        if mechanism != "PLAIN" and not mechanism.startswith("SCRAM-"):
            raise _untranslated(f"sasl.mechanism={mechanism}")
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        name, password = (_quoted(client.get(f"sasl.{what}", "")) for what in ("username", "password"))
        found["sasl.mechanism"] = mechanism
        found["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required username={name} password={password};"
        )
    if "ssl.ca.location" in client:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": client["ssl.ca.location"]}
    if "ssl.certificate.location" in client and "ssl.key.location" in client:
        found["ssl.keystore.type"] = "PEM"
        found["ssl.keystore.certificate.chain"] = Path(client["ssl.certificate.location"]).read_text(encoding="utf-8")
        found["ssl.keystore.key"] = Path(client["ssl.key.location"]).read_text(encoding="utf-8")
        if "ssl.key.password" in client:
            found["ssl.key.password"] = client["ssl.key.password"]
    known = _SAME | {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"}
    known |= {"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"}
    for key in sorted(client.keys() - known):
        if key.startswith(("ssl.", "sasl.")):
            raise _untranslated(key)
    return found


def _untranslated(what: str) -> ConfigError:
    return ConfigError(
        f"{what}: the requests about transactions need Kafka's client in Java, and this property has no translation for it. Use "
        f"Kafka's own `kafka-transactions.sh --command-config FILE` with the properties of a Java client"
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class JavaAdmin:
    """Kafka's admin client in Java, for the requests of KIP-664; use it as a context manager.

    Raises:
        ConfigError: A property cannot be translated.
        JavaError: There is no usable Java.
        JarsMissingError: The broker's jars have not been fetched.
    """

    def __init__(self, client: Mapping[str, str]) -> None:
        properties, jars, java = java_properties(client), class_path(), str(find_java())
        port, token = launch_gateway(
            jarpath=str(jar_of_pyspark("py4j")),
            classpath=jars,
            javaopts=["-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"],
            die_on_exit=True,
            java_path=java,
            enable_auth=True,
            redirect_stdout=subprocess.DEVNULL,
            redirect_stderr=subprocess.DEVNULL,
        )
        parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
        self._gateway: Any = JavaGateway(gateway_parameters=parameters)
        self._jvm = self._gateway.jvm
        self._admin = self._jvm.org.apache.kafka.clients.admin.Admin.create(properties)

    def open_producers(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, list[OpenProducer]]:
        """The producers with an open transaction on partitions, as the partitions' leaders know them."""
        asked = {place: self._place(place) for place in partitions}
        if not asked:
            return {}
        result = self._admin.describeProducers(set(asked.values()))
        return {place: self._open(place, result.partitionResult(java)) for place, java in asked.items()}

    def _open(self, place: TopicPartition, future: Any) -> list[OpenProducer]:
        producers = self._get(future, f"describing the producers of {place[0]}-{place[1]}").activeProducers()
        return [
            OpenProducer(
                one.producerId(),
                one.producerEpoch(),
                one.coordinatorEpoch().orElse(-1),
                one.currentTransactionStartOffset().getAsLong(),
            )
            for one in producers
            if one.currentTransactionStartOffset().isPresent()
        ]

    def coordinators(self, producer_ids: Collection[int]) -> dict[int, CoordinatorView]:
        """Producer id -> its transactional id's state at the coordinator; ids that no coordinator knows are left out."""
        if not producer_ids:
            return {}
        listed = self._get(self._admin.listTransactions().all(), "listing transactions")
        names = {one.transactionalId() for one in listed if one.producerId() in producer_ids}
        if not names:
            return {}
        described = self._admin.describeTransactions(names)
        found = {}
        for name in sorted(names):
            one = self._get(described.description(name), f"describing the transaction of {name}")
            started = one.transactionStartTimeMs()
            found[one.producerId()] = CoordinatorView(
                name,
                one.producerEpoch(),
                str(one.state()),
                started.getAsLong() if started.isPresent() else None,
                one.transactionTimeoutMs(),
                frozenset((place.topic(), place.partition()) for place in one.topicPartitions()),
            )
        return found

    def producer(self, transactional_id: str) -> tuple[int, int]:
        described = self._admin.describeTransactions({transactional_id}).description(transactional_id)
        found = self._get(described, f"describing the transaction of {transactional_id}")
        return found.producerId(), found.producerEpoch()

    def fence(self, transactional_id: str) -> None:
        """Fences a producer; its coordinator aborts its open transaction."""
        self._get(self._admin.fenceProducers({transactional_id}).all(), f"fencing {transactional_id}")

    def abort(self, place: TopicPartition, producer: OpenProducer) -> None:
        """Aborts a transaction on one partition, without its coordinator."""
        spec = self._jvm.org.apache.kafka.clients.admin.AbortTransactionSpec(
            self._place(place), producer.producer_id, producer.epoch, max(0, producer.coordinator_epoch)
        )
        self._get(self._admin.abortTransaction(spec).all(), f"aborting the transaction on {place[0]}-{place[1]}")

    def _place(self, place: TopicPartition) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(*place)

    def _get(self, future: Any, what: str) -> Any:
        try:
            return future.get()
        except Py4JJavaError as error:
            cause = error.java_exception.getCause() or error.java_exception
            raise KafkaClientError(f"{what} failed: {cause.getMessage()}") from error

    def close(self) -> None:
        self._gateway.shutdown()

    def __enter__(self) -> JavaAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
