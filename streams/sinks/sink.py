"""`Sink`: the contract by which a database, a file format or any other store gets each result exactly once.

The engine reads ranges of the sink's internal topic, one after the other, and gives each to the sink, on the driver::

    open ──▶ position ──▶ [ write ──▶ commit(position, after) ]* ──▶ close

A position is text that the sink keeps without reading it. Two rules make the results exact, whenever and whichever process is
killed:

1. `commit` makes the rows and the position visible together, or neither. A store without transactions writes the rows where readers
   do not look, and then one small object with the position and the names of the rows.
2. `commit` succeeds only while the stored position is still `after`. So a second instance of the application that has continued
   from the same position fails instead of writing the rows again.

`streams.testing.check_sink` proves both, for any sink.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import orjson

from streams.errors import LakeConflictError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SinkTable:
    """The table that a sink writes.

    Attributes:
        owner: The application and the sink, `<application id>/<name>`. The position is stored under this name, since other sinks
            may write the same table.
        schema: The columns with their types.
        keys: The columns that make a row unique; empty: each record is a separate row.
    """

    owner: str
    schema: pa.Schema
    keys: tuple[str, ...] = ()

    def conflict(self) -> LakeConflictError:
        """The error that `commit` raises if the position is no longer `after`."""
        return LakeConflictError(
            f"{self.owner}: another instance of the application has written to this sink since then, so this one has written "
            f"nothing and ends. Nothing is lost or doubled. Let only one instance run."
        )


@runtime_checkable
class Sink(Protocol):
    """A store outside Kafka.

    An object is only a description until `open` is called. Each start opens a copy of it (`copy.copy`), so connect in `open` and
    not before. The calls of a copy come one after the other, not always from the same thread. An error in a method ends the
    application before the rows are deleted from the internal topic. After a `SinkUnavailableError` the sink is opened again, for as
    long as the setting `broker_wait_ms` allows.
    """

    target: str
    """A description of what is written, for messages: `postgres table orders`. Without a password."""

    def open(self, table: SinkTable) -> str | None:
        """Connects, discards rows that an earlier run has written and not committed, and returns the position of the last commit.

        Returns:
            The position; None: nothing was ever committed under `table.owner`.

        Raises:
            LakeSchemaError: The store has other columns, or no updates by key. Nothing was written.
            SinkUnavailableError: The store does not answer now.
        """
        ...

    def write(self, rows: pa.Table, deleted: pa.Table) -> None:
        """Writes one batch, which must not be visible before `commit`.

        Args:
            rows: Rows of `table.schema`, in the order of their records; with `table.keys`, only the last row of each key.
            deleted: The keys to delete, with the columns `table.keys`; no key is in both. Without keys it is empty.
        """
        ...

    def commit(self, position: str, after: str | None) -> None:
        """Makes the rows and the position visible together.

        Args:
            position: The position after the rows.
            after: The position before them, as `open` returned or the last `commit` wrote it.

        Raises:
            LakeConflictError: The stored position is not `after` (raise `SinkTable.conflict()`). Nothing of the batch is visible.
        """
        ...

    def close(self) -> None:
        """Closes connections and files. Rows without a commit must never become visible. May be called twice, and before `open`."""
        ...


def as_json(value: Any, kind: pa.DataType | pa.Schema) -> bytes:
    """The JSON of a value of this type, or of a row of this schema."""
    import pyarrow as pa

    return orjson.dumps(_plain(value, pa.struct(kind) if isinstance(kind, pa.Schema) else kind), default=str)


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Converts maps, which Arrow returns as lists of pairs, and bytes, for which JSON has no form."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_map(kind):
        return {name: _plain(one, kind.item_type) for name, one in value}
    if pa.types.is_list(kind):
        return [_plain(one, kind.value_type) for one in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
