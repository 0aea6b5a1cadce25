"""The writes of a lake sink: the commits in its table, where it continues, and the batches handed to a function."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicPartition
from streams.checkpoint.files import Checkpoint, CheckpointFiles, write_query_id
from streams.engine.source.offsets import SourceOffsets, TopicOffsets
from streams.errors import LakePositionError

# --- `SinkCommit`: what a sink writes into each of its table's commits, and reads there at each start.
#
# The text is the `userMetadata` of a Delta commit, and so becomes visible with the rows or not at all.

TABLE_COMMIT = "table-commit.json"
"""The copy of the last commit: a file in the sink's folder of the checkpoint."""
MARK = "streams_on_spark"
"""The name in the JSON object of a commit's metadata; other writers' metadata does not have it."""


@dataclass(frozen=True, slots=True)
class SinkId:
    """A sink of an application."""

    application_id: str
    sink: str

    def transactions(self, topic_id: str) -> str:
        """The `txnAppId` of the sink's commits. A new internal topic begins a new series of versions."""
        return f"streams/{self.application_id}/{self.sink}/{topic_id}"

    def __str__(self) -> str:
        return f"{self.application_id}/{self.sink}"


@dataclass(frozen=True, slots=True)
class SinkCommit:
    """One commit of a sink.

    Attributes:
        version: The number of this commit among the sink's own, from 1 on; 0: the state before the first.
        position: The positions in the internal topic after the commit's rows.
        attempt: The id of the attempt that made the commit.
    """

    version: int
    position: TopicOffsets
    attempt: str = ""

    def to_json(self, of: SinkId) -> dict[str, Any]:
        return {
            "application": of.application_id,
            "sink": of.sink,
            "version": self.version,
            "topic_id": self.position.topic_id,
            "offsets": list(self.position.offsets),
            "attempt": self.attempt,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SinkCommit:
        position = TopicOffsets(str(data["topic_id"]), tuple(map(int, data["offsets"])))
        return cls(int(data["version"]), position, str(data["attempt"]))

    def text(self, of: SinkId) -> str:
        return orjson.dumps({MARK: self.to_json(of)}).decode()


def newest(metadata: Iterable[str | None], of: SinkId) -> SinkCommit | None:
    """The newest commit of a sink among the `userMetadata` of a table's commits, newest first; None: there is none."""
    for text in metadata:
        if not text or MARK not in text:
            continue
        try:
            data = orjson.loads(text)[MARK]
            if (data["application"], data["sink"]) == (of.application_id, of.sink):
                return SinkCommit.from_json(data)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            continue  # another writer's text
    return None


# --- Where a sink continues: behind the newest commit in its table, if everything matches
#
# The table decides. The copy of the last commit at the application's checkpoint only shows that a table without commits of the
# sink is a different one than before, and stands in for commits that Delta has removed from a table's history.


@dataclass(frozen=True, slots=True)
class TopicLog:
    """The current state of the internal topic.

    Attributes:
        begins: The first offset of each partition that still exists.
    """

    name: str
    topic_id: str
    begins: Sequence[int]
    ends: Sequence[int]


def topic_log(admin: KafkaAdmin, topic: str) -> TopicLog:
    info = admin.describe_topics([topic])[topic]
    places = [(topic, partition) for partition in range(info.partitions)]
    begins, ends = admin.begin_offsets(places), admin.end_offsets(places)
    return TopicLog(topic, info.topic_id, [begins[at] for at in places], [ends[at] for at in places])


@dataclass(frozen=True, slots=True)
class SavedCommit:
    """The copy of the last commit.

    Attributes:
        table_id: Delta's id of the table; a new table of the same name has another id.
    """

    commit: SinkCommit
    table_id: str


def resume(
    of: SinkId, table: str, found: SinkCommit | None, table_id: str, saved: SavedCommit | None, log: TopicLog
) -> SinkCommit:
    """The commit after which the sink continues; `table` describes what it writes to, such as `delta table /lake/orders`."""
    if saved is not None and saved.commit.position.topic_id != log.topic_id:
        saved = None  # of an internal topic that a reset has deleted
    if found is None and saved is not None:
        if saved.table_id != table_id:
            raise LakePositionError(
                f"{of}: the {table} is not the one that was written last: it was dropped or replaced, and the rows of "
                f"commits 1 to {saved.commit.version} are missing in it. Nothing was written. Put the old table back. Or start "
                f"over with `streams reset`, which lets the application write all results again. Or continue in this table "
                f"without the old rows: {_drop(of)}."
            )
        found = saved.commit  # its entry in the history is older than the table keeps
    if found is None:
        found = SinkCommit(0, TopicOffsets(log.topic_id, ()))
    if found.position.topic_id != log.topic_id:
        raise LakePositionError(
            f"{of}: the {table} has rows of the internal topic {log.name} as it was before it was deleted and created again "
            f"(by a reset, for example), so new rows would come on top of those. Nothing was written. Delete the table, and "
            f"the position if that is kept elsewhere (docs/sinks.md), to write to an empty one; or give the sink a "
            f"new name (named=...) to keep the rows and add to them."
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
                f"{of}: the {table} has the rows of {log.name}-{partition} up to offset {at}, but the topic begins at "
                f"{begin}: the {begin - at} offsets between were deleted after they had been written, to a table (or a version of "
                f"it) that is no longer here. Nothing was written. Put that table back. Or start over with `streams reset`. Or "
                f"continue in this table without them: {_drop(of)}, and give the sink a new name (named=...)."
            )
        if at > end:
            raise LakePositionError(
                f"{of}: the {table} has the rows of {log.name}-{partition} up to offset {at}, but the topic ends at {end}: "
                f"the topic has lost records. Nothing was written. Start over with `streams reset` and a new table. Or "
                f"continue in this table without them: {_drop(of)}, and give the sink a new name (named=...)."
            )
    if len(known) > len(log.begins):
        raise LakePositionError(
            f"{of}: the {table} has rows of {len(known)} partitions of {log.name}, which has {len(log.begins)}. Nothing was "
            f"written. Start over with `streams reset` and a new table."
        )
    return TopicOffsets(log.topic_id, offsets)


# --- The note in Kafka of the last batch that a function of `foreach_batch` was called with
#
# The function relies on the numbers of batches, which Spark's checkpoint alone decides. A checkpoint that is lost, or restored from
# a copy, would give a number that the function has seen to other rows. So the driver notes each number before the call, as metadata
# of the application's group offsets of the internal topic; the offsets themselves move once the function has returned. Kafka
# forgets them after some quiet days; then the next start writes the note from the checkpoint.


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The note of the last batch that was handed to a function.

    Attributes:
        batch: The number of the batch; -1: the function was never called.
        end: The end of the batch, by partition.
        done: By partition, the end of the last batch that the function has completed.
        settings: The settings that Spark has logged with the batch, which it needs to run the batch again.
    """

    topic: str
    topic_id: str
    batch: int
    end: Sequence[int]
    done: Sequence[int]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint, log: TopicLog) -> HandedOver:
        def end(batch: int) -> Sequence[int]:
            at = checkpoint.offsets.get(batch)
            of = at.topics.get(log.name) if at else None
            return of.offsets if of else [0] * len(log.ends)

        return cls(log.name, log.topic_id, checkpoint.logged, end(checkpoint.logged), end(checkpoint.committed))

    @classmethod
    def of_group(cls, offsets: Mapping[TopicPartition, tuple[int, str]], log: TopicLog) -> HandedOver | None:
        """The note in the group's offsets and their metadata; None: they have none of this topic."""
        notes = {
            place[1]: (at, note)
            for place, (at, text) in offsets.items()
            if text and (note := _first_json(text))["topic_id"] == log.topic_id
        }
        if not notes:
            return None
        end = [notes[n][1]["end"] if n in notes else 0 for n in range(len(log.ends))]
        done = [notes[n][0] if n in notes else 0 for n in range(len(log.ends))]
        settings: Mapping[str, Any] = next((note["settings"] for _, note in notes.values() if "settings" in note), {})
        return cls(log.name, log.topic_id, max(note["batch"] for _, note in notes.values()), end, done, settings)

    @classmethod
    def of_admin(cls, admin: KafkaAdmin, of: SinkId, log: TopicLog) -> HandedOver | None:
        places = [(log.name, number) for number in range(len(log.ends))]
        return cls.of_group(admin.group_notes(of.application_id, places), log)

    def to_group(self) -> dict[TopicPartition, tuple[int, str]]:
        notes: list[dict[str, Any]] = [{"batch": self.batch, "end": end, "topic_id": self.topic_id} for end in self.end]
        notes[0]["settings"] = self.settings  # once: a broker takes 4096 bytes of metadata
        texts = (orjson.dumps(note).decode() for note in notes)
        return {(self.topic, number): at for number, at in enumerate(zip(self.done, texts, strict=True))}

    def calls(self, batch: int, end: Sequence[int], settings: Mapping[str, Any]) -> HandedOver:
        return replace(
            self, batch=batch, end=end, settings=settings, done=[*self.done, *[0] * (len(end) - len(self.done))]
        )

    def returned(self) -> HandedOver:
        return replace(self, done=self.end)


def _first_json(text: str) -> dict[str, Any]:
    """The object at the beginning of a note, which other bytes may follow (`state.kafka.admin.note_of`)."""
    note: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    return note


def check_handed_over(of: SinkId, checkpoint: Checkpoint, note: HandedOver | None, log: TopicLog) -> None:
    """Refuses a checkpoint that would hand over a batch with other rows under a number that was used already.

    Raises:
        LakePositionError: The checkpoint would do so.
    """
    if checkpoint.query_id is None and (any(log.ends) if note is None else note.batch >= 0):
        seen = "records have been sent to it before" if note is None else f"batch {note.batch} was handed over last"
        raise refused(of, f"is missing, but {seen}. A new checkpoint would count from 0 again", note is not None)
    if checkpoint.query_id is None or note is None:
        return
    if checkpoint.logged < note.batch:
        raise refused(of, f"ends with batch {checkpoint.logged}, but batch {note.batch} was handed over last")
    logged = checkpoint.offsets.get(note.batch)
    found = logged.topics.get(log.name) if logged else None
    if found is not None and found.topic_id == note.topic_id and list(found.offsets) != list(note.end):
        raise refused(of, f"has other rows for batch {note.batch} than the ones that were handed over")


def write_checkpoint(files: CheckpointFiles, sink: str, note: HandedOver) -> None:
    """Makes a new checkpoint from a note. A batch whose call has not returned runs again, with the same number and rows."""
    returned = list(note.done) == list(note.end)
    for batch, end in ((note.batch - 1, note.done), (note.batch, note.end)):
        if batch >= 0:
            at = SourceOffsets({note.topic: TopicOffsets(note.topic_id, tuple(end))})
            lines = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}, **note.settings}, at.to_json()
            files.write(f"{sink}/offsets/{batch}", b"\n".join([b"v1", *map(orjson.dumps, lines)]))
    if (committed := note.batch if returned else note.batch - 1) >= 0:
        files.write(f"{sink}/commits/{committed}", b"v1\n" + orjson.dumps({"nextBatchWatermarkMs": 0}))
    # Written last, because a checkpoint exists once it has its id.
    write_query_id(files, sink, str(uuid.uuid4()))


def refused(of: SinkId, what: str, noted: bool = True) -> LakePositionError:
    """The error for a checkpoint that does not fit; a new one can be made if the last batch is noted in Kafka."""
    adopt = "Or delete that folder and let `streams adopt` make a new one behind the last batch. " if noted else ""
    return LakePositionError(
        f"{of}: the checkpoint of this foreach_batch sink {what}. A function that skips numbers it has seen would lose records. "
        f"Nothing was read. Put the folder {of.sink} of the checkpoint back as it was last. {adopt}Or give up the rows that wait "
        f"in the sink's internal topic, with `streams reset {of.application_id} --drop-sink {of.sink}`: the sink then begins with "
        f"batch 0 and new records, and all other state stays. First delete everything that the function has stored under its "
        f"batch numbers."
    )
