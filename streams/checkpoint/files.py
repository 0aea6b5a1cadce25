"""The files of an application's checkpoint, on any storage, and Spark's logs in them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from state.tables.files import make_private, write_private
from streams.engine.source.offsets import FirstBatch, OffsetRange, SourceOffsets, TopicOffsets, batch_digest
from streams.errors import ConfigError, DamagedCheckpointError

# --- Paths are relative to the application's checkpoint folder


class CheckpointFiles(Protocol):
    """The file operations on a checkpoint: `LocalFiles`, or Hadoop's through `streams.driver.checkpoint_files`."""

    def names(self, folder: str) -> list[str]: ...
    def read(self, path: str) -> bytes | None: ...
    def write(self, path: str, data: bytes) -> None: ...
    def move(self, path: str, to: str) -> None: ...
    def delete(self, folder: str) -> None: ...


def is_local(checkpoint_dir: str) -> bool:
    """Whether the path of a checkpoint folder is on this machine's disk."""
    return "://" not in checkpoint_dir or checkpoint_dir.startswith("file:")


class LocalFiles:
    """Files on this machine's disk."""

    def __init__(self, checkpoint_dir: str) -> None:
        self._root = Path(checkpoint_dir.removeprefix("file:"))

    def names(self, folder: str) -> list[str]:
        """The sorted names of a folder's entries; none if the folder does not exist."""
        try:
            return sorted(entry.name for entry in (self._root / folder).iterdir())
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes | None:
        """The bytes of a file; None if it does not exist."""
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        """Writes a file atomically: after a crash it is complete or unchanged."""
        file = self._root / path
        _make_parent(file)
        write_private(file, data)
        _checksum(file).unlink(missing_ok=True)

    def move(self, path: str, to: str) -> None:
        """Renames a file or a folder; the new path must not exist."""
        old, new = self._root / path, self._root / to
        _make_parent(new)
        # A checksum file left behind would be compared with the next file of that name.
        if _checksum(old).exists():
            _checksum(old).rename(_checksum(new))
        old.rename(new)

    def delete(self, folder: str) -> None:
        for name in self.names(folder):
            (self._root / folder / name).unlink()
        if (self._root / folder).exists():
            (self._root / folder).rmdir()


def _make_parent(file: Path) -> None:
    """Creates the folder of a file. Folders that Spark has made within the application's private folder stay as they are."""
    if not file.parent.exists():
        make_private(file.parent)


def move_aside(files: CheckpointFiles, folder: str) -> str:
    """Renames the checkpoint of a sub-topology that gets a new one. Returns the new name, which begins with the old one."""
    at = aside = f"{folder}~replaced-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    number = 1
    while files.names(aside):
        # Another checkpoint was moved aside within the same second.
        number += 1
        aside = f"{at}-{number}"
    files.move(folder, aside)
    return aside


def _checksum(file: Path) -> Path:
    """The checksum file that Hadoop's local file system writes for each file."""
    return file.with_name(f".{file.name}.crc")


# --- Spark's logs in the checkpoint of a sub-topology, and the file that says where its first micro-batch begins.
#
# Spark writes `metadata` (id of the query), `offsets/N` (where micro-batch N ends, written before it runs) and
# `commits/N` (written after it), and retains only the last of these. Until micro-batch 0 is done, Spark asks the
# source at each start where it begins. A source that begins at the end of its topics, or at a time relative to now,
# would answer differently each time. So the engine saves that position in a file of its own before the query starts.

FIRST_BATCH = "first-batch.json"
LIVE = "live.json"
"""Marks a checkpoint under which tasks may have run live, because Spark logs nothing of them."""
_VERSION = "v1"


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint, as far as they were read.

    Attributes:
        query_id: Id of the query; None if there is no checkpoint.
        logged: The last micro-batch whose offsets are logged; -1: none.
        committed: The last micro-batch that Spark has confirmed; -1: none.
        offsets: Micro-batch -> its end, for the micro-batches that were read and still exist.
        first: Where the first micro-batch begins; None if an older version of the engine began it.
    """

    query_id: str | None = None
    logged: int = -1
    committed: int = -1
    offsets: Mapping[int, SourceOffsets] = field(default_factory=dict)
    first: FirstBatch | None = None

    @property
    def repeats(self) -> bool:
        """Whether the next micro-batch to be logged is the first one, and repeats the last one of an adopted checkpoint."""
        return self.logged < 0 and self.first is not None and self.first.end not in (None, self.first.start)

    def start(self, batch: int) -> SourceOffsets | None:
        if batch == 0:
            return self.first.start if self.first else None
        return self.offsets.get(batch - 1)

    def digest(self, batch: int) -> str | None:
        start, end = self.start(batch), self.offsets.get(batch)
        if batch == 0 and end is None and self.first is not None:
            end = self.first.end
        return None if start is None or end is None else batch_digest(start, end)

    def ranges(self, batch: int) -> list[OffsetRange] | None:
        start, end = self.start(batch), self.offsets.get(batch)
        return None if start is None or end is None else start.ranges_to(end)


def read_checkpoint(files: CheckpointFiles, sub: str, batches: Iterable[int] = ()) -> Checkpoint:
    """Reads a sub-topology's checkpoint: its last micro-batches, back to where every partition was read at least once."""
    offsets, commits = _numbers(files, f"{sub}/offsets"), _numbers(files, f"{sub}/commits")
    metadata = files.read(f"{sub}/metadata")
    if metadata is None:
        if offsets or commits:
            raise DamagedCheckpointError(f"its file {sub}/metadata is missing, though it has logged micro-batches")
        return Checkpoint()
    logged, committed = max(offsets, default=-1), max(commits, default=-1)
    _check_complete(sub, offsets, logged, committed)
    if committed >= 0:
        _lines(files, f"{sub}/commits/{committed}", 2)
    wanted = {logged, committed, *batches}
    wanted |= {batch - 1 for batch in wanted}
    ends = {batch: _offsets(files, f"{sub}/offsets/{batch}") for batch in sorted(wanted & offsets)}
    for batch in range(committed - 1, min(offsets, default=0) - 1, -1):
        if batch in offsets and batch not in ends:
            ends[batch] = _offsets(files, f"{sub}/offsets/{batch}")
        if batch not in ends or _all_moved(ends[batch], ends[committed]):
            break
    first = files.read(f"{sub}/{FIRST_BATCH}")
    return Checkpoint(
        query_id=_query_id(f"{sub}/metadata", metadata),
        logged=logged,
        committed=committed,
        offsets=dict(sorted(ends.items())),
        first=None if first is None else _first_batch(f"{sub}/{FIRST_BATCH}", first),
    )


def logged_end(files: CheckpointFiles, sub: str, batch: int) -> SourceOffsets:
    """The end of a logged micro-batch.

    Raises:
        DamagedCheckpointError: Its file is missing or truncated.
    """
    return _offsets(files, f"{sub}/offsets/{batch}")


def logged_settings(files: CheckpointFiles, sub: str, batch: int) -> Mapping[str, Any]:
    """What Spark has logged about a micro-batch besides its end: its time, and the settings with which it must be repeated.

    Raises:
        DamagedCheckpointError: Its file is missing or truncated.
    """
    found: Mapping[str, Any] = orjson.loads(_lines(files, f"{sub}/offsets/{batch}", 3)[1])
    return found


def confirmed_end(files: CheckpointFiles, sub: str, topic: str) -> TopicOffsets | None:
    """The offsets in a topic at which the last confirmed micro-batch ends; None without one, or while Spark is writing it."""
    try:
        checkpoint = read_checkpoint(files, sub)
    except DamagedCheckpointError:
        return None
    end = checkpoint.offsets.get(checkpoint.committed)
    return None if end is None else end.topics.get(topic)


def _all_moved(start: SourceOffsets, end: SourceOffsets) -> bool:
    """Whether something was read from every partition between two positions.

    Then each task that reads a partition has committed in between.
    """
    return all(
        position > start.of(topic, partition)
        for topic, positions in end.topics.items()
        for partition, position in enumerate(positions.offsets)
    )


def write_first_batch(files: CheckpointFiles, folder: str, first: FirstBatch) -> None:
    """Saves where the first micro-batch of a query begins, and where it ends if that is decided."""
    files.write(f"{folder}/{FIRST_BATCH}", orjson.dumps(first.to_json()))


def write_query_id(files: CheckpointFiles, folder: str, query_id: str) -> None:
    """Writes a new checkpoint's query id in Spark's form. A query started on the checkpoint takes over the id."""
    files.write(f"{folder}/metadata", orjson.dumps({"id": query_id}))


def query_id_of(files: CheckpointFiles, folder: str) -> str | None:
    """The query id of a checkpoint; None if there is no checkpoint.

    Raises:
        DamagedCheckpointError: Its file is truncated.
    """
    path = f"{folder}/metadata"
    data = files.read(path)
    return None if data is None else _query_id(path, data)


def _check_complete(sub: str, offsets: set[int], logged: int, committed: int) -> None:
    if committed > logged:
        raise DamagedCheckpointError(f"its file {sub}/offsets/{committed} is missing, though that batch is confirmed")
    for batch in {logged - 1, logged} - offsets:
        if batch >= 0:
            raise DamagedCheckpointError(f"its file {sub}/offsets/{batch} is missing")
    if committed < logged - 1:
        raise DamagedCheckpointError(f"its file {sub}/commits/{logged - 1} is missing, though the next batch is logged")


def _numbers(files: CheckpointFiles, folder: str) -> set[int]:
    return {int(name) for name in files.names(folder) if name.isdecimal()}


def _lines(files: CheckpointFiles, path: str, count: int) -> list[str]:
    """The lines of one of Spark's log files. The first one is the version."""
    lines = (files.read(path) or b"").decode(errors="replace").splitlines()
    if len(lines) < count or lines[0] != _VERSION:
        raise DamagedCheckpointError(
            f"its file {path} is cut short, or not one of Spark's log files of version {_VERSION}"
        )
    return lines


def _offsets(files: CheckpointFiles, path: str) -> SourceOffsets:
    lines = _lines(files, path, 3)
    try:
        return SourceOffsets.from_json(orjson.loads(lines[2]))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpointError(f"its file {path} is cut short, or holds the offsets of something else") from error


def _first_batch(path: str, data: bytes) -> FirstBatch:
    try:
        return FirstBatch.from_json(orjson.loads(data))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise DamagedCheckpointError(f"its file {path} cannot be read") from error


def _query_id(path: str, data: bytes) -> str:
    try:
        return str(orjson.loads(data)["id"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise DamagedCheckpointError(f"its file {path} is cut short") from error
