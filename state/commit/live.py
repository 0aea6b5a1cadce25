"""The real Kafka behind a step (`state.commit.step.KafkaAccess`): one admin client and one metadata cache per process."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from state.changelog import DELETE_RETENTION_MS
from state.columns import RecordColumns
from state.commit.protocols import Send, TopicPartition
from state.errors import KafkaClientError, TopicNotFoundError
from state.kafka.admin import DECIDE_S, KafkaAdmin
from state.kafka.config import BATCH_BYTES
from state.kafka.partitioner import choose_partitions
from state.kafka.producer import TransactionalProducer
from state.kafka.reader import open_range_reader
from state.kafka.topics import LiveTopics, TopicInfo

_log = logging.getLogger(__name__)
_POLL_S = 0.02
METADATA_MAX_AGE_S = 300.0
"""How long a topic's id, partition count and settings are cached, as in Kafka clients (`metadata.max.age.ms`)."""

FEW_BROKERS = 8
"""In a cluster of up to this many brokers, a producer connects to all of them at once (`_ProcessClients.connections`)."""


class LiveKafka:
    """Kafka as a task sees it.

    Args:
        client: Librdkafka client properties.
        transaction_timeout_ms: Transaction timeout of the producers.
        bulk: Use librdkafka's C API instead of the ordinary client.
        outputs: Output topics; producers make no batches larger than all of them accept.
        query_id: The query that the tasks belong to. Internal topics are only ever replaced between two queries (`streams
            rescale`), so another query does not use cached facts.
    """

    def __init__(
        self,
        client: Mapping[str, str],
        transaction_timeout_ms: int,
        bulk: bool = True,
        outputs: Sequence[str] = (),
        query_id: str = "",
    ) -> None:
        self._outputs = outputs
        self._query_id = query_id
        self._client = dict(client)
        self._timeout_ms = transaction_timeout_ms
        self._bulk = bulk

    @property
    def admin(self) -> KafkaAdmin:
        return _process_clients(self._client).admin

    @property
    def topics(self) -> LiveTopics:
        """Cached facts of this process about the output topics."""
        return _process_clients(self._client).output_topics

    def producer(self, transactional_id: str, kept: bool = False) -> TransactionalProducer:
        """A new producer; call its `init_transactions` first. With `kept`, it may write more than one transaction."""
        known = _process_clients(self._client)
        largest = known.output_topics.batch_bytes(self._outputs)
        client = {**known.connections(), **self._client}
        if largest < int(client.get("batch.size", BATCH_BYTES)):
            client = {**client, "batch.size": str(largest)}
        return TransactionalProducer(
            client, transactional_id, self._timeout_ms / 1000, bulk=self._bulk, kept=kept, stuck=end_process
        )

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self.admin.end_offsets(partitions)

    def log_ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Last stable offset and end of each log, requested again while they differ and a transaction of this task can be open.

        A transaction that was just decided still looks open for a moment. An older, delayed attempt of the task may also fence this
        one and write; it then ends, or the coordinator aborts its transaction.
        """
        deadline = time.monotonic() + self._timeout_ms / 1000 + DECIDE_S
        while True:
            # The stable ends are read last. Otherwise a transaction that ends between the two requests would look open.
            ends = self.admin.end_offsets(partitions, committed=False)
            stable = self.admin.end_offsets(partitions)
            if all(stable[place] >= end for place, end in ends.items()) or time.monotonic() > deadline:
                return {place: (stable[place], max(stable[place], end)) for place, end in ends.items()}
            time.sleep(_POLL_S)

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Kafka's ids of those topics that exist."""
        found = _process_clients(self._client).topics(topics, self._query_id)
        return {topic: info.topic_id for topic, info in found.items()}

    def delete_retention_ms(self, topic: str) -> int:
        """How long a topic keeps tombstones."""
        return _process_clients(self._client).delete_retention_ms(topic)

    def begin_offset(self, partition: TopicPartition) -> int:
        return self.begin_offsets([partition])[partition]

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self.admin.begin_offsets(partitions)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return self.admin.offsets_for_times(times)

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        """Committed records [start, end)."""
        if start >= end:
            return
        reader = open_range_reader(self._client, topic, partition, start, bulk=self._bulk)
        try:
            yield from reader.read(end)
        finally:
            reader.close()

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Trims logs below the given offsets."""
        self.admin.delete_records(before)

    def describe_topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        """The topics that exist, from a new request at each call."""
        return self.admin.describe_topics(names)

    def partitions_for(self, send: Send, turn: int) -> npt.NDArray[np.int32]:
        """The partition of each row: the one it names, else the default partitioner's; null keys are spread from `turn` on."""
        return choose_partitions(
            send.keys, self.partition_count(send.topic), send.partition_keys, send.partitions, turn
        )

    def partition_count(self, topic: str) -> int:
        """Partitions of a topic.

        Raises:
            TopicNotFoundError: There is no such topic.
        """
        return _process_clients(self._client).partition_count(topic)


def end_process(why: str) -> None:
    """Ends this process, as a kill would. Another attempt fences anything that it may still send, and continues."""
    _log.error("%s: this process ends, and another attempt continues", why)
    os.kill(os.getpid(), signal.SIGKILL)


class _ProcessClients:
    """Clients that live as long as the worker process."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self.admin = KafkaAdmin(client)
        self.output_topics = LiveTopics(self.admin, client)
        self._topics: dict[tuple[str, str], tuple[TopicInfo, float]] = {}
        self._retention: dict[str, tuple[int, float]] = {}
        self._connections: dict[str, str] | None = None

    def topics(self, names: Sequence[str], query_id: str = "") -> dict[str, TopicInfo]:
        """Those of the topics that exist, as of at most `METADATA_MAX_AGE_S` ago and not before the query began."""
        now = time.monotonic()
        known = {name: self._topics.get((query_id, name)) for name in names}
        missing = [name for name, cached in known.items() if cached is None or cached[1] < now]
        for name, info in (self.admin.describe_topics(missing) if missing else {}).items():
            known[name] = self._topics[query_id, name] = (info, now + METADATA_MAX_AGE_S)
        return {name: cached[0] for name, cached in known.items() if cached is not None and cached[1] >= now}

    def connections(self) -> dict[str, str]:
        """Properties of a producer that decide when it connects.

        By default, librdkafka connects to one broker, after a pause of 11 ms, and to others when they are needed. A step's producer
        talks to most brokers of a small cluster anyway: without that rule, fencing took 7 ms instead of 18.
        """
        if self._connections is None:
            try:
                few = self.admin.broker_count() <= FEW_BROKERS
            except KafkaClientError:
                return {}
            self._connections = {"enable.sparse.connections": "false"} if few else {}
        return self._connections

    def partition_count(self, topic: str) -> int:
        found = self.topics([topic])
        if topic not in found:
            raise TopicNotFoundError(topic)
        return found[topic].partitions

    def delete_retention_ms(self, topic: str) -> int:
        now = time.monotonic()
        value, until = self._retention.get(topic, (0, 0.0))
        if until < now:
            value = int(self.admin.topic_config(topic).get("delete.retention.ms", DELETE_RETENTION_MS))
            self._retention[topic] = (value, now + METADATA_MAX_AGE_S)
        return value


_clients: dict[tuple[int, tuple[tuple[str, str], ...]], _ProcessClients] = {}


def _process_clients(client: Mapping[str, str]) -> _ProcessClients:
    """The clients of this process. A forked process gets its own, because threads of librdkafka do not survive a fork."""
    key = (os.getpid(), tuple(sorted(client.items())))
    if key not in _clients:
        _clients[key] = _ProcessClients(client)
    return _clients[key]
