"""Checkpoints as Spark writes them, and markers, made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from state.commit.marker import CommitMarker
from streams.checkpoint.compare import SubIdentity
from streams.checkpoint.files import LocalFiles, write_first_batch, write_query_id
from streams.engine.source.offsets import FirstBatch, SourceOffsets, TopicOffsets, batch_digest

SUB = SubIdentity("app", "in", 2, "hash")


def at(*offsets: int, tick: int = 0) -> SourceOffsets:
    """Positions in the two partitions of the topic `in`."""
    return SourceOffsets({"in": TopicOffsets("id", offsets)}, tick=tick)


@dataclass
class Made:
    """A checkpoint with micro-batches that end at given positions.

    Attributes:
        folder: the application's.
        ends: of the micro-batches.
        committed: how many of them are confirmed.
    """

    folder: Path
    ends: Sequence[SourceOffsets]
    committed: int
    start: SourceOffsets = field(default_factory=lambda: at(0, 0))

    def write(self) -> LocalFiles:
        files = LocalFiles(str(self.folder))
        write_query_id(files, "in", "query")
        write_first_batch(files, "in", FirstBatch(self.start))
        for number, end in enumerate(self.ends):
            files.write(f"in/offsets/{number}", f'v1\n{{"conf":{{}}}}\n{json.dumps(end.to_json())}'.encode())
        for number in range(self.committed):
            files.write(f"in/commits/{number}", b'v1\n{"nextBatchWatermarkMs":0}')
        return files

    def marker(self, task: int, number: int, **changes: Any) -> CommitMarker:
        """What a task of this query has committed."""
        start = self.start if number == 0 else self.ends[number - 1]
        ranges = {str(r.partition): (r.start, r.end) for r in start.ranges_to(self.ends[number])}
        fields = {"batch_id": number, "batch": batch_digest(start, self.ends[number]), "ranges": {"in": ranges}}
        return made_marker(task, **{**fields, **changes})


def made_marker(task: int, **changes: Any) -> CommitMarker:
    """A marker of the query `query`, version 3."""
    fields: dict[str, Any] = {
        "query_id": "query",
        "task": task,
        "tasks": 2,
        "topology_hash": "hash",
        "version": 3,
        "batch_id": 0,
        "batch": "",
        "ranges": {},
        "topic_ids": {"in": "id"},
        "stream_time": 5,
        "operator_state": {"a": 1},
        "changelog_ends": {"store": 7},
        "expired_before": {},
        "counts": {},
        "changelog_hash": "",
        "now_ms": 9,
    }
    return CommitMarker(**{**fields, **changes})
