"""One batch of one task of an ingest: rows from outside Kafka, written to a topic in one transaction with a marker.

An ingest has a commits topic like a sub-topology: task N writes its markers to partition N. A marker names the batch of a query
that the task has written, identifies its rows, and has the query's offsets at that time (`OFFSETS`). So every task that has written
its part of a batch recognises the batch if it runs again. The order is that of a step (`state.commit.step`), without stores: fence,
read the last marker, decide, send, commit. The first batch of a run is checked for all tasks together before any of them writes
(`check_batch`), because a batch with other rows must not be written by some of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from state.changelog import commits_topic
from state.columns import BinaryColumn
from state.commit import guards
from state.commit.decide import TaskIdentity
from state.commit.ingest_batch import OFFSETS, IngestBatch, digest_of
from state.commit.marker import MARKER_KEY, CommitMarker, read_last_marker
from state.commit.protocols import KafkaAccess, Send
from state.errors import CheckpointMismatchError
from state.kafka.partitioner import choose_partitions
from state.kafka.topics import TopicPartition

KEYS = "keys"
"""The name of `IngestBatch.keys` in a marker."""
ROWS = "rows"
"""The name of the hash of the task's rows (`Rows.hash`) in a marker."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Records to be written, column by column.

    Attributes:
        timestamps: Their timestamps, ms since 1970.
        hash: The sum of the hashes of the rows from which they were made. It does not depend on the order of rows.
        count: The number of these rows, including rows that the policy left out; None: all rows became records.
        letters: The dead letters of these rows.
    """

    keys: BinaryColumn
    values: BinaryColumn
    timestamps: npt.NDArray[np.int64]
    hash: int = 0
    count: int | None = None
    letters: Send | None = None


def check_batch(
    kafka: KafkaAccess, identities: Sequence[TaskIdentity], topic: str, partitions: int, batch: IngestBatch
) -> Mapping[int, CommitMarker]:
    """Checks the first batch of a run against the last markers of all tasks, before any of them writes.

    Raises:
        CheckpointMismatchError: The last batch of a task is another one, or had other rows; or there are rows, but no task has a
            marker.
    """
    found = {}
    for identity in identities:
        producer = guards.fenced_producer(kafka, identity.transactional_id)
        try:
            found[identity] = _last_marker(kafka, identity)[1]
        finally:
            producer.close()
    if not any(found.values()):
        _check_nothing_written(kafka, identities[0], [(topic, number) for number in range(partitions)])
    written = {identity: marker for identity, marker in found.items() if is_written(identity, batch, marker) and marker}
    if len(written) < len(identities):
        for identity, marker in written.items():
            noted = marker.operator_state.get(KEYS, batch.keys)
            if noted != batch.keys:
                raise _other_rows(identity, batch, "the source had another key, key_serde, columns or partitions then")
    return {identity.task: marker for identity, marker in written.items()}


def check_rows(identity: TaskIdentity, batch: IngestBatch, found: CommitMarker, records: int, rows_hash: int) -> None:
    """Checks that a task that has already written its part of a batch got the same rows again.

    Raises:
        CheckpointMismatchError: The rows differ, so other tasks may have got other rows, too.
    """
    if ROWS not in found.operator_state:
        return
    then, now = (found.counts["in"], found.operator_state[ROWS]), (records, f"{_wrapped(rows_hash):016x}")
    if then != now:
        raise _other_rows(
            identity,
            batch,
            f"it has written {then[0]} rows with the hash {then[1]}, and now has {now[0]} with {now[1]}",
        )


def write_batch(
    kafka: KafkaAccess, identity: TaskIdentity, topic: str, partitions: int, batch: IngestBatch, rows: Iterable[Rows]
) -> int | None:
    """Writes a task's part of a batch, unless it is written already.

    Raises:
        CheckpointMismatchError: The task's last batch is not the one before this one, so rows would be missing or doubled.
    """
    producer = guards.fenced_producer(kafka, identity.transactional_id)
    try:
        place, found, end = _last_marker(kafka, identity)
        if is_written(identity, batch, found):
            return None
        producer.begin()
        count = left_out = hashes = 0
        for part in rows:
            turn = batch.batch_id + identity.task + count
            to = choose_partitions(part.keys, partitions, turn=turn)
            producer.send_columns(topic, to, part.keys, part.values, part.timestamps)
            if (sent := part.letters) is not None:
                to = kafka.partitions_for(sent, turn)
                producer.send_columns(sent.topic, to, sent.keys, sent.values, sent.timestamps, sent.headers)
            count += len(part.keys) if part.count is None else part.count
            left_out += 0 if part.count is None else part.count - len(part.keys)
            hashes += part.hash
        marker = _marker(identity, batch, count, left_out, hashes)
        producer.send(*place, MARKER_KEY, marker.to_bytes(), batch.now_ms)
        producer.flush()
        guards.check_delivered(identity, producer, {place: end})
        producer.commit()
        return count
    finally:
        producer.close()


def is_written(identity: TaskIdentity, batch: IngestBatch, found: CommitMarker | None) -> bool:
    """Whether the task's last marker shows that it has written its part of a batch."""
    if found is None and batch.batch_id == 0:
        return False
    written = "no batch" if found is None else f"batch {found.batch_id} of query {found.query_id}"
    if found is not None and found.query_id == identity.query_id:
        # A marker of an older version has no digest: it is computed from the logged offsets. Without those, as for a static
        # DataFrame, only the numbers of batches are compared.
        logged = str(found.operator_state.get(OFFSETS, ""))
        noted = found.batch or (digest_of(logged) if logged else "")
        expected = {batch.batch_id: batch.digest, batch.batch_id - 1: batch.before}.get(found.batch_id)
        if expected is not None and (not noted or not expected or noted == expected):
            return found.batch_id == batch.batch_id
        if expected is not None:
            written += ", which ended elsewhere than the checkpoint says"
    raise CheckpointMismatchError(
        f"{identity} should write batch {batch.batch_id} of query {identity.query_id}, but has last written {written}: the "
        f"checkpoint of the query, or the commits topic, was lost, replaced or rolled back, and rows would be missing or doubled. "
        f"Nothing was written. Put back the checkpoint folder {identity.sub_topology}; or delete that folder, and the next start "
        f"makes it again from the commits topic where the source can be read again from logged offsets, as Delta tables can; or "
        f"start over with `streams reset {identity.application_id}`."
    )


def _other_rows(identity: TaskIdentity, batch: IngestBatch, why: str) -> CheckpointMismatchError:
    return CheckpointMismatchError(
        f"{identity} has written its part of batch {batch.batch_id}, and other tasks have not; but the rows of the tasks are now "
        f"divided or made otherwise ({why}), so the others would lose or repeat rows. Nothing was written. Run the program, and "
        f"give the source the data, as they were until this batch is finished, then make the change; or start over with "
        f"`streams reset {identity.application_id}`."
    )


def _last_marker(kafka: KafkaAccess, identity: TaskIdentity) -> tuple[TopicPartition, CommitMarker | None, int]:
    """The place of a fenced task's markers, its last one, and the end of the log."""
    place = (commits_topic(identity.application_id, identity.sub_topology), identity.task)
    ends = kafka.log_ends([place])
    guards.check_decided(identity, ends)
    end = ends[place][0]
    last = read_last_marker(kafka, place, end=end)
    return place, last.marker if last else None, end


def _check_nothing_written(kafka: KafkaAccess, identity: TaskIdentity, places: Sequence[TopicPartition]) -> None:
    """Checks that no rows were written for tasks without a marker."""
    for place, end in kafka.end_offsets(places).items():
        traces = guards.traces_of(kafka, place, end)
        if traces is not None:
            raise CheckpointMismatchError(
                f"no task of {identity.application_id}/{identity.sub_topology} has a marker of a batch, but the topic "
                f"{place[0]}-{place[1]} {traces}: the commits topic "
                f"{commits_topic(identity.application_id, identity.sub_topology)} was deleted or replaced, and all rows would be "
                f"written again. Nothing was written. Restore that topic from a backup; or start over with `streams reset "
                f"{identity.application_id}`."
            )


def _wrapped(number: int) -> int:
    """A sum of hashes as an unsigned 64-bit number."""
    return number & 0xFFFF_FFFF_FFFF_FFFF


def _marker(identity: TaskIdentity, batch: IngestBatch, count: int, left_out: int, hashes: int) -> CommitMarker:
    return CommitMarker(
        query_id=identity.query_id,
        task=identity.task,
        tasks=identity.tasks,
        topology_hash=identity.topology_hash,
        version=batch.batch_id + 1,
        batch_id=batch.batch_id,
        batch=batch.digest,
        ranges={},
        topic_ids={},
        stream_time=-1,
        operator_state={OFFSETS: batch.offsets, KEYS: batch.keys, ROWS: f"{_wrapped(hashes):016x}"},
        changelog_ends={},
        expired_before={},
        counts={"in": count, "out": count - left_out, "changelog": 0},
        changelog_hash="",
        now_ms=batch.now_ms,
        application_id=identity.application_id,
    )
