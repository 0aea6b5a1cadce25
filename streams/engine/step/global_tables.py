"""The global tables of a worker process: read from Kafka, up to the offsets that were logged with the micro-batch.

Each process has its own copy on disk, in a numbered slot below the sub-topology's state. RocksDB's lock shows which slots are free,
so a new process takes over the copy of a dead one and continues reading there. `GlobalTables.bring_to` decides what is read, and
when a copy is read again from the start, as for the copies that are served.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from state.columns import RecordColumns
from state.errors import StateCorruptedError, StateLockedError
from state.kafka.reader import shared_reader
from state.kafka.topics import TopicPartition
from state.stores.task_store import TaskStore, open_task_store
from state.tables.rocks_common import RocksSettings
from state.tables.table import MemoryTable
from streams.engine.graph.global_tables import GlobalTables, TopicLogs, global_store_specs
from streams.engine.graph.settings import Counters
from streams.engine.source.log import now_ms as wall_clock_ms
from streams.engine.source.offsets import TopicOffsets
from streams.engine.step.job import QueryJob
from streams.serdes.exactness import always_canonical

MAX_OPEN = 8
"""The most copies that a process has open at a time. It may run several applications one after the other."""

_SETTINGS = RocksSettings(block_cache_bytes=64 * 1024 * 1024, write_buffer_bytes=32 * 1024 * 1024, lock_timeout_s=0)

_CANONICAL = "canonical keys"
"""Marks copies with canonical keys. Older versions stored rows under their producers' bytes, where no look-up finds them."""

_open: OrderedDict[tuple[int, Path], _Copy] = OrderedDict()
"""The key contains the process id, because a fork copies this dictionary."""


def global_stores(job: QueryJob, ends: Mapping[str, TopicOffsets], logs: TopicLogs, now_ms: int) -> Mapping[str, Any]:
    """The typed stores of the global tables that a sub-topology reads, as of the time when the micro-batch was planned.

    Raises:
        RecordFailedError: A record cannot be read and the policy is `fail`.
    """
    if not job.sub.global_tables:
        return {}
    copy = _copy_of(job, _folder(job, ends))
    copy.restore_to(ends, logs, now_ms)
    return copy.tables.stores


def count_global_tables(job: QueryJob, ends: Mapping[str, TopicOffsets], counters: Counters) -> None:
    """Adds the records of global tables that this process has dropped and skipped since the last call.

    Each process counts what it reads. The call belongs after a step's commit: the counts of a failed attempt are
    reported with the next one.
    """
    copy = _open.get((os.getpid(), _folder(job, ends))) if job.sub.global_tables else None
    if copy is not None:
        counters.add_all(copy.tables.take_counters())


class _Copy:
    """One process's copy of the global tables.

    Args:
        directory: The slot on disk; None: in memory.
    """

    def __init__(self, job: QueryJob, store: TaskStore, directory: Path | None) -> None:
        self.job = job
        self._store = store
        self._directory = directory
        self.tables = GlobalTables(list(job.sub.global_tables.values()), store, job.settings, wall_clock_ms)

    @property
    def gone(self) -> bool:
        return self._directory is not None and not (self._directory / "db" / "CURRENT").exists()

    def restore_to(self, ends: Mapping[str, TopicOffsets], logs: TopicLogs, now_ms: int) -> None:
        """Reads the missing records up to the ends, which the topics had at `now_ms`."""
        places = {(topic, number): end for topic, of in ends.items() for number, end in enumerate(of.offsets)}
        self.tables.bring_to(places, _SharedLogs(self.job, logs), now_ms)

    def close(self) -> None:
        """Releases the slot. Its files stay for the next process."""
        self._store.close()


class _SharedLogs(NamedTuple):
    """Reads the topics of global tables with readers that the process keeps from step to step."""

    job: QueryJob
    logs: TopicLogs

    def begin_offset(self, partition: TopicPartition) -> int:
        return self.logs.begin_offset(partition)

    def delete_retention_ms(self, topic: str) -> int:
        return self.logs.delete_retention_ms(topic)

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        return shared_reader(self.job.client, topic, partition, start, bulk=self.job.bulk_io).read(end)


def _folder(job: QueryJob, ends: Mapping[str, TopicOffsets]) -> Path:
    """The folder of the copies. Its name has the topics' ids, because a recreated topic of the same name is another table."""
    ids = [f"{topic} {of.topic_id}" for topic, of in sorted(ends.items())]
    if not all(always_canonical(table.source.key_serde) for table in job.sub.global_tables.values()):
        ids.append(_CANONICAL)
    digest = hashlib.blake2b("\n".join([*sorted(job.sub.global_tables), *ids]).encode(), digest_size=6).hexdigest()
    return job.state_dir / job.settings.application_id / job.sub.name / "global" / digest


def _copy_of(job: QueryJob, folder: Path) -> _Copy:
    key = (os.getpid(), folder)
    found = _open.pop(key, None)
    # Another job has other settings and perhaps other functions, so it gets its own copy. Live tasks share theirs.
    if found is not None and (found.gone or found.job.sub is not job.sub or found.job.settings is not job.settings):
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
        # Then all of them are in memory, because rows and positions must be kept and lost together.
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
