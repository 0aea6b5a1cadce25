"""The requests of planning to Kafka, and a `KafkaAdmin` that retries while brokers are away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from state.kafka.topics import TopicPartition

if TYPE_CHECKING:
    from state.kafka.admin import KafkaAdmin
    from state.kafka.patience import Patience
    from state.kafka.topics import TopicInfo as KafkaTopicInfo


class TopicInfo(Protocol):
    """The part of a topic's description that the planner uses."""

    @property
    def topic_id(self) -> str: ...
    @property
    def partitions(self) -> int: ...


class Admin(Protocol):
    """The part of `state.kafka.admin.KafkaAdmin` that the planner uses."""

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, TopicInfo]: ...
    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]: ...
    def delete_records(self, before: Mapping[TopicPartition, int]) -> object: ...


class PatientAdmin:
    """An admin client that retries while brokers are away, except deletions of records, which may fail.

    Args:
        admin: Asks Kafka.
        patience: Decides how long to retry.
    """

    def __init__(self, admin: KafkaAdmin, patience: Patience) -> None:
        self._admin = admin
        self._patience = patience

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, KafkaTopicInfo]:
        return self._patience(lambda: self._admin.describe_topics(names))

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._patience(lambda: self._admin.begin_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition], committed: bool = True) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        return self._patience(lambda: self._admin.end_offsets(wanted, committed))

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return self._patience(lambda: self._admin.offsets_for_times(times))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> object:
        return self._admin.delete_records(before)
