"""`BufferMemory`: the memory that the write buffers of one task share, and the scratch database for what does not fit."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Protocol

from state.errors import StateError
from state.tables.open import DiskTable, open_table
from state.tables.rocks_options import DEFAULT_SETTINGS, RocksSettings

DEFAULT_SPILL_BYTES = 64 * 1024 * 1024
_SPILL_PREFIX = "spill-"


class Spilling(Protocol):
    """A buffer that can move what it holds to the scratch database."""

    def move_to(self, scratch: DiskTable) -> None:
        """Moves the writes to the scratch database."""


class BufferMemory:
    """The memory that the buffers of one task share, and the scratch database for their entries when the memory is full.

    Args:
        limit: Bound in bytes, Python's own overhead included; None = no bound.
        directory: Where the scratch database's folder is created; required with a limit.
        settings: RocksDB's memory, shared with the committed tables.
    """

    def __init__(
        self, limit: int | None = None, directory: Path | None = None, settings: RocksSettings = DEFAULT_SETTINGS
    ) -> None:
        if limit is not None and directory is None:
            raise ValueError("a bound on the write buffer needs a directory to spill to")
        self.used = 0
        self.limit = limit if limit is not None else 2**63
        self.scratch: DiskTable | None = None
        self._directory = directory
        self._settings = settings
        self._buffers: list[Spilling] = []
        self._folder: Path | None = None

    def register(self, buffer: Spilling) -> None:
        """Adds a buffer to those that share this memory."""
        self._buffers.append(buffer)

    def spill(self) -> None:
        """Moves every buffer's writes to the scratch database.

        Raises:
            StateError: The disk does not take them.
        """
        try:
            if self.scratch is None:
                self.scratch = self._open_scratch()
            for buffer in self._buffers:
                buffer.move_to(self.scratch)
        except OSError as error:
            raise StateError(
                f"the writes of a step do not fit into memory (spill_bytes), and cannot be moved to {self._directory}: {error}. "
                f"Nothing of the step was written. Make room there, or give the application another state_dir"
            ) from error
        self.used = 0

    def _open_scratch(self) -> DiskTable:
        self._folder = Path(tempfile.mkdtemp(prefix=_SPILL_PREFIX, dir=self._directory))
        return open_table(self._folder / "db", self._settings)

    def clear(self) -> None:
        """Deletes the scratch database. The buffers must be empty or about to be emptied."""
        self.used = 0
        if self.scratch is not None:
            self.scratch.close()
            self.scratch = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def delete_left_scratch(directory: Path) -> None:
    """Deletes the scratch databases of killed processes. The caller must hold the committed table's lock."""
    for folder in directory.glob(f"{_SPILL_PREFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)
