"""What a replica on this host keeps, as a copy that a restore can take over.

A replica has its databases open only while it brings them forward, so a task can have a checkpoint of one at any time: on the
same disk that costs names instead of copies, and the replica stays what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from state.restore.copies import DATABASE
from state.stores.position import StoreOrigin, read_meta
from state.tables.open import open_table
from state.tables.rocks_options import RocksSettings


@dataclass(frozen=True)
class ReplicaCopy:
    """The copy of a task that a replica keeps.

    Attributes:
        folder: The task's folder among the replicas.
        settings: How the database is opened.
        offsets: See `StateCopy`.
        origins: See `StateCopy`.
    """

    folder: Path
    settings: RocksSettings
    offsets: Mapping[str, int]
    origins: Mapping[str, StoreOrigin]

    def __str__(self) -> str:
        return f"the replica in {self.folder}"

    def fetch(self, into: Path) -> None:
        table = open_table(self.folder / DATABASE, self.settings)
        try:
            # RocksDB makes the folder itself.
            into.rmdir()
            table.checkpoint(into)
        finally:
            table.close()


def replica_copies(folder: Path, settings: RocksSettings) -> Iterator[ReplicaCopy]:
    """The replica's copy of a task, if there is one on this host.

    Raises:
        StateLockedError: The replica is just bringing it forward, and does not end soon.
    """
    if (folder / DATABASE / "CURRENT").exists():
        table = open_table(folder / DATABASE, settings)
        try:
            meta = read_meta(table)
        finally:
            table.close()
        yield ReplicaCopy(folder, settings, meta.offsets, meta.origins)
