"""Partition times are taken from markers that may only just be committed."""

import threading
from functools import partial

from state.commit.marker import MARKER_KEY, CommitMarker
from state.kafka.admin import KafkaAdmin, wait_until_decided
from state.kafka.producer import TransactionalProducer
from state.kafka.reader import close_shared_readers
from streams.broker import EmbeddedBroker
from streams.model.times import NO_TIME
from streams.source.log import LiveLog
from streams.source.offsets import OffsetRange
from streams.source.partition_times import PartitionTimes, with_partition_times
from tests.conftest import TopicFactory


def marker() -> CommitMarker:
    """Of a step that has read `in-0` up to offset 5, where the partition time was 77."""
    state = with_partition_times({}, {("in", 0): (5, 77)})
    return CommitMarker(
        query_id="query",
        task=0,
        tasks=1,
        topology_hash="hash",
        version=1,
        batch_id=0,
        batch="b0",
        ranges={"in": {"0": (0, 5)}},
        topic_ids={"in": "id"},
        stream_time=77,
        operator_state=state,
        changelog_ends={},
        expired_before={},
        counts={},
        changelog_hash="00",
        now_ms=1,
    )


def test_the_marker_of_the_last_step_is_waited_for(broker: EmbeddedBroker, topic: TopicFactory) -> None:
    client, commits = {"bootstrap.servers": broker.bootstrap_servers}, topic()
    with KafkaAdmin(client) as admin, TransactionalProducer(client, commits) as producer:
        times = PartitionTimes(LiveLog(client, admin), commits, partial(wait_until_decided, admin, timeout_s=30))
        assert times.before([OffsetRange("in", 0, 0, 5)]) == {("in", 0): NO_TIME}
        producer.init_transactions()
        producer.begin()
        producer.send(commits, 0, MARKER_KEY, marker().to_bytes(), 1)
        producer.flush()
        # As after a commit whose control records are not written yet: what was written shows a moment later.
        commit = threading.Timer(0.5, producer.commit)
        commit.start()
        try:
            assert times.before([OffsetRange("in", 0, 5, 9)]) == {("in", 0): 77}
        finally:
            commit.join()
            close_shared_readers()
