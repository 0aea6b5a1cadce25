"""The global tables of a worker process: read from Kafka, up to the offsets that were logged with the micro-batch.

Each process has its own copy on disk, in a numbered slot below the sub-topology's state: RocksDB's lock shows which
slots are free, so a new process takes over the copy of a dead one and reads on from there. Invariant: a task sees exactly
the records below the logged ends. A copy that has read further, as after a rollback of the checkpoint, is read again from
the start. (A compacted topic may by then have lost the older value of a key that was written again: such a key is missing
until the next batch. Kafka Streams guarantees no order between global tables and streams at all.)

A copy that was away for long is read again, too: compaction may have deleted the tombstones of rows that it still has. The time
next to each position says how old it is, and the rule is that of local stores (`state.restore.plan.LogRange`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from state.errors import KafkaClientError, StateCorruptedError, StateLockedError
from state.kafka.reader import shared_reader
from state.kafka.topics import TopicPartition
from state.restore.plan import LogRange
from state.stores.task_store import TaskStore, open_task_store
from state.tables.rocks_common import RocksSettings
from state.tables.table import MemoryTable
from streams.microbatch.job import QueryJob
from streams.runtime.global_tables import GlobalTables, global_store_specs
from streams.runtime.settings import Counters
from streams.serdes.exactness import always_canonical
from streams.source.log import now_ms as wall_clock_ms
from streams.source.offsets import TopicOffsets

log = logging.getLogger(__name__)

MAX_OPEN = 8
"""Most copies that a process has open at a time: it may run several applications one after the other."""

_SETTINGS = RocksSettings(block_cache_bytes=64 * 1024 * 1024, write_buffer_bytes=32 * 1024 * 1024, lock_timeout_s=0)

_AS_OF_EVERY_MS = 60_000
"""How old the time of a position becomes while its topic has no new records."""
_UNKNOWN_RETENTION_MS = 60 * 60 * 1000
"""How long a topic is assumed to keep tombstones if these credentials may not ask: less than nearly all topics."""

_CANONICAL = "canonical keys"
"""Copies of older versions have rows under the bytes of their producers, where no look-up finds them."""

_open: OrderedDict[tuple[int, Path], _Copy] = OrderedDict()
"""The key contains the process id, because a fork copies this dictionary."""


class TopicLogs(Protocol):
    """The part of `state.commit.live.LiveKafka` that a copy needs."""

    def begin_offset(self, partition: TopicPartition) -> int: ...
    def delete_retention_ms(self, topic: str) -> int: ...


def global_stores(job: QueryJob, ends: Mapping[str, TopicOffsets], logs: TopicLogs, now_ms: int) -> Mapping[str, Any]:
    """The typed stores of the global tables that a sub-topology reads, as they were when the micro-batch was planned.

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
        self.tables = GlobalTables(list(job.sub.global_tables.values()), store, job.settings)

    @property
    def gone(self) -> bool:
        """Whether the folder was deleted."""
        return self._directory is not None and not (self._directory / "db" / "CURRENT").exists()

    def restore_to(self, ends: Mapping[str, TopicOffsets], logs: TopicLogs, now_ms: int) -> None:
        """Reads the missing records, no further than the ends, which the topics had at `now_ms`."""
        places = {(topic, p): end for topic, of in ends.items() for p, end in enumerate(of.offsets)}
        if any(self.tables.position(*place) > end for place, end in places.items()):
            self.tables.reset()
        behind = {place: end for place, end in places.items() if self.tables.position(*place) < end}
        begins = {place: logs.begin_offset(place) for place in behind}
        if any(self._lacks_records(place, LogRange(begins[place], end), logs) for place, end in behind.items()):
            # Perhaps tombstones of rows that it contains are among them.
            self.tables.reset()
            behind = places
            begins = {place: logs.begin_offset(place) for place in places}
        for (topic, partition), end in behind.items():
            start = max(self.tables.position(topic, partition), begins[topic, partition])
            if start < end:
                if self.tables.as_of_ms(topic, partition) is None:
                    # If the process ends while it reads, the next one continues.
                    self.tables.reached(topic, partition, 0, now_ms)
                reader = shared_reader(self.job.client, topic, partition, start, bulk=self.job.bulk_io)
                for columns in reader.read(end):
                    self.tables.update(columns, now_ms)
        for place, end in places.items():
            if place in behind or now_ms - (self.tables.as_of_ms(*place) or 0) > _AS_OF_EVERY_MS:
                self.tables.reached(*place, end, now_ms)

    def _lacks_records(self, place: TopicPartition, known: LogRange, logs: TopicLogs) -> bool:
        """Whether records behind the position were deleted before this copy has read them."""
        at, as_of_ms = self.tables.position(*place), self.tables.as_of_ms(*place)
        if at == 0 or at < known.begin:
            return at > 0
        retention = replace(known, delete_retention_ms=_retention_ms(logs, place[0]))
        return as_of_ms is None or retention.outlives(at, as_of_ms, wall_clock_ms())

    def close(self) -> None:
        """Releases the slot; its files stay for the next process."""
        self._store.close()


def _retention_ms(logs: TopicLogs, topic: str) -> int:
    try:
        return logs.delete_retention_ms(topic)
    except KafkaClientError as error:
        if error.transient:
            raise
        log.info("how long %s keeps tombstones is not known: %s", topic, error)
        return _UNKNOWN_RETENTION_MS


def _folder(job: QueryJob, ends: Mapping[str, TopicOffsets]) -> Path:
    """The folder of the copies, by the topics' ids: a topic that was recreated under the same name is another table."""
    ids = [f"{topic} {of.topic_id}" for topic, of in sorted(ends.items())]
    if not all(always_canonical(table.source.key_serde) for table in job.sub.global_tables.values()):
        ids.append(_CANONICAL)
    digest = hashlib.blake2b("\n".join([*sorted(job.sub.global_tables), *ids]).encode(), digest_size=6).hexdigest()
    return job.state_dir / job.settings.application_id / job.sub.name / "global" / digest


def _copy_of(job: QueryJob, folder: Path) -> _Copy:
    key = (os.getpid(), folder)
    found = _open.pop(key, None)
    # Another job has other settings and perhaps other functions, so it gets a copy of its own. Live tasks share theirs.
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
