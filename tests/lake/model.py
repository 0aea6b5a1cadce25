"""A plain model of what a lake sink has around it: a Delta table, an internal topic, and a driver that may die at any step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from streams.engine.source.offsets import TopicOffsets
from streams.lake.commit import SavedCommit, SinkCommit, SinkId, TopicLog, newest, resume
from streams.lake.writer import LakeWriter, WriteConflictError

SINK = SinkId("app", "delta-flights")


class DriverDied(BaseException):
    """The driver was killed: nothing that it would have done next happens."""


@dataclass
class ModelTable:
    """A Delta table: rows, one `userMetadata` for each commit, and the last version of each `txnAppId`.

    Attributes:
        before, after: Called before and after each commit; may raise.
    """

    table_id: str = "table-1"
    rows: list[str] = field(default_factory=list)
    metadata: list[str | None] = field(default_factory=list)
    transactions: dict[str, int] = field(default_factory=dict)
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None

    def write(self, frame: list[str], commit: SinkCommit) -> None:
        app = SINK.transactions(commit.position.topic_id)
        self.before()
        if self.transactions.get(app, -1) >= commit.version:
            return  # as Delta does: silently
        self.rows += frame
        self.metadata.append(commit.text(SINK))
        self.transactions[app] = commit.version
        self.after()

    def newest_commit(self) -> SinkCommit | None:
        return newest(reversed(self.metadata), SINK)


@dataclass
class ModelTopic:
    """The internal topic: records by partition, and where each partition begins."""

    topic_id: str = "topic-1"
    records: list[list[str]] = field(default_factory=lambda: [[], []])
    begins: list[int] = field(default_factory=lambda: [0, 0])

    def append(self, count: int) -> None:
        for number in range(count):
            partition = self.records[number % len(self.records)]
            partition.append(f"{number % len(self.records)}-{len(partition)}")

    @property
    def log(self) -> TopicLog:
        return TopicLog("app-delta-flights-repartition", self.topic_id, self.begins, [len(of) for of in self.records])

    def read(self, start: TopicOffsets, end: TopicOffsets) -> list[str]:
        pairs = enumerate(zip(start.offsets, end.offsets, strict=True))
        for partition, (first, _) in pairs:
            assert first >= self.begins[partition], "records that are gone cannot be read"
        return [
            record
            for partition, (first, last) in enumerate(zip(start.offsets, end.offsets, strict=True))
            for record in self.records[partition][first:last]
        ]

    def purge(self, end: TopicOffsets) -> None:
        self.begins = [max(pair) for pair in zip(self.begins, end.offsets, strict=True)]


@dataclass
class ModelSink:
    """A sink over a table and a topic; `saved` is the copy of the last commit beside the checkpoint."""

    table: ModelTable = field(default_factory=ModelTable)
    topic: ModelTopic = field(default_factory=ModelTopic)
    saved: SavedCommit | None = None
    attempts: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    pauses: list[float] = field(default_factory=list)

    def resume(self) -> SinkCommit:
        found = self.table.newest_commit()
        return resume(SINK, "delta table /lake/flights", found, self.table.table_id, self.saved, self.topic.log)

    def writer(self) -> LakeWriter[list[str]]:
        return LakeWriter(
            SINK, self.table, self.resume(), self._save, self.pauses.append, lambda: f"attempt-{next(self.attempts)}"
        )

    def _save(self, commit: SinkCommit) -> None:
        self.saved = SavedCommit(commit, self.table.table_id)

    def write(self, writer: LakeWriter[list[str]], records: int | None = None) -> bool:
        """Writes the next batch, of so many records of each partition at most; returns whether there was anything to write."""
        start = writer.at.position
        ends = (len(of) for of in self.topic.records)
        reach = (
            end if records is None else min(end, at + records) for at, end in zip(start.offsets, ends, strict=True)
        )
        end = TopicOffsets(self.topic.topic_id, tuple(reach))
        if end == start:
            return False
        writer.write(self.topic.read(start, end), end)
        self.topic.purge(end)
        return True

    def run(self, records: int | None = None) -> None:
        """One run, to the end of the topic."""
        writer = self.writer()
        while self.write(writer, records):
            pass


def conflict() -> None:
    """What a table raises when another writer was faster."""
    raise WriteConflictError("ConcurrentAppendException: files were added")


def died() -> None:
    """The driver's end."""
    raise DriverDied
