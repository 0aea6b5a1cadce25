"""Where a sink continues: behind the newest commit that its table has, if everything fits; else an error and nothing is written.

The table decides. A copy of the last commit beside the application's checkpoint only shows that a table without commits of the sink
is another one than before, and stands in for commits that Delta has removed from a table's history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from state.kafka.admin import KafkaAdmin
from streams.errors import LakePositionError
from streams.lake.commit import SinkCommit, SinkId
from streams.source.offsets import TopicOffsets


@dataclass(frozen=True, slots=True)
class TopicLog:
    """The internal topic as it is.

    Attributes:
        name: Its name.
        topic_id: Its id.
        begins: The first offset of each partition that still exists.
        ends: The end of each partition.
    """

    name: str
    topic_id: str
    begins: Sequence[int]
    ends: Sequence[int]


def topic_log(admin: KafkaAdmin, topic: str) -> TopicLog:
    """An internal topic as it is now."""
    info = admin.describe_topics([topic])[topic]
    places = [(topic, partition) for partition in range(info.partitions)]
    begins, ends = admin.begin_offsets(places), admin.end_offsets(places)
    return TopicLog(topic, info.topic_id, [begins[at] for at in places], [ends[at] for at in places])


@dataclass(frozen=True, slots=True)
class SavedCommit:
    """The copy of the last commit.

    Attributes:
        commit: The commit.
        table_id: Delta's id of the table, which a table made anew does not have.
    """

    commit: SinkCommit
    table_id: str


def resume(
    of: SinkId, table: str, found: SinkCommit | None, table_id: str, saved: SavedCommit | None, log: TopicLog
) -> SinkCommit:
    """The commit behind which the sink continues.

    Raises:
        LakePositionError: Records would be lost or written twice.
    """
    if saved is not None and saved.commit.position.topic_id != log.topic_id:
        saved = None  # of an internal topic that a reset has deleted
    if found is None and saved is not None:
        if saved.table_id != table_id:
            raise LakePositionError(
                f"{of}: the table {table} is not the one that was written last: it was dropped or replaced, and the rows of "
                f"commits 1 to {saved.commit.version} are missing in it. Nothing was written. Put the old table back. Or begin "
                f"anew with `streams reset`, which lets the application write all results again. Or continue in this table "
                f"without the old rows: {_drop(of)}."
            )
        found = saved.commit  # its entry in the history is older than the table keeps
    if found is None:
        found = SinkCommit(0, TopicOffsets(log.topic_id, ()))
    if found.position.topic_id != log.topic_id:
        raise LakePositionError(
            f"{of}: the table {table} has rows of the internal topic {log.name} as it was before it was deleted and created again "
            f"(by a reset, for example), so new rows would come on top of those. Nothing was written. Delete the table to write "
            f"to an empty one; or name the sink anew (named=...) to keep the rows and add to them."
        )
    return SinkCommit(found.version, _checked(of, table, found, log), found.attempt)


def _drop(of: SinkId) -> str:
    return (
        f"`streams reset {of.application_id} --drop-sink {of.sink}` gives up the rows that wait in the internal topic"
    )


def _checked(of: SinkId, table: str, found: SinkCommit, log: TopicLog) -> TopicOffsets:
    """The commit's positions, with one for each partition."""
    known = found.position.offsets
    offsets = (*known, *(0 for _ in log.begins[len(known) :]))
    for partition, (at, begin, end) in enumerate(zip(offsets, log.begins, log.ends, strict=False)):
        if at < begin:
            raise LakePositionError(
                f"{of}: the table {table} has the rows of {log.name}-{partition} up to offset {at}, but the topic begins at "
                f"{begin}: the {begin - at} offsets between were deleted after they had been written, to a table (or a version of "
                f"it) that is no longer here. Nothing was written. Put that table back. Or begin anew with `streams reset`. Or "
                f"continue in this table without them: {_drop(of)}, and name the sink anew (named=...)."
            )
        if at > end:
            raise LakePositionError(
                f"{of}: the table {table} has the rows of {log.name}-{partition} up to offset {at}, but the topic ends at {end}: "
                f"the topic has lost records. Nothing was written. Begin anew with `streams reset` and a new table. Or "
                f"continue in this table without them: {_drop(of)}, and name the sink anew (named=...)."
            )
    if len(known) > len(log.begins):
        raise LakePositionError(
            f"{of}: the table {table} has rows of {len(known)} partitions of {log.name}, which has {len(log.begins)}. Nothing was "
            f"written. Begin anew with `streams reset` and a new table."
        )
    return TopicOffsets(log.topic_id, offsets)
