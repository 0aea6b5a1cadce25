"""The queries that read the sources outside Kafka (`from_dataframe`, `from_delta`) and write their rows to internal topics.

The order of a batch: Spark logs it; each task writes its rows and a marker in one Kafka transaction (`state.commit.ingest`); Spark
confirms it. A batch that runs again finds the markers. Before a query starts, a lost checkpoint is made again from the markers.
While a source is paused, its batches wait before they write anything (`PauseHold`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from state.commit.decide import TaskIdentity
from state.commit.ingest import check_batch, check_rows, write_batch
from state.commit.ingest_batch import IngestBatch
from state.commit.live import LiveKafka
from streams.application.ingests import ingest_topic, keys_digest, last_markers, logged_batch, remake_checkpoint
from streams.application.prepare import Application, kafka_of
from streams.checkpoint.files import query_id_of
from streams.driver.checkpoint_files import checkpoint_files, checkpoint_of_query
from streams.driver.delta import open_delta
from streams.driver.ingest.writer import REPORT, TALLY, WriteJob, tally, writer_of
from streams.driver.progress import Progress
from streams.driver.queries import readable
from streams.driver.session import settings_meanwhile
from streams.driver.stopping import StopGate, gated
from streams.dsl.builder import DeltaRead
from streams.engine.source.pauses import LOOK_MS, Pauses
from streams.errors import ConfigError
from streams.metrics.application import SKIPPED, StepFigures
from streams.model.table_columns import quoted
from streams.topology.graph.nodes import Ingest

STATIC = "static"
"""The query id in the markers of a static DataFrame, which no query reads."""
_SETTINGS = {
    # The engine's own rows are few and large; these are many and small.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    # Adaptive execution would replace the tasks of a batch without rows by none.
    "spark.sql.adaptive.enabled": "false",
}
"""Settings of the session while a batch is written."""
CHANGE, VERSION, COMMITTED = "_change_type", "_commit_version", "_commit_timestamp"
"""The columns that Delta's change data feed adds."""
_UTC = {"timeZone": "UTC"}
_JSON = {**_UTC, "ignoreNullFields": "false"}
_EPOCH = "TIMESTAMP_NTZ'1970-01-01'"
"""Times without a zone are in UTC. Unlike casts, sums and differences of such times do not depend on the session's zone."""
_FEED = "delta.enableChangeDataFeed"


@dataclass(frozen=True)
class PauseHold:
    """The pauses of an application's sources outside Kafka.

    Attributes:
        read: Reads the current pauses; called by the threads of several queries.
    """

    read: Callable[[], Pauses]
    sleep: Callable[[float], object] = time.sleep

    def holds(self, source: str) -> bool:
        """Whether a source is paused now, individually or with the whole application."""
        return self.read().of(source) is not None

    def pass_when_resumed(self, source: str, gate: StopGate) -> None:
        """Returns once a source is not paused.

        Raises:
            BatchInterruptedError: The query should stop.
        """
        while self.holds(source):
            gate.enter()
            self.sleep(LOOK_MS / 1000)
        gate.enter()


@dataclass(frozen=True)
class IngestRun:
    """The part of a run that all sources outside Kafka share.

    Attributes:
        trigger: Arguments of `DataStreamWriter.trigger`.
        gates: `runId` -> the gate that stops the query; filled by this object.
    """

    session: SparkSession
    application: Application
    trigger: Mapping[str, Any]
    gates: dict[str, StopGate]
    progress: Progress
    hold: PauseHold

    def starts(self) -> list[Callable[[], StreamingQuery]]:
        """Reads the static DataFrames, and returns functions that start the queries of the other sources.

        A paused source is left to a later start if nothing can wait for the resume: a static DataFrame has no query that waits, and
        a run over the existing input has to end.

        Raises:
            ConfigError: A DataFrame cannot be made, or lacks a column.
        ApplicationFailedError: A row of a static DataFrame cannot be written.
        """
        found: list[Callable[[], StreamingQuery]] = []
        for ingest in self.application.plan.topology.ingests.values():
            frame = self._frame(ingest)
            ends = self.application.config.available_now or not frame.isStreaming
            if ends and self.hold.holds(ingest.name):
                self.progress.say(f"the source '{ingest.name}' is paused: it is read at the first start after a resume")
            elif frame.isStreaming:
                self._tell_started(ingest)
                found.append(partial(self._start, ingest))
            else:
                try:
                    self._read_once(ingest, frame)
                except PySparkException as error:
                    raise readable(error) from error
        return found

    def _frame(self, ingest: Ingest) -> DataFrame:
        if ingest.delta:
            check_table(self.session, ingest)
        try:
            frame = ingest.frame(self.session)
        except Exception as error:
            raise ConfigError(f"the DataFrame of the source '{ingest.name}' cannot be made: {error}") from error
        if not isinstance(frame, DataFrame):
            raise ConfigError(f"the function of the source '{ingest.name}' returned {frame!r} instead of a DataFrame")
        check_columns(frame, ingest)
        return frame

    def _read_once(self, ingest: Ingest, frame: DataFrame) -> None:
        config = self.application.config
        # Tasks that have no marker are left over from a run that ended within the batch.
        if len(last_markers(kafka_of(config), ingest, config.application_id)) < ingest.partitions:
            self._tell_started(ingest)
            self._write(ingest, frame, STATIC, IngestBatch(0, "", time.time_ns() // 1_000_000))

    def _start(self, ingest: Ingest) -> StreamingQuery:
        config, folder = self.application.config, ingest.lasting_name
        files = checkpoint_files(self.session, config.checkpoint_dir)
        if query_id_of(files, folder) is None:
            markers = last_markers(kafka_of(config), ingest, config.application_id)
            if (batch := remake_checkpoint(files, ingest, markers)) is not None:
                self.progress.say(f"the checkpoint of '{ingest.name}' was missing: made again up to batch {batch}")

        first = True

        def write(frame: DataFrame, batch_id: int) -> None:
            nonlocal first
            self.hold.pass_when_resumed(ingest.name, gate)
            query_id = query_id_of(files, folder)
            assert query_id is not None, "Spark has written it before the first batch"
            self._write(ingest, frame, query_id, logged_batch(files, folder, batch_id), first)
            first = False

        gate = StopGate()
        query = (
            self._frame(ingest)
            .writeStream.queryName(f"{config.application_id}/{ingest.name}")
            .option("checkpointLocation", checkpoint_of_query(config.checkpoint_dir, folder))
            .trigger(**self.trigger)
            .foreachBatch(gated(gate, write))
            .start()
        )
        self.gates[query.runId] = gate
        return query

    def _write(self, ingest: Ingest, frame: DataFrame, query_id: str, batch: IngestBatch, first: bool = True) -> None:
        """Writes a batch, and shows the reports of its tasks.

        Raises:
            CheckpointMismatchError: The last batch that tasks have written is a different one, or had different rows.
        """
        config, topic, tasks = self.application.config, self._topic(ingest), ingest.partitions
        log = LiveKafka(config.client, config.transaction_timeout_ms, config.bulk_io, (topic,), query_id)
        batch = replace(batch, keys=keys_digest(ingest, frame.dtypes))
        identities = [
            TaskIdentity(config.application_id, ingest.lasting_name, task, tasks, query_id, "") for task in range(tasks)
        ]
        written = check_batch(log, identities, topic, tasks, batch) if first else {}
        if len(written) == tasks:
            reports = [(task, -1, 0.0, "{}") for task in written]
        else:
            with settings_meanwhile(frame.sparkSession, _SETTINGS):
                records = records_of(frame, ingest, batch.now_ms)
                if written:
                    counted = {row.task: row for row in records.mapInArrow(tally, TALLY).collect()}
                    self._missing(ingest, {task: row.records for task, row in counted.items()})
                    for task, marker in written.items():
                        now = (counted[task].records, counted[task].hash) if task in counted else (0, 0)
                        check_rows(identities[task], batch, marker, *now)
                writer = writer_of(
                    WriteJob.of(ingest, topic, config, self.application.task_settings({})), query_id, batch
                )
                reports = [tuple(row) for row in records.mapInArrow(writer, REPORT).collect()]
            for task in self._missing(ingest, {task: records for task, records, *_ in reports}):
                found = write_batch(log, identities[task], topic, tasks, batch, ())
                reports.append((task, -1 if found is None else found, 0.0, "{}"))
        self.progress.step(ingest.name, batch.batch_id, [_report(*row, batch) for row in reports])

    def _missing(self, ingest: Ingest, records: Mapping[int, int]) -> list[int]:
        """The tasks that Spark has not run because there were no rows at all."""
        missing = [task for task in range(ingest.partitions) if task not in records]
        if missing and any(number > 0 for number in records.values()):
            raise ConfigError(
                f"Spark has run {len(records)} of the {ingest.partitions} tasks of the source '{ingest.name}', though there "
                f"are rows: a setting or an extension of this session merges partitions. Switch it off for this application"
            )
        return missing

    def _tell_started(self, ingest: Ingest) -> None:
        """Shows the source as started. Called only if a batch will come, because the application is ready once that is written."""
        self.progress.started(ingest.name, ingest.partitions, (self._topic(ingest),))

    def _topic(self, ingest: Ingest) -> str:
        return ingest_topic(ingest, self.application.config.application_id)


def _report(task: int, rows: int, seconds: float, counters: str, batch: IngestBatch) -> StepFigures:
    """The figures in a row of `REPORT`. Its number of rows is negative if the part was written before."""
    found: dict[str, int] = orjson.loads(counters)
    left_out = sum(count for name, count in found.items() if name.startswith("dropped:"))
    return StepFigures(
        task,
        batch.batch_id + 1,
        decision=SKIPPED if rows < 0 else "run",
        records_in=max(rows, 0),
        records_out=max(rows, 0) - left_out,
        counters=found,
        seconds={"commit": seconds},
        total_s=seconds,
    )


def check_table(session: SparkSession, ingest: Ingest) -> None:
    """Checks that the table of `from_delta` exists, and has the requested changes."""
    read = ingest.frame
    if not isinstance(read, DeltaRead):
        return
    table = open_delta(session, read.table, read.is_path)
    if table is None:
        raise ConfigError(
            f"the source '{ingest.name}' reads the Delta table {read.table}, and there is none. Nothing was written. Create the "
            f"table before the start, or correct its path or name."
        )
    properties = table.detail().select("properties").collect()[0].properties
    if read.change_feed and properties.get(_FEED, "").lower() != "true":
        name = f"delta.`{read.table}`" if read.is_path else read.table
        raise ConfigError(
            f"the source '{ingest.name}' reads the change data feed of {read.table}, and that table records no changes. Nothing "
            f"was written. Switch the feed on: ALTER TABLE {name} SET TBLPROPERTIES ({_FEED} = true); or, for a table that "
            f'to_delta() makes, properties={{"{_FEED}": "true"}}. Without change_feed=True, rows that are appended are read.'
        )


def records_of(frame: DataFrame, ingest: Ingest, now_ms: int) -> DataFrame:
    """The columns `key` and `value` (text), `timestamp` (ms) and `hash` (of key and value), in one partition for each task.

    Changes are in the order of their commits; within a commit, deletions come first.

    Raises:
        ConfigError: A column is missing.
    """
    check_columns(frame, ingest)
    own = [name for name in frame.columns if not (ingest.change_feed and name in (CHANGE, VERSION, COMMITTED))]
    value = F.to_json(F.struct(*map(_column, own)), _JSON)
    order = [F.col("timestamp")] if ingest.timestamp else []
    if ingest.change_feed:
        frame = frame.where(F.col(CHANGE) != "update_preimage")
        deleted = F.col(CHANGE) == "delete"
        value = F.when(~deleted, value)
        order = [F.col("version"), F.col("lives"), *order]
    rows = frame.select(
        _key(frame, ingest).alias("key"),
        value.alias("value"),
        _timestamp(frame, ingest, now_ms).alias("timestamp"),
        *([F.col(VERSION).alias("version"), (~deleted).alias("lives")] if ingest.change_feed else []),
    )
    rows = rows.repartition(ingest.partitions, F.coalesce("key", "value"))
    return (rows.sortWithinPartitions(*order) if order else rows).select(
        "key", "value", "timestamp", F.xxhash64("key", "value").alias("hash")
    )


def check_columns(frame: DataFrame, ingest: Ingest) -> None:
    """Checks that a DataFrame has the columns that the source names."""
    wanted = [*ingest.key, *filter(None, [ingest.timestamp]), *([CHANGE, VERSION] if ingest.change_feed else [])]
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise ConfigError(
            f"the source '{ingest.name}' has no column {', '.join(map(repr, missing))}; it has {', '.join(frame.columns)}. "
            f"Nothing was written."
        )


def _key(frame: DataFrame, ingest: Ingest) -> Column:
    """The key: one column as text, or several columns as a JSON object; null if a part is null."""
    if not ingest.key:
        return F.lit(None).cast("string")
    columns = [_column(name) for name in ingest.key]
    if ingest.plain_key:
        if isinstance(frame.schema[ingest.key[0]].dataType, TimestampType):
            seconds = (F.unix_micros(columns[0]) / F.lit(1_000_000).cast("decimal(7,0)")).cast("decimal(18,6)")
            columns[0] = F.expr(_EPOCH) + F.make_dt_interval(secs=seconds)
        return columns[0].cast("string")
    known = columns[0].isNotNull()
    for column in columns[1:]:
        known = known & column.isNotNull()
    return F.when(known, F.to_json(F.struct(*columns), _UTC))


def _timestamp(frame: DataFrame, ingest: Ingest, now_ms: int) -> Column:
    name = ingest.timestamp or (COMMITTED if ingest.change_feed else None)
    if name is None:
        return F.lit(now_ms).cast("long")
    column, kind = _column(name), frame.schema[name].dataType
    if isinstance(kind, TimestampType):
        column = F.unix_millis(column)
    elif isinstance(kind, TimestampNTZType):
        column = F.floor((column - F.expr(_EPOCH)).cast("interval second").cast("decimal(18,6)") * 1000)
    elif isinstance(kind, DateType):
        column = F.unix_date(column).cast("long") * 86_400_000
    return F.coalesce(column.cast("long"), F.lit(now_ms).cast("long"))


def _column(name: str) -> Column:
    return F.col(quoted(name))
