"""Answers about brokers, replicas and consumer groups, for `streams doctor`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from state.errors import KafkaClientError
from state.kafka.config import admin_config
from state.kafka.error_mapping import failure_of
from state.kafka.topics import TopicPartition

_Result = TypeVar("_Result")


class Replicas(NamedTuple):
    """A partition's number of replicas, and how many of them are in sync."""

    all: int
    in_sync: int


class Survey:
    """Asks a cluster.

    Args:
        client: Client properties of librdkafka.
        timeout_s: How long each request may take, seconds.
    """

    def __init__(self, client: Mapping[str, str], timeout_s: float = 15.0) -> None:
        self._admin = AdminClient(admin_config(client))
        self._timeout_s = timeout_s

    def broker_settings(self) -> dict[int, dict[str, str]]:
        """The settings of each broker, defaults included; a setting that is a secret is left out."""
        nodes = _result(self._admin.describe_cluster(request_timeout=self._timeout_s), "describing the cluster").nodes
        resources = [ConfigResource(ResourceType.BROKER, str(node.id)) for node in nodes]
        asked = self._admin.describe_configs(resources, request_timeout=self._timeout_s)
        return {
            int(resource.name): {key: entry.value for key, entry in entries.items() if entry.value is not None}
            for resource, future in asked.items()
            for entries in [_result(future, f"reading the settings of broker {resource.name}")]
        }

    def replicas(self, topics: Collection[str]) -> dict[TopicPartition, Replicas]:
        """The replicas of the partitions of existing topics."""
        if not topics:
            return {}
        asked = self._admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=self._timeout_s)
        return {
            (name, one.id): Replicas(len(one.replicas), len(one.isr))
            for name, future in asked.items()
            for one in _result(future, f"describing topic {name!r}").partitions
        }

    def group_members(self, group: str) -> list[str]:
        """The members of a consumer group as `client id on host`; none if there is no such group."""
        asked = self._admin.describe_consumer_groups([group], request_timeout=self._timeout_s)
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
