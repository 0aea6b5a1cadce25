"""The global tables of a worker process: read from Kafka, up to the offsets that were logged with the micro-batch.

Each process has its own copy on disk, in a numbered slot below the sub-topology's state: RocksDB's lock shows which
slots are free, so a new process takes over the copy of a dead one and reads on from there. Invariant: a task sees exactly
the records below the logged ends. A copy that has read further, as after a rollback of the checkpoint, is read again from
the start. (A compacted topic may by then have lost the older value of a key that was written again: such a key is missing
until the next batch. Kafka Streams guarantees no order between global tables and streams at all.)
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from state.errors import StateCorruptedError, StateLockedError
from state.kafka.reader import shared_reader
from state.stores.task_store import TaskStore, open_task_store
from state.tables.memory import MemoryTable
from state.tables.rocks_options import RocksSettings
from streams.microbatch.job import QueryJob
from streams.runtime.counters import Counters
from streams.runtime.globals.global_tables import GlobalTables, global_store_specs
from streams.source.offsets import TopicOffsets

BeginOffset = Callable[[tuple[str, int]], int]

MAX_OPEN = 8
"""Most copies that a process has open at a time: it may run several applications one after the other."""

_SETTINGS = RocksSettings(block_cache_bytes=64 * 1024 * 1024, write_buffer_bytes=32 * 1024 * 1024, lock_timeout_s=0)

_open: OrderedDict[tuple[int, Path], _Copy] = OrderedDict()
"""The key contains the process id, because a fork copies this dictionary."""


def global_stores(
    job: QueryJob, ends: Mapping[str, TopicOffsets], begin_offset: BeginOffset, now_ms: int
) -> Mapping[str, Any]:
    """The typed stores of the global tables that a sub-topology reads, as they were when the micro-batch was planned.

    Args:
        job: The query.
        ends: Where each topic is to be read to, as logged with the micro-batch.
        begin_offset: Gives the first offset that a partition still has.
        now_ms: The step's wall clock, for timestamp extractors.

    Raises:
        RecordFailedError: A record cannot be read and the policy is `fail`.
    """
    if not job.sub.global_tables:
        return {}
    copy = _copy_of(job, _folder(job, ends))
    copy.restore_to(ends, begin_offset, now_ms)
    return copy.tables.stores


def count_global_tables(job: QueryJob, ends: Mapping[str, TopicOffsets], counters: Counters) -> None:
    """Adds the records of global tables that this process has dropped and skipped since the last call.

    Each process counts what it reads. The call belongs after a step's commit: the counts of a failed attempt are
    reported with the next one.
    """
    copy = _open.get((os.getpid(), _folder(job, ends))) if job.sub.global_tables else None
    for name, count in (copy.tables.take_counters() if copy else {}).items():
        counters.add(name, count)


class _Copy:
    """One process's copy of the global tables.

    Args:
        job: The query.
        store: Where they are.
        directory: The slot on disk; None: in memory.
    """

    def __init__(self, job: QueryJob, store: TaskStore, directory: Path | None) -> None:
        self.job = job
        self._store = store
        self._directory = directory
        self.tables = GlobalTables(list(job.sub.global_tables.values()), store, job.settings)

    @property
    def gone(self) -> bool:
        """Whether the folder was deleted."""
        return self._directory is not None and not (self._directory / "db" / "CURRENT").exists()

    def restore_to(self, ends: Mapping[str, TopicOffsets], begin_offset: BeginOffset, now_ms: int) -> None:
        """Reads the missing records, no further than the ends."""
        places = {(topic, p): end for topic, of in ends.items() for p, end in enumerate(of.offsets)}
        if any(self.tables.position(*place) > end for place, end in places.items()):
            self.tables.reset()
        behind = {place: end for place, end in places.items() if self.tables.position(*place) < end}
        begins = {place: begin_offset(place) for place in behind}
        if any(0 < self.tables.position(*place) < begin for place, begin in begins.items()):
            # Records that this copy has not read were deleted, perhaps tombstones of rows it contains among them.
            self.tables.reset()
            behind = places
            begins = {place: begin_offset(place) for place in places}
        for (topic, partition), end in behind.items():
            start = max(self.tables.position(topic, partition), begins[topic, partition])
            if start < end:
                reader = shared_reader(self.job.client, topic, partition, start, bulk=self.job.bulk_io)
                for columns in reader.read(end):
                    self.tables.update(columns, now_ms)
            self.tables.reached(topic, partition, end)

    def close(self) -> None:
        """Releases the slot; its files stay for the next process."""
        self._store.close()


def _folder(job: QueryJob, ends: Mapping[str, TopicOffsets]) -> Path:
    """The folder of the copies, by the topics' ids: a topic that was recreated under the same name is another table."""
    ids = [f"{topic} {of.topic_id}" for topic, of in sorted(ends.items())]
    digest = hashlib.blake2b("\n".join([*sorted(job.sub.global_tables), *ids]).encode(), digest_size=6).hexdigest()
    return job.state_dir / job.settings.application_id / job.sub.name / "global" / digest


def _copy_of(job: QueryJob, folder: Path) -> _Copy:
    key = (os.getpid(), folder)
    found = _open.pop(key, None)
    # Another job has other settings and perhaps other functions, so it gets a copy of its own.
    if found is not None and (found.gone or found.job is not job):
        found.close()
        found = None
    if found is None:
        mine = [one for one in _open if one[0] == os.getpid()]
        for one in mine[: len(mine) - MAX_OPEN + 1]:
            _open.pop(one).close()
        found = _opened(job, folder)
    _open[key] = found
    return found


def _opened(job: QueryJob, folder: Path) -> _Copy:
    specs = global_store_specs(list(job.sub.global_tables.values()))
    if not all(spec.persistent for spec in specs):
        # All of them then, because rows and positions must be kept and lost together.
        return _Copy(job, TaskStore(MemoryTable(), specs, MemoryTable()), None)
    if folder.parent.exists():
        for other in folder.parent.iterdir():
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
    slot = 0
    while True:
        directory = folder / str(slot)
        try:
            return _Copy(job, open_task_store(directory, specs, job.spill_bytes, _SETTINGS), directory)
        except StateLockedError:
            slot += 1
        except StateCorruptedError:
            shutil.rmtree(directory)
