"""`SparkDeltaTable`: the Delta table of a sink, written with `txnAppId` and `txnVersion`.

`append` takes these two and the commit's `userMetadata` from options of the writer, MERGE from settings of the session. Here they
are set for one write and removed after it, so that an OPTIMIZE never carries them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from delta import exceptions as delta_exceptions
from delta.tables import DeltaTable as Delta
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from streams.driver.checkpoint_files import qualified
from streams.driver.delta import open_delta
from streams.driver.session import settings_meanwhile
from streams.errors import LakePositionError, LakeSchemaError
from streams.lake.commit import SinkCommit, SinkId, newest
from streams.lake.writer import DELETED, OFFSET, PARTITION, WriteConflictError, sql_columns
from streams.model.table_columns import ColumnRule, RowLayout, quoted
from streams.topology.graph import DeltaTable

log = logging.getLogger(__name__)

_LOOK_BACK = (5, 100, None)
"""How many commits of a table's history to search for the sink's last commit, in three attempts; None: all of them. Other writers
may have committed since."""
_CONFLICTS = tuple(getattr(delta_exceptions, name) for name in delta_exceptions.__all__)
"""Delta's errors if another commit was faster. In Python these classes do not derive from each other."""
_VIOLATION = re.compile(r"DeltaInvariantViolationException: \[\w+\] (.*?)(?=\n\s*at |\Z)", re.DOTALL)
"""Delta's message about a row that breaks a rule of the table: CHECK, NOT NULL, VARCHAR(n)."""
_LONGEST = re.compile(r"(?:var)?char\((\d+)\)")
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"


class SparkDeltaTable:
    def __init__(self, session: SparkSession, of: SinkId, target: DeltaTable, layout: RowLayout) -> None:
        self._session, self._of, self._target, self._layout = session, of, target, layout
        self._name = qualified(session, target.name) if target.is_path else target.name
        self._id = ""

    def exists(self) -> bool:
        return open_delta(self._session, self._target.name, self._target.is_path) is not None

    def table_id(self) -> str:
        """Delta's id of the table; empty if it does not exist."""
        return str(self._detail().id) if self.exists() else ""

    def prepare(self) -> str:
        """Creates the table if it is missing, and checks its columns."""
        wanted = StructType.fromDDL(sql_columns(self._layout))
        if not self.exists():
            self._create(wanted)
        detail, asked = self._detail(), self._target.partition_by
        if asked and tuple(detail.partitionColumns) != asked:
            raise LakeSchemaError(
                f"{self._of}: the table {self._target.name} is partitioned by {', '.join(detail.partitionColumns) or 'nothing'}, "
                f"and the sink by {', '.join(asked)}. Nothing was written. Leave partition_by out to write the table as it is; or "
                f"write a new table."
            )
        self._check_columns(wanted)
        self._id = str(detail.id)
        return self._id

    def rules(self) -> tuple[ColumnRule, ...]:
        """The table's rules for the sink's columns that can be checked cell by cell, apart from the types."""
        has = {field.name.lower(): field for field in self._delta(self._session).toDF().schema}
        found = []
        for name in self._layout.names:
            field = has[name.lower()]
            text = _LONGEST.fullmatch(field.metadata.get("__CHAR_VARCHAR_TYPE_STRING", ""))
            found.append(ColumnRule(name, not field.nullable, int(text[1]) if text else None))
        return tuple(rule for rule in found if rule != ColumnRule(rule.name))

    def close(self) -> None:
        """Does nothing, because a Spark table has nothing to close."""

    def write(self, frame: DataFrame, commit: SinkCommit) -> None:
        """Appends or merges the rows in one commit, as `streams.lake.writer.Table` describes."""
        if self.table_id() != self._id:  # an append would create a new table without the existing rows
            raise LakePositionError(
                f"{self._of}: the table {self._target.name} was dropped or replaced while the application ran. Nothing "
                f"was written, and the rows of this batch wait in the sink's internal topic. Put the table back, then start again."
            )
        app = self._of.transactions(commit.position.topic_id)
        settings = {_METADATA: commit.text(self._of), _APP: app, _VERSION: str(commit.version)}
        # A query runs in a session of its own, in which other queries' writes do not see these settings.
        with settings_meanwhile(frame.sparkSession, settings):
            try:
                if self._layout.keys:
                    self._merge(frame)
                else:
                    self._append(frame, settings)
            except _CONFLICTS as error:
                raise WriteConflictError(str(error).partition("\n")[0]) from error
            except Exception as error:
                if (found := _VIOLATION.search(str(error))) is None:
                    raise
                raise self._not_taken(" ".join(found[1].split())) from error

    def newest_commit(self) -> SinkCommit | None:
        """The sink's newest commit in the table's history; None: there is none."""
        table = self._delta(self._session)
        for limit in _LOOK_BACK:
            found = newest(
                (row.userMetadata for row in table.history(limit).select("userMetadata").collect()), self._of
            )
            if found is not None:
                return found
        return None

    def arranged(self, frame: DataFrame, offsets: int) -> DataFrame:
        """The rows, divided into as many files as their number allows; in a partitioned table, by the partition columns."""
        if self._target.partition_by:
            return frame
        return frame.coalesce(max(1, -(-offsets // self._target.records_per_file)))

    def tidy(self, version: int) -> None:
        """Compacts small files if it is time. A failure is only logged, because the rows are complete without it."""
        if self._target.optimize_every is None or version % self._target.optimize_every:
            return
        try:
            self._delta(self._session).optimize().executeCompaction()
        except Exception as error:
            log.warning("%s: OPTIMIZE failed, so it was skipped: %s", self._of, str(error).partition("\n")[0])

    def _not_taken(self, says: str) -> LakeSchemaError:
        return LakeSchemaError(
            f"{self._of}: the table {self._target.name} does not take a row of this batch: {says}. Nothing of the batch was "
            f"written, and its rows wait in the sink's internal topic. Let the table take the row: ALTER TABLE {self._sql_name} "
            f"with DROP CONSTRAINT, ALTER COLUMN ... DROP NOT NULL, or ALTER COLUMN ... TYPE STRING. Start again, correct the row "
            f"in the table, then put the rule back. Filter such records out before the sink. Or discard all rows that wait: "
            f"`streams reset {self._of.application_id} --drop-sink {self._of.sink}`."
        )

    @property
    def _sql_name(self) -> str:
        return f"delta.`{self._name}`" if self._target.is_path else self._name

    def _append(self, frame: DataFrame, settings: Mapping[str, str]) -> None:
        rows = frame.select(*map(_column, self._layout.names))
        if self._target.partition_by:
            rows = rows.repartition(*map(_column, self._target.partition_by))
        writer = rows.write.format("delta").mode("append").option("userMetadata", settings[_METADATA])
        writer = writer.option("txnAppId", settings[_APP]).option("txnVersion", settings[_VERSION])
        if self._target.is_path:
            writer.save(self._name)
        else:
            writer.saveAsTable(self._name)

    def _merge(self, frame: DataFrame) -> None:
        keys = self._layout.keys
        latest = Window.partitionBy(*map(_column, keys)).orderBy(sql.col(PARTITION).desc(), sql.col(OFFSET).desc())
        last = frame.withColumn("_row", sql.row_number().over(latest)).where("_row = 1").alias("new")
        same = " AND ".join(f"old.{quoted(key)} = new.{quoted(key)}" for key in keys)
        cells = {quoted(name): f"new.{quoted(name)}" for name in self._layout.names}
        (
            self._delta(frame.sparkSession)
            .alias("old")
            .merge(last, same)
            .whenMatchedDelete(f"new.{DELETED}")
            .whenMatchedUpdate(set=cells)
            .whenNotMatchedInsert(f"NOT new.{DELETED}", cells)
            .execute()
        )

    def _create(self, columns: StructType) -> None:
        builder = Delta.createIfNotExists(self._session).addColumns(columns)
        builder = builder.location(self._name) if self._target.is_path else builder.tableName(self._name)
        for name, value in self._target.properties:
            builder = builder.property(name, value)
        builder.partitionedBy(*self._target.partition_by).execute()

    def _detail(self) -> Row:
        return self._delta(self._session).detail().select("id", "partitionColumns").collect()[0]

    def _delta(self, session: SparkSession) -> Delta:
        return Delta.forPath(session, self._name) if self._target.is_path else Delta.forName(session, self._name)

    def _check_columns(self, wanted: StructType) -> None:
        """Compares the table's columns with the sink's, and adds missing ones if the sink allows that."""
        has = {field.name.lower(): field for field in self._delta(self._session).toDF().schema}
        for field in wanted:
            known = has.get(field.name.lower())
            if known is not None and known.dataType.simpleString() != field.dataType.simpleString():
                raise LakeSchemaError(
                    f"{self._of}: the column {field.name!r} of the table {self._target.name} is {known.dataType.simpleString()}, "
                    f"and the sink writes {field.dataType.simpleString()}. Nothing was written. Declare the table's type with "
                    f"schema=..., or write the field under another name (map_values()), or write a new table."
                )
        missing = [field for field in wanted if field.name.lower() not in has]
        if not missing:
            return
        names = ", ".join(field.name for field in missing)
        if not self._target.add_columns:
            raise LakeSchemaError(
                f"{self._of}: the table {self._target.name} has no column {names}. Nothing was written. Let the sink add what is "
                f"missing with to_delta(..., add_columns=True), where older rows are null there; or write a new table."
            )
        columns = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in missing)
        self._session.sql(f"ALTER TABLE {self._sql_name} ADD COLUMNS ({columns})")


def _column(name: str) -> Any:
    return sql.col(quoted(name))
