"""The sources outside Kafka of an application: their topics, and a checkpoint made again from their commits."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from state.changelog.topics import commits_topic, ensure_commits, ensure_repartition
from state.commit.ingest import OFFSETS
from state.commit.last_marker import MarkerLog, read_last_marker
from state.commit.marker import CommitMarker
from state.kafka.admin import KafkaAdmin
from streams.checkpoint.files import CheckpointFiles
from streams.checkpoint.log import query_id_of, write_query_id
from streams.topology.graph import Graph, InternalTopic
from streams.topology.ingest import Ingest


def ingest_topic(ingest: Ingest, application_id: str) -> str:
    """The real name of the internal topic that an ingest writes."""
    return InternalTopic(ingest.name).topic_name(application_id)


def ingest_partitions(topology: Graph, application_id: str) -> dict[str, int]:
    """The internal topics that ingests write, with their partitions."""
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
    """The last marker of each task of an ingest that has one."""
    topic = commits_topic(application_id, ingest.lasting_name)
    found = {task: read_last_marker(log, (topic, task)) for task in range(ingest.partitions)}
    return {task: copy.marker for task, copy in found.items() if copy is not None}


def remake_checkpoint(files: CheckpointFiles, ingest: Ingest, markers: Mapping[int, CommitMarker]) -> int | None:
    """Makes a lost checkpoint again, from what the tasks' markers say of their last batches.

    Spark resumes behind a batch from its logged offsets. A batch that only some tasks have written runs again, over the same rows:
    that needs the offsets of the batch before as well, which the other tasks' markers have. Spark looks for these in any case, but
    behind a batch that all have written they decide nothing.

    Args:
        files: The application's checkpoint folder.
        ingest: The source.
        markers: The last marker of each task.

    Returns:
        The batch that the checkpoint ends with; None: there was a checkpoint, or the markers do not suffice for one. Then the first
        batch fails with a `CheckpointMismatchError` if any task has written one.
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
    # Last: a checkpoint is there once it has its id.
    write_query_id(files, folder, next(iter(markers.values())).query_id)
    return last
