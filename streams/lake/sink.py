"""`OpenSink`: presents a `Sink` as the table of a `LakeWriter`, which writes one batch after the other."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from streams.errors import LakePositionError
from streams.lake.commit import SinkCommit, SinkId, newest
from streams.lake.writer import DELETED, OFFSET, PARTITION, arrow_schema
from streams.model.table_columns import ColumnRule, RowLayout
from streams.sinks.sink import Sink, SinkTable

_TABLE_ID = "sink"
"""The table id of every sink that has commits of its owner. A sink without them is not the same store as before."""
_AT = "_at"


FrameT = TypeVar("FrameT")


class SparkRows(Protocol):
    """Rows in Spark's form."""

    def toArrow(self) -> pa.Table: ...


class OpenSink:
    """An open copy of a sink.

    Args:
        written: Is called between each write and its commit.

    Raises:
        LakeError: The sink cannot be opened; nothing was written.
    """

    def __init__(self, of: SinkId, sink: Sink, layout: RowLayout, written: Callable[[], object] = lambda: None) -> None:
        self._of, self._layout, self._written = of, layout, written
        self._sink = copy.copy(sink)
        columns = arrow_schema(layout)
        self._schema = columns
        table = SinkTable(str(of), pa.schema([columns.field(name) for name in layout.names]), layout.keys)
        self._position = self._sink.open(table)
        self._at = self._read(self._position)

    def exists(self) -> bool:
        """Whether it has commits of this sink."""
        return self._at is not None

    def newest_commit(self) -> SinkCommit | None:
        """The last commit, or None."""
        return self._at

    def table_id(self) -> str:
        """An id that is empty for a store without commits of the sink."""
        return _TABLE_ID if self._at else ""

    def prepare(self) -> str:
        """The id that the store will have once there are commits: a sink creates its table with the first rows."""
        return _TABLE_ID

    def rules(self) -> tuple[ColumnRule, ...]:
        """The rule that rows which are updated by their key have a key."""
        return tuple(ColumnRule(key, required=True) for key in self._layout.keys)

    def write(self, frame: SparkRows, commit: SinkCommit) -> None:
        """Writes the rows and the commit, as `streams.lake.writer.Table` describes."""
        try:
            self._sink.write(*split(frame.toArrow().cast(self._schema), self._layout))
            self._written()
            position = commit.text(self._of)
            self._sink.commit(position, self._position)
        except BaseException:
            self._sink.close()
            raise
        self._position, self._at = position, commit

    def arranged(self, frame: FrameT, offsets: int) -> FrameT:
        """The rows as they are: a sink gets each batch as a whole."""
        return frame

    def tidy(self, version: int) -> None:
        """Does nothing: a sink tidies up by itself."""

    def close(self) -> None:
        self._sink.close()

    def _read(self, position: str | None) -> SinkCommit | None:
        if position is None:
            return None
        found = newest([position], self._of)
        if found is None:
            raise LakePositionError(
                f"{self._of}: {self._sink.target} keeps a position of this sink that was not written by it: {position[:80]!r}. "
                f"Nothing was written. Look who else writes there."
            )
        return found


def split(rows: pa.Table, layout: RowLayout) -> tuple[pa.Table, pa.Table]:
    """The rows to write, in the order of their records, and the keys to delete. The last row of each key decides."""
    rows = rows.sort_by([(PARTITION, "ascending"), (OFFSET, "ascending")])
    if not layout.keys:
        return rows.select(list(layout.names)), rows.select([]).slice(0, 0)
    rows = _last_of_each(rows, layout.keys)
    written = pc.invert(rows[DELETED])
    return rows.filter(written).select(list(layout.names)), rows.filter(rows[DELETED]).select(list(layout.keys))


def _last_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    numbered = rows.select(list(keys)).append_column(_AT, pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(keys)).aggregate([(_AT, "max")])[f"{_AT}_max"]
    return rows.take(last.take(pc.sort_indices(last)))
