"""The sources outside Kafka of an application: their topics, and how a lost checkpoint is made again from their commits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import orjson

from state.changelog import commits_topic, ensure_commits, ensure_repartition
from state.commit.ingest_batch import OFFSETS, IngestBatch, digest_of
from state.commit.marker import CommitMarker, MarkerLog, read_last_marker
from state.kafka.admin import KafkaAdmin
from streams.checkpoint.files import CheckpointFiles, query_id_of, write_query_id
from streams.serdes.base import serde_identity
from streams.topology.graph import Graph, InternalTopic
from streams.topology.graph.nodes import Ingest


def ingest_topic(ingest: Ingest, application_id: str) -> str:
    return InternalTopic(ingest.name).topic_name(application_id)


def ingest_partitions(topology: Graph, application_id: str) -> dict[str, int]:
    return {ingest_topic(one, application_id): one.partitions for one in topology.ingests.values()}


def ensure_ingests(topology: Graph, application_id: str, admin: KafkaAdmin, replication: int) -> list[str]:
    """Creates the missing topics of all ingests, checks the others, and returns the names of those created.

    Raises:
        ChangelogMismatchError: An existing topic has the wrong settings or number of partitions.
    """
    made: list[str] = []
    for ingest in topology.ingests.values():
        made += ensure_repartition(admin, ingest_topic(ingest, application_id), ingest.partitions, replication)
        made += ensure_commits(admin, application_id, ingest.lasting_name, ingest.partitions, replication)
    return made


def last_markers(log: MarkerLog, ingest: Ingest, application_id: str) -> Mapping[int, CommitMarker]:
    topic = commits_topic(application_id, ingest.lasting_name)
    found = {task: read_last_marker(log, (topic, task)) for task in range(ingest.partitions)}
    return {task: copy.marker for task, copy in found.items() if copy is not None}


def keys_digest(ingest: Ingest, columns: Sequence[tuple[str, str]]) -> str:
    """A digest of the key, or of the whole row if it has no key; it decides which task gets the row."""
    deciding = [column for column in columns if not ingest.key or column[0] in ingest.key]
    parts = (ingest.key, serde_identity(ingest.key_serde), ingest.partitions, ingest.change_feed, deciding)
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def logged_batch(files: CheckpointFiles, folder: str, batch_id: int) -> IngestBatch:
    """A batch as Spark has logged it. It has offsets only if these alone are enough to read the same rows again.

    A source of files, and operators with state, keep more than offsets; they do so in their own folders.
    """
    logged, digest = _logged(files, folder, batch_id)
    now_ms = int(orjson.loads(logged.splitlines()[1])["batchTimestampMs"])
    alone = {"sources", "state"}.isdisjoint(files.names(folder))
    before = _logged(files, folder, batch_id - 1)[1] if batch_id else ""
    return IngestBatch(batch_id, logged if alone else "", now_ms, digest, before)


def _logged(files: CheckpointFiles, folder: str, batch_id: int) -> tuple[str, str]:
    """Spark's log entry for a batch, and its digest; both are empty if there is no entry.

    A source of files logs only the number of an entry of its own log, which has the names of the files.
    """
    logged = (files.read(f"{folder}/offsets/{batch_id}") or b"").decode()
    entries = []
    for source, line in enumerate(logged.splitlines()[2:]):
        offset = orjson.loads(line) if line.startswith("{") else {}
        if "logOffset" in offset:
            name = f"{folder}/sources/{source}/{offset['logOffset']}"
            entries.append(files.read(name) or files.read(f"{name}.compact") or b"")
    return logged, digest_of(logged, entries) if logged else ""


def remake_checkpoint(files: CheckpointFiles, ingest: Ingest, markers: Mapping[int, CommitMarker]) -> int | None:
    """Creates a lost checkpoint again, from the last batches in the tasks' markers.

    Spark resumes after a batch from its logged offsets. A batch that only some tasks have written runs again, over the same rows.
    For that, Spark also needs the offsets of the batch before, which the other tasks' markers have. It looks for these in any case,
    but they do not matter if all tasks have written the batch.
    """
    folder = ingest.lasting_name
    if not markers or query_id_of(files, folder) is not None:
        return None
    last = max(marker.batch_id for marker in markers.values())
    whole = len(markers) == ingest.partitions and all(marker.batch_id == last for marker in markers.values())
    noted = {marker.batch_id: str(marker.operator_state.get(OFFSETS, "")) for marker in markers.values()}
    offsets = {last: noted[last]}
    if last > 0:
        offsets[last - 1] = noted.get(last if whole else last - 1, "")
    if len({marker.query_id for marker in markers.values()}) > 1 or not all(offsets.values()):
        return None
    for batch in sorted(offsets):
        files.write(f"{folder}/offsets/{batch}", offsets[batch].encode())
    written = last if whole else last - 1
    if written >= 0:
        files.write(f"{folder}/commits/{written}", b"v1\n" + orjson.dumps({"nextBatchWatermarkMs": 0}))
    # Written last, because a checkpoint exists once it has its id.
    write_query_id(files, folder, next(iter(markers.values())).query_id)
    return last
