"""`Sink`: what a database, a format of files or any other store has to do so that it has each result exactly once.

The engine reads ranges of the sink's internal topic, one after the other, and gives each to the sink, on the driver::

    open ──▶ position ──▶ [ write ──▶ commit(position, after) ]* ──▶ close

A position is text that the sink keeps without reading it. Two rules make the results exact, whatever is killed, and when:

1. `commit` makes the rows and the position visible together, or neither. A store without transactions writes the rows where
   nobody looks, and then one small thing that has the position and names the rows.
2. `commit` succeeds only while the position that is kept is still `after`. A second instance of the application, which has
   continued from the same position, so fails instead of writing the rows again.

`streams.testing.check_sink` proves both, for any sink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from streams.errors import LakeConflictError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SinkTable:
    """What is to be written.

    Attributes:
        owner: The application and the sink, `<application id>/<name>`: what the position is kept under, since other sinks may
            write the same table.
        schema: The columns with their types.
        keys: The columns that make a row unique; empty: each record is a row of its own.
    """

    owner: str
    schema: pa.Schema
    keys: tuple[str, ...] = ()

    def conflict(self) -> LakeConflictError:
        """The error that `commit` raises where the position is not `after` any more."""
        return LakeConflictError(
            f"{self.owner}: another instance of the application has written to this sink since then, so this one has written "
            f"nothing and ends. Nothing is lost or doubled. Let only one instance run."
        )


@runtime_checkable
class Sink(Protocol):
    """A store outside Kafka.

    An object is only a description until `open` is called: each start opens a copy of it (`copy.copy`), and so must a connection be
    made in `open` and not before. The calls of a copy come one after the other, not always from the same thread. What a method
    raises ends the application before the rows are deleted from the internal topic; after a `SinkUnavailableError` the sink is
    opened again, for as long as the setting `broker_wait_ms` allows.
    """

    target: str
    """What is written, for people: `postgres table orders`. Without a password."""

    def open(self, table: SinkTable) -> str | None:
        """Connects, discards what an earlier run has written and not committed, and returns the position of the last commit.

        Returns:
            The position; None: nothing was ever committed under `table.owner`.

        Raises:
            LakeSchemaError: The store has other columns, or no updates by key. Nothing was written.
            SinkUnavailableError: The store does not answer now.
        """
        ...

    def write(self, rows: pa.Table, deleted: pa.Table) -> None:
        """Writes one batch, which nobody must see before `commit`.

        Args:
            rows: Rows of `table.schema`, in the order of their records; with `table.keys` at most one for each key, the last.
            deleted: The keys to delete, with the columns `table.keys`; no key is in both. Without keys it is empty.
        """
        ...

    def commit(self, position: str, after: str | None) -> None:
        """Makes the rows and the position visible together.

        Args:
            position: The position behind the rows.
            after: The position before them, as `open` returned or the last `commit` wrote it.

        Raises:
            LakeConflictError: The position kept is not `after`: `SinkTable.conflict()`. Nothing of the batch is visible.
        """
        ...

    def close(self) -> None:
        """Gives up what is open; rows without a commit must never become visible. May be called twice, and before `open`."""
        ...
