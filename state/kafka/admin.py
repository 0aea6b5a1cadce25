"""`KafkaAdmin`: the topic requests that the engine needs, batched.

The wrapper sends one request for many partitions, returns plain values, leaves missing topics out of results, and raises
the errors of `state.errors`. Invariants: offsets are those that a `read_committed` reader can reach unless requested
otherwise; creating a topic returns when every partition has a leader, so that the next request finds it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import (
    TopicPartition as KafkaPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from state.errors import ClientFailure, KafkaClientError, TopicMismatchError, TopicNotFoundError
from state.kafka.config import QUIET, ClientConfig, admin_config
from state.kafka.error_mapping import TOPIC_NOT_FOUND, TRANSIENT, failure_of, request_error, timed_out
from state.kafka.topics import TopicInfo, TopicPartition, TopicSpec

__all__ = ["KafkaAdmin", "TopicInfo", "TopicPartition", "TopicSpec"]

_Result = TypeVar("_Result")
_POLL_S = 0.05
# Requests time out by themselves; this only guards against an answer that never comes.
_GRACE_S = 5.0
# The group's coordinator is moving or new; a repeated request succeeds.
_COORDINATOR_AWAY = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
# The codes of listing offsets for a topic or partition that does not exist, and for one whose leader is away.
_NO_LEADER = TOPIC_NOT_FOUND | {KafkaError._NOENT}
_LEADERLESS = ClientFailure(KafkaError.LEADER_NOT_AVAILABLE, "LEADER_NOT_AVAILABLE", "no leader", retriable=True)
# The same codes come for a moment for a new partition: it was described, but its leader does not know it yet.
_NEW_PARTITION_S = 1.0


class KafkaAdmin:
    """Admin client; thread safe. Must be created after a fork, not before.

    Args:
        config: The user's client properties.
        timeout_s: Seconds that one request may take.
    """

    def __init__(self, config: ClientConfig, timeout_s: float = 30.0) -> None:
        self._config = config
        self._timeout_s = timeout_s
        self._admin: AdminClient | None = AdminClient(admin_config(config))

    @property
    def _client(self) -> AdminClient:
        if self._admin is None:
            raise KafkaClientError("this admin client is closed; open a new one")
        return self._admin

    def _result(self, future: Future[_Result], what: str) -> _Result:
        """Wait for the result for one item of a request; a failure is raised as a named error."""
        try:
            return future.result(self._timeout_s + _GRACE_S)
        except KafkaException as exception:
            failure = failure_of(exception.args[0])
            raise request_error(what, "check the brokers and the rights", failure) from exception
        except TimeoutError as timeout:
            message = f"{what} took longer than {self._timeout_s:g} s; check the brokers"
            raise KafkaClientError(message, timed_out("no answer")) from timeout

    def _descriptions(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Descriptions of the existing ones of these topics."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        futures = self._client.describe_topics(TopicCollection(wanted), request_timeout=self._timeout_s)
        found = {}
        for name, future in futures.items():
            try:
                found[name] = self._result(future, f"describing topic {name!r}")
            except KafkaClientError as error:
                if error.code not in TOPIC_NOT_FOUND:
                    raise
        return found

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Describe topics.

        Args:
            names: Topics to describe.

        Returns:
            The existing topics; missing ones are left out.
        """
        return {
            name: TopicInfo(str(described.topic_id), len(described.partitions))
            for name, described in self._descriptions(names).items()
        }

    def broker_count(self) -> int:
        """The number of brokers that are up."""
        future = self._client.describe_cluster(request_timeout=self._timeout_s)
        return len(self._result(future, "describing the cluster").nodes)

    def topic_names(self) -> list[str]:
        """All topics that these credentials may see, sorted; internal ones too."""
        return sorted(self._metadata())

    def _metadata(self) -> dict[str, int]:
        """Every topic's number of partitions."""
        try:
            topics = self._client.list_topics(timeout=self._timeout_s).topics
        except KafkaException as exception:
            failure = failure_of(exception.args[0])
            raise request_error("listing topics", "check the brokers", failure) from exception
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def create_topics(self, topics: Iterable[TopicSpec]) -> None:
        """Create topics and wait until they are ready. An existing topic with as many partitions is left unchanged.

        Args:
            topics: The topics to create.

        Raises:
            TopicMismatchError: A topic exists with another number of partitions.
            KafkaClientError: The broker refused, or a topic was not ready in time.
        """
        specs = {spec.name: spec for spec in topics}
        missing = specs.keys() - self._descriptions(specs).keys()
        if missing:
            new = [
                NewTopic(spec.name, spec.partitions, spec.replication, config=dict(spec.config))
                for spec in (specs[name] for name in sorted(missing))
            ]
            for name, future in self._client.create_topics(new, request_timeout=self._timeout_s).items():
                try:
                    self._result(future, f"creating topic {name!r}")
                except KafkaClientError as error:
                    # Another attempt may have been quicker: the wait below then decides whether its topic fits.
                    if error.code != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        self._wait_until_ready(specs)

    def _wait_until_ready(self, specs: Mapping[str, TopicSpec]) -> None:
        """Wait until each topic is described with all its partitions, and each partition has a leader that answers."""
        deadline = time.monotonic() + self._timeout_s
        waiting = set(specs)
        while True:
            for name, described in self._descriptions(waiting).items():
                if len(described.partitions) != specs[name].partitions:
                    raise TopicMismatchError(name, specs[name].partitions, len(described.partitions))
                if all(partition.leader is not None for partition in described.partitions):
                    waiting.discard(name)
            if not waiting:
                break
            if time.monotonic() > deadline:
                raise KafkaClientError(
                    f"topics {sorted(waiting)} have no leader after {self._timeout_s:g} s; check the brokers",
                    _LEADERLESS,
                )
            time.sleep(_POLL_S)
        # A leader may be named before it knows the partition; the next request must not fail with "no such partition".
        places = [(name, number) for name, spec in specs.items() for number in range(spec.partitions)]
        self._list_offsets(dict.fromkeys(places, OffsetSpec.earliest()), new=True)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and wait until they are gone; missing topics are ignored."""
        wanted = sorted(set(names))
        if not wanted:
            return
        for name, future in self._client.delete_topics(wanted, request_timeout=self._timeout_s).items():
            try:
                self._result(future, f"deleting topic {name!r}")
            except KafkaClientError as error:
                if error.code not in TOPIC_NOT_FOUND:
                    raise
        deadline = time.monotonic() + self._timeout_s
        while self._descriptions(wanted):
            if time.monotonic() > deadline:
                raise KafkaClientError(f"topics {wanted} still exist {self._timeout_s:g} s after they were deleted")
            time.sleep(_POLL_S)

    def topic_config(self, name: str) -> dict[str, str]:
        """Effective configuration of a topic, defaults included; sensitive values are left out.

        Raises:
            TopicNotFoundError: There is no such topic.
        """
        resource = ConfigResource(ResourceType.TOPIC, name)
        (future,) = self._client.describe_configs([resource], request_timeout=self._timeout_s).values()
        try:
            entries = self._result(future, f"reading the configuration of topic {name!r}")
        except KafkaClientError as error:
            if error.code in TOPIC_NOT_FOUND:
                raise TopicNotFoundError(name, failure=error.failure) from error
            raise
        return {key: entry.value for key, entry in entries.items() if entry.value is not None}

    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """First offset of each partition's log."""
        found = self._list_offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))
        return {partition: info.offset for partition, info in found.items()}

    def end_offsets(self, partitions: Iterable[TopicPartition], committed: bool = True) -> dict[TopicPartition, int]:
        """End of each partition: the last stable offset, or with `committed=False` the end of the log (high watermark)."""
        found = self._list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()), committed)
        return {partition: info.offset for partition, info in found.items()}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """First offset whose timestamp is at or past a time, or the (committed) end if there is none.

        The search covers the whole log, including records read long ago and control records. Control records carry the broker's
        clock: where old events were written in transactions, the result may be the offset after the first transaction.

        Args:
            times: (topic, partition) -> milliseconds since the epoch.
        """
        found = self._list_offsets({where: OffsetSpec.for_timestamp(time_ms) for where, time_ms in times.items()})
        offsets = {where: info.offset for where, info in found.items()}
        none_later = [where for where, offset in offsets.items() if offset < 0]
        return {**offsets, **self.end_offsets(none_later)}

    def max_timestamps(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Largest timestamp of each partition, milliseconds; -1 for an empty partition.

        Control records count too, with the broker's clock as timestamp.
        """
        found = self._list_offsets(dict.fromkeys(partitions, OffsetSpec.max_timestamp()))
        return {partition: info.timestamp for partition, info in found.items()}

    def _list_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], committed: bool = True, new: bool = False
    ) -> dict[TopicPartition, ListOffsetsResultInfo]:
        """One request for all partitions, repeated for those whose leader is being elected or was elected just now.

        Args:
            specs: The offset to look up for each partition.
            committed: See `end_offsets`.
            new: The partitions are known to exist, so the call waits for their leaders.

        Raises:
            TopicNotFoundError: A topic or partition does not exist.
            KafkaClientError: A partition has no leader (transient), or the request failed.
        """
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        found: dict[TopicPartition, ListOffsetsResultInfo] = {}
        waiting = {place: (KafkaPartition(*place), spec) for place, spec in specs.items()}
        begun = time.monotonic()
        while waiting:
            request = dict(waiting.values())
            futures = self._client.list_offsets(request, isolation_level=level, request_timeout=self._timeout_s)
            for where, future in futures.items():
                try:
                    info = self._listed(future, where)
                except KafkaClientError as error:
                    waited = time.monotonic() - begun
                    if error.code not in _NO_LEADER or waited > (self._timeout_s if new else _NEW_PARTITION_S):
                        self._raise_unless_passing(where, error, waited)
                    continue
                found[where.topic, where.partition] = info
                del waiting[where.topic, where.partition]
            if waiting:
                time.sleep(_POLL_S)
        return found

    def _listed(self, future: Future[ListOffsetsResultInfo], where: KafkaPartition) -> ListOffsetsResultInfo:
        """The answer for one partition. Where the leader died within the request, librdkafka 2.16 has neither answer nor error."""
        info = self._result(future, f"listing offsets of {where.topic}-{where.partition}")
        if info.offset == OFFSET_INVALID:
            raise _leaderless(where)
        return info

    def _raise_unless_passing(self, where: KafkaPartition, error: KafkaClientError, waited_s: float) -> None:
        """Raise the named error of one partition, unless the failure may resolve itself and has not had its time."""
        if error.code in _NO_LEADER:
            # The client reports a partition that never existed like one whose broker is away.
            described = self._descriptions([where.topic]).get(where.topic)
            if described is None or where.partition >= len(described.partitions):
                raise TopicNotFoundError(where.topic, where.partition, error.failure) from error
            error = _leaderless(where)
        if error.code not in TRANSIENT or waited_s > self._timeout_s:
            raise error

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below an offset (refused by topics that are only compacted).

        Args:
            before: (topic, partition) -> first offset to keep.

        Returns:
            The first offset that each partition now has.
        """
        if not before:
            return {}
        request = [KafkaPartition(topic, number, offset) for (topic, number), offset in before.items()]
        futures = self._client.delete_records(request, request_timeout=self._timeout_s)
        return {
            (where.topic, where.partition): self._result(
                future, f"deleting records of {where.topic}-{where.partition} below {where.offset}"
            ).low_watermark
            for where, future in futures.items()
        }

    def group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Committed offsets of a consumer group; empty for a group that does not exist.

        Args:
            group: The group's id.
            partitions: The partitions to look up; None = all partitions of all topics.
        """
        # Through a consumer that never joins: the admin request for this crashes the process (segmentation fault in librdkafka
        # 2.16) while the group's coordinator is not ready. Uncommitted, because read_committed would wait for transactions.
        # Quiet, because a coordinator that is not ready yet is asked again and need not be logged.
        quiet = {**QUIET, **self._config}["log_level"]
        properties = {
            **admin_config(self._config),
            "group.id": group,
            "isolation.level": "read_uncommitted",
            "log_level": quiet,
        }
        if partitions is None:
            partitions = [(name, number) for name, count in self._metadata().items() for number in range(count)]
        consumer = Consumer(properties)
        try:
            asked = [KafkaPartition(topic, number) for topic, number in partitions]
            found = consumer.committed(asked, self._timeout_s) if asked else []
        except KafkaException as exception:
            failure = failure_of(exception.args[0])
            raise request_error(f"reading the offsets of group {group!r}", "check the brokers", failure) from exception
        finally:
            consumer.close()
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def delete_group(self, group: str) -> bool:
        """Delete a consumer group with its committed offsets.

        Returns:
            Whether there was one.

        Raises:
            KafkaClientError: The group has members, or the broker refused.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            (future,) = self._client.delete_consumer_groups([group], request_timeout=self._timeout_s).values()
            try:
                self._result(future, f"deleting consumer group {group!r}")
            except KafkaClientError as error:
                if error.code == KafkaError.GROUP_ID_NOT_FOUND:
                    return False
                if error.code not in _COORDINATOR_AWAY or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)
            else:
                return True

    def close(self) -> None:
        """Release the client; may be called again."""
        self._admin = None

    def __enter__(self) -> KafkaAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _leaderless(where: KafkaPartition) -> KafkaClientError:
    """The error for a partition that nobody answers for at present."""
    return KafkaClientError(
        f"partition {where.partition} of topic {where.topic!r} has no leader: the brokers that hold it are away, or are "
        f"just starting; bring them back",
        _LEADERLESS,
    )
