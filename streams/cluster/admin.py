"""Questions of commands to any Kafka cluster: topics and sizes, settings of brokers, replicas, members of groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import confluent_kafka
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType, TopicMetadata

from state.errors import AuthenticationError, KafkaClientError, TlsError
from state.kafka.config import admin_config
from state.kafka.connection import CONNECT_S, first_contact
from state.kafka.error_mapping import failure_of
from state.kafka.topics import TopicPartition
from streams.errors import ClusterUnreachableError, ConfigError

_INTERNAL_PREFIX = "__"


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """One topic.

    Attributes:
        partitions: The number of partitions.
        offsets: End minus beginning offset over all partitions. There are as many records, or fewer: transaction markers
            and compacted records count, too. None if a partition's offsets could not be determined.
    """

    name: str
    partitions: int
    offsets: int | None


def list_topics(client: Mapping[str, str], *, internal: bool = False, timeout_s: float = 10.0) -> list[TopicSummary]:
    """The cluster's topics, sorted by name.

    Raises:
        ConfigError: The client does not know a property or its value.
        ClusterUnreachableError: The cluster did not answer in time; the message has the client's last error.
    """
    admin, found = _connect(client, timeout_s)
    partitions = {
        name: len(topic.partitions)
        for name, topic in found.items()
        if internal or not name.startswith(_INTERNAL_PREFIX)
    }
    offsets = _offsets(admin, partitions, timeout_s)
    return [TopicSummary(name, partitions[name], offsets[name]) for name in sorted(partitions)]


def check_reachable(client: Mapping[str, str]) -> None:
    """Checks that the cluster answers, so that a wrong address gives one clear error before clients log pages about it.

    Raises:
        ConfigError: The client does not know a property or its value.
        AuthenticationError: The cluster does not accept the user, the password or the mechanism.
        TlsError: A certificate does not fit, or one end speaks no TLS.
        ClusterUnreachableError: No answer within `CONNECT_S`; the message has the client's last error.
    """
    _connect(client, CONNECT_S)


def sizes_on_disk(data_dir: Path) -> dict[str, int]:
    """Returns the size of each topic in an embedded broker's data folder in bytes, over all its nodes."""
    sizes: dict[str, int] = {}
    for segment in data_dir.glob("node-*/data/*-*/*.log"):
        topic = segment.parent.name.rpartition("-")[0]
        try:
            sizes[topic] = sizes.get(topic, 0) + segment.stat().st_size
        except FileNotFoundError:
            # Deleted by the broker in the meantime.
            continue
    return sizes


def _connect(client: Mapping[str, str], timeout_s: float) -> tuple[AdminClient, Mapping[str, TopicMetadata]]:
    """Connects a client, and returns it with the cluster's topics once the cluster has answered."""
    try:
        admin, found = first_contact(client, timeout_s)
    except KafkaException as error:
        raise ConfigError(f"The Kafka client refuses its properties: {error.args[0].str()}.") from error
    except (AuthenticationError, TlsError):
        raise
    except KafkaClientError as error:
        cause = error if error.failure is None else error.failure.text
        raise ClusterUnreachableError(
            f"Kafka at {client.get('bootstrap.servers')} did not answer: {cause}. "
            "Check that it runs, the address, and the security settings."
        ) from error
    return admin, found.topics


def _offsets(admin: AdminClient, partitions: Mapping[str, int], timeout_s: float) -> dict[str, int | None]:
    every = [
        confluent_kafka.TopicPartition(name, number) for name, count in partitions.items() for number in range(count)
    ]
    if not every:
        return {}
    asked = [
        admin.list_offsets({partition: spec() for partition in every}, request_timeout=timeout_s) for spec in _SPECS
    ]
    sums: dict[str, int | None] = dict.fromkeys(partitions, 0)
    for partition in every:
        begin, end = (_offset(answers[partition]) for answers in asked)
        so_far = sums[partition.topic]
        if begin is None or end is None or so_far is None:
            sums[partition.topic] = None
        else:
            sums[partition.topic] = so_far + end - begin
    return sums


_SPECS: tuple[Callable[[], OffsetSpec], ...] = (OffsetSpec.earliest, OffsetSpec.latest)


def _offset(answer: Any) -> int | None:
    try:
        return int(answer.result().offset)
    except KafkaException:
        return None


_Result = TypeVar("_Result")


class Replicas(NamedTuple):
    """A partition's number of replicas, and how many of them are in sync."""

    all: int
    in_sync: int


_REQUEST_S = 15.0


class Survey:
    """Asks a cluster for what `streams doctor` reports."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._admin = AdminClient(admin_config(client))

    def broker_settings(self) -> dict[int, dict[str, str]]:
        """The settings of each broker, defaults included; a setting that is a secret is left out."""
        nodes = _result(self._admin.describe_cluster(request_timeout=_REQUEST_S), "describing the cluster").nodes
        resources = [ConfigResource(ResourceType.BROKER, str(node.id)) for node in nodes]
        asked = self._admin.describe_configs(resources, request_timeout=_REQUEST_S)
        return {
            int(resource.name): {key: entry.value for key, entry in entries.items() if entry.value is not None}
            for resource, future in asked.items()
            for entries in [_result(future, f"reading the settings of broker {resource.name}")]
        }

    def replicas(self, topics: Collection[str]) -> dict[TopicPartition, Replicas]:
        """The replicas of the partitions of existing topics."""
        if not topics:
            return {}
        asked = self._admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=_REQUEST_S)
        return {
            (name, one.id): Replicas(len(one.replicas), len(one.isr))
            for name, future in asked.items()
            for one in _result(future, f"describing topic {name!r}").partitions
        }

    def group_members(self, group: str) -> list[str]:
        """The members of a consumer group as `client id on host`; none if there is no such group."""
        asked = self._admin.describe_consumer_groups([group], request_timeout=_REQUEST_S)
        try:
            members = _result(asked[group], f"describing consumer group {group!r}").members
        except KafkaClientError as error:
            if error.failure is not None and error.failure.name == "GROUP_ID_NOT_FOUND":
                return []
            raise
        return sorted(f"{member.client_id} on {member.host.lstrip('/')}" for member in members)


def _result(future: Future[_Result], what: str) -> _Result:
    try:
        return future.result()
    except KafkaException as exception:
        raise KafkaClientError(
            f"{what} failed; check the brokers and the rights", failure_of(exception.args[0])
        ) from exception
