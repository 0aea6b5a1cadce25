"""`KafkaAdmin`: the topic requests that the engine needs, batched.

The wrapper sends one request for many partitions, returns plain values, leaves missing topics out of results, and raises
the errors of `state.errors`. Invariants: offsets are those that a `read_committed` reader can reach unless requested
otherwise; creating a topic returns when every partition has a leader, so that the next request finds it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType

from state.errors import KafkaClientError, TopicMismatchError, TopicNotFoundError
from state.kafka.admin.groups import commit_group_offsets, delete_group, group_offsets
from state.kafka.admin.offsets import LEADERLESS, list_offsets
from state.kafka.admin.requests import POLL_S, AdminRequests
from state.kafka.config import ClientConfig
from state.kafka.error_mapping import TOPIC_NOT_FOUND
from state.kafka.topics import TopicInfo, TopicPartition, TopicSpec


class KafkaAdmin:
    """Admin client; thread safe. Must be created after a fork, not before.

    Args:
        config: The user's client properties.
        timeout_s: Seconds that one request may take.
    """

    def __init__(self, config: ClientConfig, timeout_s: float = 30.0) -> None:
        self._requests = AdminRequests(config, timeout_s)

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Describe topics."""
        return {
            name: TopicInfo(str(described.topic_id), len(described.partitions))
            for name, described in self._requests.descriptions(names).items()
        }

    def broker_count(self) -> int:
        """The number of brokers that are up."""
        future = self._requests.client.describe_cluster(request_timeout=self._requests.timeout_s)
        return len(self._requests.result(future, "describing the cluster").nodes)

    def topic_names(self) -> list[str]:
        """All topics that these credentials may see, sorted; internal ones too."""
        return sorted(self._requests.partition_counts())

    def create_topics(self, topics: Iterable[TopicSpec]) -> None:
        """Create topics and wait until they are ready. An existing topic with as many partitions is left unchanged.

        Raises:
            TopicMismatchError: A topic exists with another number of partitions.
            KafkaClientError: The broker refused, or a topic was not ready in time.
        """
        specs = {spec.name: spec for spec in topics}
        missing = specs.keys() - self._requests.descriptions(specs).keys()
        if missing:
            new = [
                NewTopic(spec.name, spec.partitions, spec.replication, config=dict(spec.config))
                for spec in (specs[name] for name in sorted(missing))
            ]
            for name, future in self._requests.client.create_topics(
                new, request_timeout=self._requests.timeout_s
            ).items():
                try:
                    self._requests.result(future, f"creating topic {name!r}")
                except KafkaClientError as error:
                    # Another attempt may have been quicker: the wait below then decides whether its topic fits.
                    if error.code != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        self._wait_until_ready(specs)

    def _wait_until_ready(self, specs: Mapping[str, TopicSpec]) -> None:
        """Wait until each topic is described with all its partitions, and each partition has a leader that answers."""
        deadline = time.monotonic() + self._requests.timeout_s
        waiting = set(specs)
        while True:
            for name, described in self._requests.descriptions(waiting).items():
                if len(described.partitions) != specs[name].partitions:
                    raise TopicMismatchError(name, specs[name].partitions, len(described.partitions))
                if all(partition.leader is not None for partition in described.partitions):
                    waiting.discard(name)
            if not waiting:
                break
            if time.monotonic() > deadline:
                raise KafkaClientError(
                    f"topics {sorted(waiting)} have no leader after {self._requests.timeout_s:g} s; check the brokers",
                    LEADERLESS,
                )
            time.sleep(POLL_S)
        # A leader may be named before it knows the partition; the next request must not fail with "no such partition".
        places = [(name, number) for name, spec in specs.items() for number in range(spec.partitions)]
        list_offsets(self._requests, dict.fromkeys(places, OffsetSpec.earliest()), new=True)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and wait until they are gone; missing topics are ignored."""
        wanted = sorted(set(names))
        if not wanted:
            return
        for name, future in self._requests.client.delete_topics(
            wanted, request_timeout=self._requests.timeout_s
        ).items():
            try:
                self._requests.result(future, f"deleting topic {name!r}")
            except KafkaClientError as error:
                if error.code not in TOPIC_NOT_FOUND:
                    raise
        deadline = time.monotonic() + self._requests.timeout_s
        while self._requests.descriptions(wanted):
            if time.monotonic() > deadline:
                raise KafkaClientError(
                    f"topics {wanted} still exist {self._requests.timeout_s:g} s after they were deleted"
                )
            time.sleep(POLL_S)

    def topic_config(self, name: str) -> dict[str, str]:
        """Effective configuration of a topic, defaults included; sensitive values are left out.

        Raises:
            TopicNotFoundError: There is no such topic.
        """
        resource = ConfigResource(ResourceType.TOPIC, name)
        (future,) = self._requests.client.describe_configs(
            [resource], request_timeout=self._requests.timeout_s
        ).values()
        try:
            entries = self._requests.result(future, f"reading the configuration of topic {name!r}")
        except KafkaClientError as error:
            if error.code in TOPIC_NOT_FOUND:
                raise TopicNotFoundError(name, failure=error.failure) from error
            raise
        return {key: entry.value for key, entry in entries.items() if entry.value is not None}

    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """First offset of each partition's log."""
        found = list_offsets(self._requests, dict.fromkeys(partitions, OffsetSpec.earliest()))
        return {partition: info.offset for partition, info in found.items()}

    def end_offsets(self, partitions: Iterable[TopicPartition], committed: bool = True) -> dict[TopicPartition, int]:
        """End of each partition: the last stable offset, or with `committed=False` the end of the log (high watermark)."""
        found = list_offsets(self._requests, dict.fromkeys(partitions, OffsetSpec.latest()), committed)
        return {partition: info.offset for partition, info in found.items()}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """First offset whose timestamp is at or past a time, or the (committed) end if there is none.

        The search covers the whole log, including records read long ago and control records. Control records carry the broker's
        clock: where old events were written in transactions, the result may be the offset after the first transaction.
        """
        found = list_offsets(
            self._requests, {where: OffsetSpec.for_timestamp(time_ms) for where, time_ms in times.items()}
        )
        offsets = {where: info.offset for where, info in found.items()}
        none_later = [where for where, offset in offsets.items() if offset < 0]
        return {**offsets, **self.end_offsets(none_later)}

    def max_timestamps(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Largest timestamp of each partition, milliseconds; -1 for an empty partition.

        Control records count too, with the broker's clock as timestamp.
        """
        found = list_offsets(self._requests, dict.fromkeys(partitions, OffsetSpec.max_timestamp()))
        return {partition: info.timestamp for partition, info in found.items()}

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below an offset (refused by topics that are only compacted)."""
        if not before:
            return {}
        client = self._requests.client_knowing(topic for topic, _ in before)
        request = [KafkaPartition(topic, number, offset) for (topic, number), offset in before.items()]
        futures = client.delete_records(request, request_timeout=self._requests.timeout_s)
        return {
            (where.topic, where.partition): self._requests.result(
                future, f"deleting records of {where.topic}-{where.partition} below {where.offset}"
            ).low_watermark
            for where, future in futures.items()
        }

    def group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Committed offsets of a consumer group; empty for a group that does not exist."""
        return {place: at for place, (at, _) in group_offsets(self._requests, group, partitions).items()}

    def group_notes(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, str]]:
        """Like `group_offsets`, with the metadata that was committed with each offset."""
        return group_offsets(self._requests, group, partitions)

    def commit_group_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commit offsets of a consumer group, with metadata.

        Raises:
            KafkaClientError: The group has members, or the broker refused.
        """
        commit_group_offsets(self._requests, group, offsets)

    def delete_group(self, group: str) -> bool:
        """Delete a consumer group with its committed offsets.

        Raises:
            KafkaClientError: The group has members, or the broker refused.
        """
        return delete_group(self._requests, group)

    def close(self) -> None:
        """Release the client; may be called again."""
        self._requests.close()

    def __enter__(self) -> KafkaAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LateAdmin:
    """An admin client that is opened when it is first needed, for requests now and then. Thread-safe.

    Args:
        config: The user's client properties.
        timeout_s: Seconds that one request may take.
    """

    def __init__(self, config: ClientConfig, timeout_s: float) -> None:
        self._config, self._timeout_s = config, timeout_s
        self._lock = threading.Lock()
        self._admin: KafkaAdmin | None = None

    def __call__(self) -> KafkaAdmin:
        with self._lock:
            if self._admin is None:
                self._admin = KafkaAdmin(self._config, timeout_s=self._timeout_s)
            return self._admin

    def close(self) -> None:
        """Closes the client, if there is one. The caller knows that nobody is asking it anything."""
        with self._lock:
            if self._admin is not None:
                self._admin.close()
            self._admin = None
