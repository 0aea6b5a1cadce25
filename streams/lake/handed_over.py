"""The note in Kafka of the last batch that a function of `foreach_batch` was called with, and what it says of a checkpoint.

The function relies on the numbers of batches, which Spark's checkpoint alone decides. A checkpoint that is lost, or put back from a
copy, would give a number that the function has seen to other rows. So the driver notes each number before the call, as metadata of
the application's group offsets of the internal topic; the offsets themselves move once the function has returned. Kafka forgets
them after some quiet days: then the next start notes what the checkpoint says.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicPartition
from streams.checkpoint.files import CheckpointFiles
from streams.checkpoint.log import Checkpoint, write_query_id
from streams.errors import LakePositionError
from streams.lake.commit import SinkId
from streams.lake.resume import TopicLog
from streams.source.offsets import SourceOffsets, TopicOffsets


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The note.

    Attributes:
        topic: The internal topic.
        topic_id: Its id.
        batch: The number of the batch; -1: the function was never called.
        end: Where the batch ends, by partition.
        done: Where the last batch ends for which the function has returned, by partition.
        settings: What Spark has logged of the batch besides; it needs these to run the batch again.
    """

    topic: str
    topic_id: str
    batch: int
    end: Sequence[int]
    done: Sequence[int]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint, log: TopicLog) -> HandedOver:
        """The note that a checkpoint amounts to."""

        def end(batch: int) -> Sequence[int]:
            at = checkpoint.offsets.get(batch)
            of = at.topics.get(log.name) if at else None
            return of.offsets if of else [0] * len(log.ends)

        return cls(log.name, log.topic_id, checkpoint.logged, end(checkpoint.logged), end(checkpoint.committed))

    @classmethod
    def of_group(cls, offsets: Mapping[TopicPartition, tuple[int, str]], log: TopicLog) -> HandedOver | None:
        """The note that the group's offsets and their metadata have; None: there is none of this topic."""
        notes = {
            place[1]: (at, note)
            for place, (at, text) in offsets.items()
            if text and (note := orjson.loads(text))["topic_id"] == log.topic_id
        }
        if not notes:
            return None
        end = [notes[n][1]["end"] if n in notes else 0 for n in range(len(log.ends))]
        done = [notes[n][0] if n in notes else 0 for n in range(len(log.ends))]
        settings: Mapping[str, Any] = next((note["settings"] for _, note in notes.values() if "settings" in note), {})
        return cls(log.name, log.topic_id, max(note["batch"] for _, note in notes.values()), end, done, settings)

    @classmethod
    def of_admin(cls, admin: KafkaAdmin, of: SinkId, log: TopicLog) -> HandedOver | None:
        """The note in Kafka; None: there is none."""
        places = [(log.name, number) for number in range(len(log.ends))]
        return cls.of_group(admin.group_notes(of.application_id, places), log)

    def to_group(self) -> dict[TopicPartition, tuple[int, str]]:
        """The group's offsets and their metadata."""
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


def check_handed_over(of: SinkId, checkpoint: Checkpoint, note: HandedOver | None, log: TopicLog) -> None:
    """Refuses a checkpoint that would hand a number over again with other rows.

    Raises:
        LakePositionError: It would.
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
        raise refused(of, f"has other rows for batch {note.batch} than those that were handed over")


def write_checkpoint(files: CheckpointFiles, sink: str, note: HandedOver) -> None:
    """Makes a new checkpoint from a note: a batch whose call has not returned runs again, with its number and its rows."""
    returned = list(note.done) == list(note.end)
    for batch, end in ((note.batch - 1, note.done), (note.batch, note.end)):
        if batch >= 0:
            at = SourceOffsets({note.topic: TopicOffsets(note.topic_id, tuple(end))})
            lines = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}, **note.settings}, at.to_json()
            files.write(f"{sink}/offsets/{batch}", b"\n".join([b"v1", *map(orjson.dumps, lines)]))
    if (committed := note.batch if returned else note.batch - 1) >= 0:
        files.write(f"{sink}/commits/{committed}", b"v1\n" + orjson.dumps({"nextBatchWatermarkMs": 0}))
    # Last: a checkpoint is there once it has its id.
    write_query_id(files, sink, str(uuid.uuid4()))


def refused(of: SinkId, what: str, noted: bool = True) -> LakePositionError:
    """The error for a checkpoint that does not fit; a new one can be made if the last batch is noted in Kafka."""
    adopt = "Or delete that folder and let `streams adopt` make a new one behind the last batch. " if noted else ""
    return LakePositionError(
        f"{of}: the checkpoint of this foreach_batch sink {what}. A function that skips numbers it has seen would lose records. "
        f"Nothing was read. Put the folder {of.sink} of the checkpoint back as it was last. {adopt}Or give up the rows that wait "
        f"in the sink's internal topic, with `streams reset {of.application_id} --drop-sink {of.sink}`: the sink then begins with "
        f"batch 0 and new records, and all other state stays. Delete what the function has stored under its numbers before that."
    )
