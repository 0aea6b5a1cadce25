"""Rows of a lake sink as Arrow columns, and `LakeWriter`, which writes them."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import orjson
import pyarrow as pa

from state.columns import RecordColumns
from streams.engine.source.offsets import TopicOffsets
from streams.errors import LakeConflictError
from streams.lake.commit import SinkCommit, SinkId
from streams.model.table_columns import Cell, ColumnType, ListType, MapType, RowLayout, StructType, quoted

# --- Rows of a sink's internal topic as Arrow columns: the table's columns, and where each row stood in the topic.

PARTITION, OFFSET, DELETED = "_partition", "_offset", "_deleted"
"""Columns in addition to the table's: the place in the internal topic, and whether the row of the key is deleted."""

_PLACES = (("_partition", "INT"), ("_offset", "BIGINT"), ("_deleted", "BOOLEAN"))
_SCALARS = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "BINARY": pa.binary(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DATE": pa.date32(),
    "DECIMAL(38,18)": pa.decimal128(38, 18),
}


def sql_columns(layout: RowLayout) -> str:
    return ", ".join(f"{quoted(column.name)} {column.type.sql}" for column in layout.columns)


def sql_schema(layout: RowLayout) -> str:
    return ", ".join([sql_columns(layout), *(f"{name} {kind}" for name, kind in _PLACES)])


def arrow_schema(layout: RowLayout) -> pa.Schema:
    columns = [pa.field(column.name, arrow_type(column.type)) for column in layout.columns]
    return pa.schema(
        [*columns, pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64()), pa.field(DELETED, pa.bool_())]
    )


def arrow_type(of: ColumnType) -> pa.DataType:
    if isinstance(of, ListType):
        return pa.list_(arrow_type(of.item))
    if isinstance(of, MapType):
        return pa.map_(pa.string(), arrow_type(of.item))
    if isinstance(of, StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in of.fields])
    return _SCALARS[of.sql]


def row_batch(records: RecordColumns, layout: RowLayout, schema: pa.Schema) -> pa.RecordBatch:
    values = records.values.to_pylist()
    rows = [_row(key, value, layout) for key, value in zip(records.keys.to_pylist(), values, strict=True)]
    columns: list[Any] = []
    for at, (name, column) in enumerate(zip(layout.names, layout.columns, strict=True)):
        read = column.type.read
        cells = [None if (cell := row.get(name)) is None else read(cell) for row in rows]
        columns.append(pa.array(cells, schema.field(at).type))
    columns.append(pa.array(_places(records.partition, rows, layout), pa.int32()))
    columns.append(pa.array(records.offsets))
    columns.append(pa.array([value is None for value in values], pa.bool_()))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _places(partition: int, rows: Sequence[Mapping[str, Cell]], layout: RowLayout) -> Any:
    """The partition of each row; it is negative if an earlier version wrote the row with another cell for its key.

    That version could send the rows of one key to several partitions. Those rows are older than all rows with the current cell.
    """
    keys = [
        column
        for column in layout.columns
        if column.name in layout.keys and re.search("DECIMAL|DOUBLE", column.type.sql)
    ]
    if not keys:
        return np.full(len(rows), partition, np.int32)

    def is_old(row: Mapping[str, Cell]) -> bool:
        return any(
            str(cell) != str(column.type.cell(column.type.read(cell)))  # as text: -0.0 equals 0.0
            for column in keys
            if (cell := row.get(column.name)) is not None
        )

    return [-1 - partition if is_old(row) else partition for row in rows]


def _row(key: bytes | None, value: bytes | None, layout: RowLayout) -> Mapping[str, Cell]:
    """The cells of a record by column. A record without a value has only the cells of its key."""
    if value is None:
        return dict(zip(layout.keys, orjson.loads(key or b"[]"), strict=True))
    row: dict[str, Cell] = orjson.loads(value)
    return row


# --- `LakeWriter`: writes one batch after the other to a table, each in one commit, and knows after each whether it
# was its own.
#
# Delta skips a write silently if the table already has a commit with its `txnAppId` and an equal or higher
# `txnVersion`. So a commit that only seemed to fail is not repeated. And if two instances of an application continue from commit n,
# one of them writes n + 1 and the other writes nothing. The writer therefore looks for its attempt in the table after each write.

FrameT_contra = TypeVar("FrameT_contra", contravariant=True)

TRIES = 6
FIRST_PAUSE_S = 0.5


class WriteConflictError(Exception):
    """Another writer of the table was faster: Delta has refused the commit as a whole."""


class Table(Protocol[FrameT_contra]):
    def write(self, frame: FrameT_contra, commit: SinkCommit) -> None:
        """Writes rows and the commit in one transaction, unless the table has a commit of that version or a higher one.

        Raises:
            WriteConflictError: Another writer was faster.
        """

    def newest_commit(self) -> SinkCommit | None:
        """The sink's newest commit in the table; None: there is none."""


class LakeWriter(Generic[FrameT_contra]):
    """Writes the batches of one run.

    Args:
        pause: Waits for the given number of seconds before the next attempt.
    """

    def __init__(
        self,
        of: SinkId,
        table: Table[FrameT_contra],
        at: SinkCommit,
        saved: Callable[[SinkCommit], object] = lambda commit: None,
        pause: Callable[[float], object] = time.sleep,
        attempt_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._of, self._table, self._saved, self._pause, self._attempt_id = of, table, saved, pause, attempt_id
        self.at = at

    def write(self, frame: FrameT_contra, end: TopicOffsets) -> None:
        """Writes the rows from the last commit's positions to `end`; if these are equal, the table gets no commit.

        At a start, the first batch usually has no rows: it ends at the table's own position, unless rows wait.
        """
        if end == self.at.position:
            return
        commit = SinkCommit(self.at.version + 1, end, self._attempt_id())
        for tried in range(TRIES):
            if tried:
                self._pause(FIRST_PAUSE_S * 2 ** (tried - 1))
            conflict = self._tried(frame, commit)
            if conflict is None:
                self.at = commit
                self._saved(commit)
                return
        raise LakeConflictError(
            f"{self._of}: other writers of the table were faster {TRIES} times in a row, the last time with: {conflict}. Nothing "
            f"is lost: the rows wait in the sink's internal topic. Start the application again once the others write less, or let "
            f"them write other partitions of the table."
        )

    def _tried(self, frame: FrameT_contra, commit: SinkCommit) -> WriteConflictError | None:
        """Tries to write once; returns the conflict if the table does not have the commit afterwards."""
        conflict: WriteConflictError | None = None
        try:
            self._table.write(frame, commit)
        except WriteConflictError as error:
            conflict = error
        except Exception:
            # A commit that fails for the client may have reached the table.
            if self._own(commit):
                return None
            raise
        if self._own(commit):
            return None
        if conflict is None:
            raise LakeConflictError(
                f"{self._of}: the table takes no commit with the version {commit.version} although its history does not show one, "
                f"so nothing was written. Its history may have been cut: start over with `streams reset` and a new table."
            )
        return conflict

    def _own(self, commit: SinkCommit) -> bool:
        """Whether the table has the commit. Raises `LakeConflictError` if it has another commit of that version or a later one."""
        found = self._table.newest_commit()
        if found is None or found.position.topic_id != commit.position.topic_id or found.version < commit.version:
            return False
        if found == commit:
            return True
        raise LakeConflictError(
            f"{self._of}: another instance of the application has written commit {found.version} of this sink since then, so this "
            f"one has written nothing and ends. Nothing is lost or doubled. Let only one instance run."
        )
