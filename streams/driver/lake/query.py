"""The streaming query of a lake sink: it writes the planner's ranges of the internal topic one after the other, each at once.

A Delta table is its own checkpoint: each start continues after the table's newest commit, and Spark's checkpoint is a temporary
folder of the driver. A sink of `foreach_batch` keeps Spark's checkpoint, whose numbers of batches its function relies on.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from state.kafka.admin import KafkaAdmin, TransientRetry, delete_if_possible
from streams.application.prepare import Application
from streams.checkpoint.files import CheckpointFiles, LocalFiles, logged_end, logged_settings, read_checkpoint
from streams.driver.checkpoint_files import checkpoint_files, checkpoint_of_query
from streams.driver.lake.delta_table import SparkDeltaTable
from streams.driver.progress import Progress
from streams.driver.session import processes_of
from streams.driver.source import lake_source
from streams.driver.stopping import StopGate, gated
from streams.engine.source.offsets import FirstBatch, SourceOffsets
from streams.engine.source.topics import SourceSpec
from streams.engine.spark.worker import RowsJob
from streams.engine.step.job import ProcessMemory
from streams.errors import DamagedCheckpointError
from streams.lake.commit import (
    TABLE_COMMIT,
    HandedOver,
    SavedCommit,
    SinkCommit,
    SinkId,
    TopicLog,
    check_handed_over,
    refused,
    resume,
    topic_log,
)
from streams.lake.sink import OpenSink
from streams.lake.writer import LakeWriter, Table
from streams.metrics.application import StepFigures
from streams.model.table_columns import ColumnRule
from streams.sinks.sink import Sink
from streams.topology.graph import DeltaTable, LakeSink

_QUERY = "query"
_Answer = TypeVar("_Answer")
_COORDINATOR_S = 10.0
"""How long the group's coordinator may be away, seconds; after that the supervisor waits and starts the query again."""

# Crash points, at which tests and drills kill the driver: `STREAMS_LAKE_CRASH=point:n` ends the process the n-th time a point is
# reached. In the order of a batch:
#
# * `resumed`: the start knows where to continue, and nothing has begun.
# * `offsets_logged`: Spark has logged the batch, and nothing is written.
# * `rows_written`: a `Sink` has the rows of the batch, and has not committed them.
# * `table_committed`: the table has the batch, and nothing else knows.
# * `purged`: the internal topic no longer has the batch, and Spark has not confirmed it.
# * `function_returned`: a function of `foreach_batch` has returned, and Spark has not confirmed the batch.

VARIABLE = "STREAMS_LAKE_CRASH"


def faults_from_environment() -> Callable[[str], None]:
    """A function that is called with the name of each crash point; it does nothing unless the environment asks for a crash."""
    point, _, times = os.environ.get(VARIABLE, "").partition(":")
    reached: Counter[str] = Counter()

    def reach(at: str) -> None:
        reached[at] += 1
        if at == point and reached[at] == int(times or 1):
            os.kill(os.getpid(), signal.SIGKILL)

    return reach


class SinkStore(Table[DataFrame], Protocol):
    """The store that a query writes to, with its position: a Delta table, written by executors, or a `Sink`, by the driver."""

    def exists(self) -> bool:
        """Whether the store may have commits of the sink."""

    def table_id(self) -> str:
        """An id that distinguishes the store from others of the same name; empty if the store does not exist."""

    def prepare(self) -> str:
        """Creates missing parts of the store; returns the id."""

    def rules(self) -> tuple[ColumnRule, ...]:
        """The store's rules for the columns, apart from their types."""

    def arranged(self, frame: DataFrame, offsets: int) -> DataFrame:
        """The rows in the arrangement that the store needs; `offsets` is the approximate number of records."""

    def tidy(self, version: int) -> None:
        """Called after each commit that has rows, to clean up."""

    def close(self) -> None:
        """Closes connections and files."""


@dataclass(frozen=True)
class _Ready:
    """A sink that can continue.

    Attributes:
        log: Its internal topic.
        table: The table, and its id; None: the sink is a function.
        at: The commit after which it continues.
        note: The note of the last batch that the function was called with; None: the sink is a table.
    """

    log: TopicLog
    table: tuple[SinkStore, str] | None = None
    at: SinkCommit | None = None
    note: HandedOver | None = None


@dataclass(frozen=True)
class LakeRun:
    """The part of a run that all lake sinks share.

    Attributes:
        trigger: Arguments of `DataStreamWriter.trigger`.
        gates: The gates that stop the queries, by `runId`.
        faults: Called at each crash point.
    """

    session: SparkSession
    application: Application
    trigger: Mapping[str, Any]
    gates: dict[str, StopGate]
    progress: Progress
    faults: Callable[[str], None]
    _ready: dict[str, _Ready] = field(default_factory=dict, init=False)

    def starts(self) -> tuple[list[Callable[[], StreamingQuery]], Application]:
        """Functions that start the sinks' queries, and the application, which now also checks rows by the rules of their tables.

        All sinks are checked before anything of the application runs; their first starts do not check again.

        Raises:
            LakeError: A sink cannot continue; nothing was written.
        """
        rules = {}
        sinks = self.application.plan.topology.lake_sinks.values()
        for sink in sinks:
            ready = self._ready[sink.name] = self._checked(sink)
            rules[sink.name] = ready.table[0].rules() if ready.table else ()
        return [partial(self._start, sink) for sink in sinks], self.application.with_rules(rules)

    def _start(self, sink: LakeSink) -> StreamingQuery:
        self.progress.started(sink.name, 1, (sink.topic.topic_name(self.application.config.application_id),))
        ready = self._ready.pop(sink.name, None) or self._checked(sink)
        gate = StopGate()
        if isinstance(sink.target, DeltaTable | Sink):
            query = self._start_table(sink, ready, gate)
        else:
            query = self._start_function(sink, sink.target, ready, gate)
        self.gates[str(query.runId)] = gate
        return query

    @property
    def _files(self) -> CheckpointFiles:
        return checkpoint_files(self.session, self.application.config.checkpoint_dir)

    def _checked(self, sink: LakeSink) -> _Ready:
        config = self.application.config
        of = SinkId(config.application_id, sink.name)
        with KafkaAdmin(config.client) as admin:
            log = topic_log(admin, sink.topic.topic_name(config.application_id))
        if not isinstance(sink.target, DeltaTable | Sink):
            return _Ready(log, note=self._check_handed_over(of, log))
        table: SinkStore = (
            OpenSink(of, sink.target, sink.layout, partial(self.faults, "rows_written"))
            if isinstance(sink.target, Sink)
            else SparkDeltaTable(self.session, of, sink.target, sink.layout)
        )
        try:
            # Before the table is created or changed: if it is missing, the user may want to put it back.
            found = table.newest_commit() if table.exists() else None
            saved = _saved(self._files.read(f"{sink.name}/{TABLE_COMMIT}"), of)
            at = resume(of, sink.target_text, found, table.table_id(), saved, log)
            return _Ready(log, (table, table.prepare()), at)
        except BaseException:
            table.close()
            raise

    def _check_handed_over(self, of: SinkId, log: TopicLog) -> HandedOver:
        """The note of the last batch that a function was called with; writes one if there is none."""
        note = self._ask(lambda admin: HandedOver.of_admin(admin, of, log))
        try:
            checkpoint = read_checkpoint(self._files, of.sink, () if note is None else [note.batch])
        except DamagedCheckpointError as error:
            raise refused(of, f"is damaged: {error}") from error
        check_handed_over(of, checkpoint, note, log)
        if note is None:
            logged = checkpoint.logged
            settings = logged_settings(self._files, of.sink, logged) if logged >= 0 else {}
            note = self._note(replace(HandedOver.of_checkpoint(checkpoint, log), settings=settings))
        return note

    def _note(self, note: HandedOver) -> HandedOver:
        app = self.application.config.application_id
        self._ask(lambda admin: admin.commit_group_offsets(app, note.to_group()))
        return note

    def _ask(self, question: Callable[[KafkaAdmin], _Answer]) -> _Answer:
        with KafkaAdmin(self.application.config.client) as admin:
            return TransientRetry(_COORDINATOR_S)(lambda: question(admin))

    def _start_table(self, sink: LakeSink, ready: _Ready, gate: StopGate) -> StreamingQuery:
        assert ready.table is not None, "see _checked"
        assert ready.at is not None, "see _checked"
        of = SinkId(self.application.config.application_id, sink.name)
        (table, table_id), topic, files = ready.table, ready.log.name, self._files
        folder = Path(tempfile.mkdtemp(prefix="streams-lake-"))
        self.faults("resumed")

        def save(commit: SinkCommit) -> None:
            self.faults("table_committed")
            files.write(f"{sink.name}/{TABLE_COMMIT}", orjson.dumps({"table_id": table_id, **commit.to_json(of)}))

        writer: LakeWriter[DataFrame] = LakeWriter(of, table, ready.at, save)

        def write(frame: DataFrame, batch_id: int) -> None:
            started = time.perf_counter()
            end = logged_end(LocalFiles(str(folder)), _QUERY, batch_id).topics[topic]
            self.faults("offsets_logged")
            offsets = sum(end.offsets) - sum(writer.at.position.offsets)
            writer.write(table.arranged(frame, offsets), end)
            with KafkaAdmin(self.application.config.client) as admin:
                written = {(topic, p): at for p, at in enumerate(end.offsets) if at}
                delete_if_possible(admin, written, {topic: end.topic_id})
            self.faults("purged")
            if offsets:
                table.tidy(writer.at.version)
            self._written(sink, batch_id, writer.at.version, offsets, started)

        # Spark's checkpoint is deleted with the query, and the table's open resources are closed with it.
        weakref.finalize(write, shutil.rmtree, folder, ignore_errors=True)
        weakref.finalize(write, table.close)
        first = FirstBatch(SourceOffsets({topic: ready.at.position}), fixed=True)
        spec = replace(self._source(sink.name, topic), first=first)
        return self._query(sink, spec, f"file://{folder / _QUERY}", len(ready.log.ends), gated(gate, write))

    def _start_function(
        self, sink: LakeSink, function: Callable[[Any, int], object], ready: _Ready, gate: StopGate
    ) -> StreamingQuery:
        assert ready.note is not None, "see _checked"
        note, topic = ready.note, ready.log.name

        def hand_over(frame: DataFrame, batch_id: int) -> None:
            nonlocal note
            started = time.perf_counter()
            end = logged_end(self._files, sink.name, batch_id).topics[topic]
            self.faults("offsets_logged")
            settings = logged_settings(self._files, sink.name, batch_id)
            note = self._note(note.calls(batch_id, end.offsets, settings))
            function(frame.drop("_deleted"), batch_id)
            self.faults("function_returned")
            note = self._note(note.returned())
            self._written(sink, batch_id, batch_id, 0, started)

        spec = replace(self._source(sink.name, topic), trimmed=frozenset({topic}))
        folder = checkpoint_of_query(self.application.config.checkpoint_dir, sink.name)
        return self._query(sink, spec, folder, len(ready.log.ends), gated(gate, hand_over))

    def _written(self, sink: LakeSink, batch_id: int, version: int, offsets: int, started: float) -> None:
        spent = time.perf_counter() - started
        figures = StepFigures(
            0, version, records_in=offsets, records_out=offsets, seconds={"process": spent}, total_s=spent
        )
        self.progress.step(sink.name, batch_id, [figures])

    def _source(self, sink: str, topic: str) -> SourceSpec:
        config = self.application.config
        return SourceSpec(
            starting={topic: "earliest"},
            max_records=config.max_records_per_trigger,
            max_bytes=config.max_bytes_per_trigger,
            decide_s=self.application.decide_s,
            broker_wait_ms=config.broker_wait_ms,
            interval_ms=config.trigger_interval_ms,
            pauses=(config.application_id, sink),
        )

    def _query(
        self,
        sink: LakeSink,
        spec: SourceSpec,
        checkpoint: str,
        partitions: int,
        write: Callable[[DataFrame, int], None],
    ) -> StreamingQuery:
        config, session = self.application.config, self.session
        memory = ProcessMemory.of(config.memory_bytes, processes_of(session))
        job = RowsJob(
            sink.layout,
            config.client,
            config.bulk_io,
            memory.prefetch_bytes,
            config.logs,
            config.application_id,
            sink.name,
        )
        source = lake_source(f"{config.application_id}-{sink.name}", spec, job)
        session.dataSource.register(source)
        session.conf.set("spark.sql.shuffle.partitions", str(partitions))
        return (
            session.readStream.format(source.name())
            .load()
            .writeStream.queryName(f"{config.application_id}/{sink.name}")
            .option("checkpointLocation", checkpoint)
            .trigger(**self.trigger)
            .foreachBatch(write)
            .start()
        )


def _saved(data: bytes | None, of: SinkId) -> SavedCommit | None:
    if data is None:
        return None
    found = orjson.loads(data)
    if (found["application"], found["sink"]) != (of.application_id, of.sink):
        return None
    return SavedCommit(SinkCommit.from_json(found), str(found["table_id"]))
