"""One batch of one task of an ingest: rows from outside Kafka, written to a topic in one transaction with a marker.

An ingest has a commits topic like a sub-topology: task N writes its markers to partition N. A marker says which batch of which
query the task has written, and where that query was then (`OFFSETS`). A batch that runs again is therefore recognised by every
task that has written its part of it. The order is that of a step (`state.commit.step`), without stores: fence, read the last
marker, decide, send, commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from state.changelog.topics import commits_topic
from state.commit import guards
from state.commit.decide import TaskIdentity
from state.commit.last_marker import read_last_marker
from state.commit.marker import MARKER_KEY, CommitMarker
from state.commit.protocols import KafkaAccess
from state.errors import CheckpointMismatchError
from state.kafka.columns import BinaryColumn
from state.kafka.partitioner import choose_partitions

OFFSETS = "offsets"
"""The name under which a marker has the query's logged offsets, from which a lost checkpoint is made again."""


@dataclass(frozen=True, slots=True)
class IngestBatch:
    """A batch of the query that reads the rows.

    Attributes:
        batch_id: Spark's number of the batch, from 0.
        offsets: What Spark has logged for the batch; empty if that does not lead back to the same rows.
        now_ms: When the batch was made, ms since 1970.
    """

    batch_id: int
    offsets: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Records to be written, column by column."""

    keys: BinaryColumn
    values: BinaryColumn
    timestamps: npt.NDArray[np.int64]


def write_batch(
    kafka: KafkaAccess, identity: TaskIdentity, topic: str, partitions: int, batch: IngestBatch, rows: Iterable[Rows]
) -> int | None:
    """Writes a task's part of a batch, unless it is written already.

    Args:
        kafka: The log.
        identity: The task; `query_id` is that of the query that reads the rows.
        topic: The topic of the rows.
        partitions: Its number of partitions.
        batch: The batch.
        rows: The task's rows; not read if they are written already.

    Returns:
        The number of records written; None: the task had written its part before.

    Raises:
        CheckpointMismatchError: The task has last written another batch than the one before, so rows would be missing or doubled.
    """
    place = (commits_topic(identity.application_id, identity.sub_topology), identity.task)
    producer = guards.fenced_producer(kafka, identity.transactional_id)
    try:
        ends = kafka.log_ends([place])
        guards.check_decided(identity, ends)
        end = ends[place][0]
        last = read_last_marker(kafka, place, end=end)
        found = last.marker if last else None
        if is_written(identity, batch.batch_id, found):
            return None
        producer.begin()
        count = 0
        for part in rows:
            to = choose_partitions(part.keys, partitions, turn=batch.batch_id + identity.task + count)
            producer.send_columns(topic, to, part.keys, part.values, part.timestamps)
            count += len(part.keys)
        marker = _marker(identity, batch, count)
        producer.send(*place, MARKER_KEY, marker.to_bytes(), batch.now_ms)
        producer.flush()
        guards.check_delivered(identity, producer, {place: end})
        producer.commit()
        return count
    finally:
        producer.close()


def is_written(identity: TaskIdentity, batch_id: int, found: CommitMarker | None) -> bool:
    """Whether a task has written its part of a batch, by its last marker.

    Raises:
        CheckpointMismatchError: The marker is of another query, or of neither this batch nor the one before.
    """
    if found is None and batch_id == 0:
        return False
    if found is not None and found.query_id == identity.query_id and found.batch_id in (batch_id, batch_id - 1):
        return found.batch_id == batch_id
    written = "no batch" if found is None else f"batch {found.batch_id} of query {found.query_id}"
    raise CheckpointMismatchError(
        f"{identity} is to write batch {batch_id} of query {identity.query_id}, but has last written {written}: the checkpoint of "
        f"the query, or the commits topic, was lost, replaced or rolled back, and rows would be missing or doubled. Nothing was "
        f"written. Put back the checkpoint folder {identity.sub_topology}; or delete that folder, and the next start makes it "
        f"again from the commits topic where the source can be read again from logged offsets, as Delta tables can; or begin anew "
        f"with `streams reset {identity.application_id}`."
    )


def _marker(identity: TaskIdentity, batch: IngestBatch, count: int) -> CommitMarker:
    return CommitMarker(
        query_id=identity.query_id,
        task=identity.task,
        tasks=identity.tasks,
        topology_hash=identity.topology_hash,
        version=batch.batch_id + 1,
        batch_id=batch.batch_id,
        batch="",
        ranges={},
        topic_ids={},
        stream_time=-1,
        operator_state={OFFSETS: batch.offsets},
        changelog_ends={},
        expired_before={},
        counts={"in": count, "out": count, "changelog": 0},
        changelog_hash="",
        now_ms=batch.now_ms,
        application_id=identity.application_id,
    )
