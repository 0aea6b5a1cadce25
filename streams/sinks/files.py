"""Folders of files, one for each batch: `ParquetSink` and `JsonLinesSink`.

::

    folder/                         what readers list
      app-orders-000000000007.parquet
      _streams/app-orders/          what readers of data skip, as for all names with an underscore
        8-1f3a…                     a batch that is written and not committed
        000000000007.json           the manifest of the last commit: its position and its file

A commit has two phases. First, the batch is written completely, under a name that readers skip. Then its manifest takes the next
number, which only one writer can do (`os.link`): this is the commit. Finally, the batch gets the name that readers look for. If a
writer dies before that, the manifest's batch has no such name yet, and the next `open` gives it one.
"""

from __future__ import annotations

import os
import re
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from streams.errors import LakeSchemaError
from streams.sinks.sink import SinkTable, as_json

if TYPE_CHECKING:
    import pyarrow as pa

_KEPT = 2
"""The number of manifests that are kept. A writer that continues from an older one also finds a higher number, and gives up."""


_AT_ONCE = 10_000
"""How many rows are Python objects at one time."""


@dataclass(frozen=True)
class _Manifest:
    """The last commit: its number, the position after it, and the name of its file (empty: the batch had no rows)."""

    number: int
    position: str
    file: str


class FilesSink(ABC):
    """A folder to which each batch adds one file. Rows are only appended.

    The folder is on a disk of the driver's host or on one that hosts share, with hard links; not in an object store.

    Args:
        folder: The folder, which is created if missing. Several sinks may write to the same folder.
    """

    suffix: str

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self.target = f"{self.suffix} files of {self._folder}"
        self._last: _Manifest | None = None
        self._batch: Path | None = None

    @abstractmethod
    def _written(self, rows: pa.Table, path: Path) -> None:
        """Writes a file."""

    def open(self, table: SinkTable) -> str | None:
        """Opens the folder, and returns the position of the last commit, as `Sink.open` describes."""
        if table.keys:
            raise LakeSchemaError(
                f"{table.owner}: the {self.target} only take new rows: files are not updated by key. Nothing was written. Use "
                f"to_sink(..., mode='append'), where each update of a table is a row; or a database, Delta or Iceberg."
            )
        self._table, self._name = table, re.sub(r"[^A-Za-z0-9._-]", "-", table.owner)
        self._own = self._folder / "_streams" / self._name
        self._own.mkdir(parents=True, exist_ok=True)
        self._last = self._newest()
        if self._last is not None:
            self._show(self._last)
        return self._last.position if self._last else None

    def write(self, rows: pa.Table, deleted: pa.Table) -> None:
        """Writes the batch to a file that readers skip."""
        self._batch = None
        if rows.num_rows:
            self._batch = self._own / f"{self._number}-{uuid.uuid4().hex}"
            self._written(rows, self._batch)
            _to_disk(self._batch)

    def commit(self, position: str, after: str | None) -> None:
        """Commits the batch by its manifest, as `Sink.commit` describes."""
        number, newest = self._number, self._newest()
        if newest != self._last or after != (newest.position if newest else None):
            raise self._table.conflict()
        manifest = _Manifest(number, position, self._batch.name if self._batch else "")
        self._batch = None  # from here on it may be committed, even after an error
        written = self._own / f"{number}-{uuid.uuid4().hex}"
        written.write_bytes(orjson.dumps({"position": position, "file": manifest.file}))
        _to_disk(written)
        try:
            os.link(written, self._manifest(number))
        except FileExistsError:
            raise self._table.conflict() from None
        finally:
            written.unlink(missing_ok=True)
        if max(self._numbers()) > number:  # another writer has continued and deleted manifest `number`
            self._manifest(number).unlink()
            raise self._table.conflict()
        _to_disk(self._own)
        self._last = manifest
        self._show(manifest)
        self._tidy(number)

    def close(self) -> None:
        """Closes the sink. The files that a killed writer has left are deleted after the next commit."""
        if self._batch is not None:
            self._batch.unlink(missing_ok=True)
            self._batch = None

    @property
    def _number(self) -> int:
        """The number of the next commit."""
        return self._last.number + 1 if self._last else 1

    def _manifest(self, number: int) -> Path:
        return self._own / f"{number:012}.json"

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._own.glob("*.json"))

    def _newest(self) -> _Manifest | None:
        numbers = self._numbers()
        if not numbers:
            return None
        found = orjson.loads(self._manifest(numbers[-1]).read_bytes())
        return _Manifest(numbers[-1], found["position"], found["file"])

    def _show(self, manifest: _Manifest) -> None:
        """Gives the batch of a commit the name that readers look for, unless it has that name."""
        if manifest.file and (batch := self._own / manifest.file).exists():
            try:
                batch.rename(self._folder / f"{self._name}-{manifest.number:012}.{self.suffix}")
            except FileNotFoundError:
                return  # another writer was just opened, and has renamed it
            _to_disk(self._folder)

    def _tidy(self, number: int) -> None:
        """Deletes batches that can never be committed, because their number is taken."""
        for old in self._numbers()[:-_KEPT]:
            self._manifest(old).unlink(missing_ok=True)
        for left in self._own.glob("*-*"):
            if int(left.name.partition("-")[0]) <= number:
                left.unlink(missing_ok=True)


class ParquetSink(FilesSink):
    """Parquet files.

    Args:
        folder: The folder, which is created if missing. Several sinks may write to the same folder.
        compression: The compression of the columns, by pyarrow's names.
    """

    suffix = "parquet"

    def __init__(self, folder: str | os.PathLike[str], compression: str = "zstd") -> None:
        super().__init__(folder)
        self._compression = compression

    def _written(self, rows: pa.Table, path: Path) -> None:
        import pyarrow.parquet as pq

        pq.write_table(rows, path, compression=self._compression)


class JsonLinesSink(FilesSink):
    """Files with one JSON object on each line. Times are ISO 8601 text, decimals text, bytes Base64."""

    suffix = "jsonl"

    def _written(self, rows: pa.Table, path: Path) -> None:
        with path.open("wb") as file:
            for part in rows.to_batches(_AT_ONCE):
                file.writelines(as_json(row, rows.schema) + b"\n" for row in part.to_pylist())


def _to_disk(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
