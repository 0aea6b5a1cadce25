"""`KafkaAdmin`: requests about topics, offsets and groups. It also waits for brokers that are away or still deciding.

The wrapper sends one request for many partitions, returns plain values, leaves missing topics out of results, and raises the errors
of `state.errors`. Invariants: unless requested otherwise, offsets are the ones that a `read_committed` reader can reach; creating a
topic returns when every partition has a leader, so that the next request finds it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from state.errors import (
    AuthorizationError,
    ClientFailure,
    HangingTransactionError,
    KafkaClientError,
    TopicMismatchError,
    TopicNotFoundError,
)
from state.kafka.config import ClientConfig, admin_config
from state.kafka.error_mapping import NO_ANSWER, TOPIC_NOT_FOUND, TRANSIENT, failure_of, request_error, timed_out
from state.kafka.librdkafka import bulk_available, commit_offsets
from state.kafka.topics import LogEnds, RecordDeleter, TopicInfo, TopicPartition, TopicSpec

POLL_S = 0.05
"""The pause before a request is repeated, seconds."""
_Result = TypeVar("_Result")
# Requests time out by themselves; this only guards against an answer that never comes.
_GRACE_S = 5.0
# librdkafka forgets the leaders of topics after `metadata.max.age.ms`, 15 minutes by default.
_LEADERS_KNOWN_S = 300.0


class AdminRequests:
    """The requests of a `KafkaAdmin`, and its client until `close`.

    Attributes:
        config: The user's client properties.
        timeout_s: Seconds that one request may take.
    """

    def __init__(self, config: ClientConfig, timeout_s: float) -> None:
        self.config = config
        self.timeout_s = timeout_s
        self._admin: AdminClient | None = AdminClient(admin_config(config))
        self._unanswered = False
        self._leaders_of: set[str] = set()
        self._leaders_since = 0.0

    @property
    def client(self) -> AdminClient:
        """The client. Raises `KafkaClientError` once it is closed."""
        if self._admin is None:
            raise KafkaClientError("this admin client is closed; open a new one")
        if self._unanswered:
            self._admin, self._unanswered = AdminClient(admin_config(self.config)), False
            self._leaders_of = set()
        return self._admin

    def result(self, future: Future[_Result], what: str) -> _Result:
        """Wait for the result for one item of a request; a failure is raised as a named error."""
        try:
            return future.result(self.timeout_s + _GRACE_S)
        except KafkaException as exception:
            failure = self._failure(exception)
            raise request_error(what, "check the brokers and the rights", failure) from exception
        except TimeoutError as timeout:
            self.replace_client()
            message = f"{what} took longer than {self.timeout_s:g} s; check the brokers"
            raise KafkaClientError(message, timed_out("no answer")) from timeout

    def _failure(self, exception: KafkaException) -> ClientFailure:
        failure = failure_of(exception.args[0])
        if failure.code in NO_ANSWER:
            self.replace_client()
        return failure

    def replace_client(self) -> None:
        """Use another client for the next request, because this one got no answer."""
        self._unanswered = True

    def descriptions(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Descriptions of those topics that exist."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        futures = self.client.describe_topics(TopicCollection(wanted), request_timeout=self.timeout_s)
        found = {}
        for name, future in futures.items():
            try:
                found[name] = self.result(future, f"describing topic {name!r}")
            except KafkaClientError as error:
                if error.code not in TOPIC_NOT_FOUND:
                    raise
        return found

    def partition_counts(self) -> dict[str, int]:
        """Every topic's number of partitions."""
        return self._counts(self.client)

    def _counts(self, client: AdminClient) -> dict[str, int]:
        try:
            topics = client.list_topics(timeout=self.timeout_s).topics
        except KafkaException as exception:
            failure = self._failure(exception)
            raise request_error("listing topics", "check the brokers", failure) from exception
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def client_knowing(self, topics: Iterable[str]) -> AdminClient:
        """The client, after it has learned the leaders of topics, for a request that it distributes among leaders.

        If librdkafka 2.16 has to ask for leaders within such a request (`ListOffsets`, `DeleteRecords`), the caller's thread
        continues to use the request after it has subscribed it to new metadata. If metadata arrives just then, as right after a
        client was made, it completes and frees the request, and the process dies of SIGSEGV
        (`rd_kafka_topic_partition_list_query_leaders_async`). If the leaders are known, nothing is asked.
        """
        client = self.client  # a replaced client knows no leaders, so it is renewed before they are looked for
        if time.monotonic() - self._leaders_since > _LEADERS_KNOWN_S:
            self._leaders_of = set()
        if not self._leaders_of.issuperset(topics):
            self._leaders_since = time.monotonic()
            self._leaders_of = set(self._counts(client))
        return client

    def close(self) -> None:
        """Release the client; may be called again."""
        self._admin = None


# --- Lists offsets of partitions, and waits where a leader is being elected or was elected just now.

LEADERLESS = ClientFailure(KafkaError.LEADER_NOT_AVAILABLE, "LEADER_NOT_AVAILABLE", "no leader", retriable=True)
# The codes of listing offsets for a topic or partition that does not exist, and for one whose leader is away.
_NO_LEADER = TOPIC_NOT_FOUND | {KafkaError._NOENT}
# The same codes come for a moment for a new partition: it was described, but its leader does not know it yet.
_NEW_PARTITION_S = 1.0


def list_offsets(
    requests: AdminRequests, specs: Mapping[TopicPartition, OffsetSpec], committed: bool = True, new: bool = False
) -> dict[TopicPartition, ListOffsetsResultInfo]:
    """One request for all partitions. It is repeated for partitions whose leader is being elected or was just elected.

    Raises:
        TopicNotFoundError: A topic or partition does not exist.
        KafkaClientError: A partition has no leader (transient), or the request failed.
    """
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    found: dict[TopicPartition, ListOffsetsResultInfo] = {}
    waiting = {place: (KafkaPartition(*place), spec) for place, spec in specs.items()}
    begun = time.monotonic()
    while waiting:
        client = requests.client_knowing(topic for topic, _ in waiting)
        futures = client.list_offsets(dict(waiting.values()), isolation_level=level, request_timeout=requests.timeout_s)
        for where, future in futures.items():
            try:
                info = _listed(requests, future, where)
            except KafkaClientError as error:
                waited = time.monotonic() - begun
                if error.code not in _NO_LEADER or waited > (requests.timeout_s if new else _NEW_PARTITION_S):
                    _raise_unless_passing(requests, where, error, waited)
                continue
            found[where.topic, where.partition] = info
            del waiting[where.topic, where.partition]
        if waiting:
            time.sleep(POLL_S)
    return found


def _listed(
    requests: AdminRequests, future: Future[ListOffsetsResultInfo], where: KafkaPartition
) -> ListOffsetsResultInfo:
    """The answer for one partition. If the leader did not answer, librdkafka 2.16 has neither an answer nor an error."""
    info = requests.result(future, f"listing offsets of {where.topic}-{where.partition}")
    if info.offset == OFFSET_INVALID:
        requests.replace_client()
        raise _leaderless(where)
    return info


def _raise_unless_passing(
    requests: AdminRequests, where: KafkaPartition, error: KafkaClientError, waited_s: float
) -> None:
    """Raise the named error of one partition, unless the failure may resolve itself and has not had the time for that."""
    if error.code in _NO_LEADER:
        # The client reports a partition that never existed like one whose broker is away.
        described = requests.descriptions([where.topic]).get(where.topic)
        if described is None or where.partition >= len(described.partitions):
            raise TopicNotFoundError(where.topic, where.partition, error.failure) from error
        error = _leaderless(where)
    if error.code not in TRANSIENT or waited_s > requests.timeout_s:
        raise error


def _leaderless(where: KafkaPartition) -> KafkaClientError:
    """The error for a partition that no broker answers for at present."""
    return KafkaClientError(
        f"partition {where.partition} of topic {where.topic!r} has no leader: the brokers that hold it are away, or are "
        f"just starting; bring them back",
        LEADERLESS,
    )


# --- The committed offsets of consumer groups.

# The group's coordinator is moving or new; a repeated request succeeds.
_COORDINATOR_AWAY = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}


def group_offsets(
    requests: AdminRequests, group: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, int]:
    """Committed offsets of a consumer group; empty for a group that does not exist.

    Their metadata is ignored, because other programs, such as Kafka Streams, may have written anything there.
    """
    return {(each.topic, each.partition): each.offset for each in _committed(requests, group, partitions)}


def group_notes(
    requests: AdminRequests, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, str]]:
    """Committed offsets of a consumer group, each with the metadata committed with it; any bytes may follow it (`note_of`)."""
    return {
        (each.topic, each.partition): (each.offset, note_of(each)) for each in _committed(requests, group, partitions)
    }


def note_of(partition: KafkaPartition) -> str:
    """The metadata of a committed offset. It may be followed by other bytes of memory.

    librdkafka returns the metadata with a length and without a zero byte after it, and confluent-kafka 2.x reads up to the next
    zero byte. So code that writes notes ends each with its own mark, and reads no further than that.
    """
    try:
        return partition.metadata or ""
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")


def _committed(
    requests: AdminRequests, group: str, partitions: Iterable[TopicPartition] | None
) -> list[KafkaPartition]:
    if partitions is None:
        partitions = [(name, number) for name, count in requests.partition_counts().items() for number in range(count)]
    asked = [KafkaPartition(topic, number) for topic, number in partitions]
    with _consumer(requests, group, f"reading the offsets of group {group!r}") as consumer:
        found = consumer.committed(asked, requests.timeout_s) if asked else []
    return [each for each in found if each.offset >= 0]


def commit_group_offsets(
    requests: AdminRequests, group: str, offsets: Mapping[TopicPartition, tuple[int, str]], exact: bool
) -> None:
    """Commits offsets of a consumer group that has no members, with metadata; see `KafkaAdmin.commit_group_offsets`."""
    if exact and bulk_available():
        for failure in commit_offsets(_of_group(requests, group), offsets):
            raise request_error(f"committing offsets of group {group!r}", "check the brokers", failure)
        return
    wanted = [KafkaPartition(*place, offset, metadata) for place, (offset, metadata) in offsets.items()]
    what = f"committing offsets of group {group!r}"
    with _consumer(requests, group, what) as consumer:
        for each in consumer.commit(offsets=wanted, asynchronous=False) or ():
            if each.error is not None:
                raise KafkaException(each.error)


def _of_group(requests: AdminRequests, group: str) -> dict[str, str]:
    return {
        **admin_config(requests.config),
        "group.id": group,
        "isolation.level": "read_uncommitted",
        "enable.auto.commit": "false",
    }


@contextmanager
def _consumer(requests: AdminRequests, group: str, what: str) -> Iterator[Consumer]:
    """A consumer that never joins its group.

    The admin requests for offsets crash the process (segmentation fault in librdkafka 2.16) while the group's coordinator is not
    ready. It reads uncommitted records, because read_committed would wait for transactions.
    """
    consumer = Consumer(_of_group(requests, group))
    try:
        yield consumer
    except KafkaException as exception:
        raise request_error(what, "check the brokers", failure_of(exception.args[0])) from exception
    finally:
        consumer.close()


def delete_group(requests: AdminRequests, group: str) -> bool:
    """Delete a consumer group with its committed offsets.

    Raises:
        KafkaClientError: The group has members, or the broker refused.
    """
    deadline = time.monotonic() + requests.timeout_s
    while True:
        (future,) = requests.client.delete_consumer_groups([group], request_timeout=requests.timeout_s).values()
        try:
            requests.result(future, f"deleting consumer group {group!r}")
        except KafkaClientError as error:
            if error.code == KafkaError.GROUP_ID_NOT_FOUND:
                return False
            if error.code not in _COORDINATOR_AWAY or time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
        else:
            return True


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
        """Effective configuration of a topic, defaults included; sensitive values are left out."""
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

    def alter_topic(self, name: str, config: Mapping[str, str]) -> None:
        """Changes settings of a topic that only affect cost. Without the right to alter the topic, leaves it as it is."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        (future,) = self._requests.client.incremental_alter_configs(
            [resource], request_timeout=self._requests.timeout_s
        ).values()
        try:
            self._requests.result(future, f"changing the configuration of topic {name!r}")
        except AuthorizationError as error:
            log.info("%s", error)

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
        clock: if old events were written in transactions, the result may be the offset after the first transaction.
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
        return group_offsets(self._requests, group, partitions)

    def group_notes(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, str]]:
        """Committed offsets of a consumer group, each with the metadata committed with it; any bytes may follow it (`note_of`)."""
        return group_notes(self._requests, group, partitions)

    def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]], exact: bool = False
    ) -> None:
        """Commit offsets of a consumer group, with metadata.

        Args:
            group: The group.
            offsets: Partition -> offset and metadata.
            exact: No zero byte follows the metadata, which Kafka Streams would not read; `group_notes` then may read further.
                Needs the library of `bulk_available`.

        Raises:
            KafkaClientError: The group has members, or the broker refused.
        """
        commit_group_offsets(self._requests, group, offsets, exact)

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
    """An admin client for occasional requests, which is opened when it is first needed. Thread-safe.

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
        """Closes the client, if there is one. The caller must know that no request is under way."""
        with self._lock:
            if self._admin is not None:
                self._admin.close()
            self._admin = None


# --- Waits until the records of decided transactions can be read.
#
# A commit returns once the coordinator has decided. The control records, which make the records visible to `read_committed`
# readers and move the last stable offset past them, are written afterwards, mostly within milliseconds. A reader that needs
# everything that another process has committed waits for them first.

DECIDE_S = 30.0
"""The seconds that brokers get in addition to a transaction's timeout, to notice it and to write the control records."""
_POLL_S = 0.02


def wait_until_decided(
    admin: LogEnds, partitions: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, int]:
    """Wait until every transaction that has written to the partitions so far is committed or aborted, also as readers see it."""
    deadline = time.monotonic() + timeout_s
    ends = admin.end_offsets(partitions, committed=False)
    while True:
        stable = admin.end_offsets(ends)
        open_ones = [f"{topic}-{number}" for (topic, number), end in ends.items() if stable[topic, number] < end]
        if not open_ones:
            return ends
        if time.monotonic() > deadline:
            raise HangingTransactionError(open_ones, timeout_s)
        time.sleep(_POLL_S)


# --- Waiting for brokers that are away, and housekeeping that may fail without consequences.
#
# A broker that restarts, or a leader or coordinator that moves, is routine and no reason to fail. Only
# `KafkaClientError.transient` decides whether a failure may resolve itself.

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0


class TransientRetry:
    """Repeats requests that failed for a transient reason, with increasing pauses.

    Args:
        wait_s: How long to retry, counted from the first failure of a request, seconds.
        sleep: Waits for a number of seconds.
        clock: A monotonic clock, seconds.
    """

    def __init__(
        self, wait_s: float, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wait_s = wait_s
        self._sleep = sleep
        self._clock = clock

    def __call__(self, request: Callable[[], _Result]) -> _Result:
        """Returns the answer to a request.

        Raises:
            KafkaClientError: The request failed for a permanent reason, or for too long.
        """
        failed: float | None = None
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return request()
            except KafkaClientError as error:
                now = self._clock()
                if failed is None:
                    failed = now
                    log.warning("waiting for the broker: %s", error)
                if not error.transient or now - failed + pause > self._wait_s:
                    raise
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


_logged: set[tuple[str, int | None]] = set()


def delete_if_possible(admin: RecordDeleter, before: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> bool:
    """Deletes records that are no longer needed. A failure stops nothing, because the next call also deletes these records.

    Nothing fences a deletion: a process that sleeps during a reset or a rescale would delete records of the new topic. So the
    topics' ids are compared first. Each topic's failure, such as a missing permission, is logged once per reason.
    """
    if not before:
        return True
    try:
        if other := _other_topics(admin, ids):
            log.warning("nothing was deleted: %s was deleted and created again", ", ".join(other))
            return False
        admin.delete_records(before)
    except KafkaClientError as error:
        for topic in sorted({topic for topic, _ in before}):
            if (topic, error.code) not in _logged:
                _logged.add((topic, error.code))
                log.warning(
                    "could not delete consumed records of %s, so they keep using disk space: %s. This clears up once the brokers "
                    "are back or the application is granted Delete on the topic; nothing else is affected",
                    topic,
                    error,
                )
        return False
    return True


def _other_topics(admin: RecordDeleter, ids: Mapping[str, str]) -> list[str]:
    """The topics that no longer have these ids."""
    known = {name: topic_id for name, topic_id in ids.items() if topic_id}
    found = admin.describe_topics(sorted(known)) if known else {}
    return [name for name, topic_id in known.items() if name not in found or found[name].topic_id != topic_id]
