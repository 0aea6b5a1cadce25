"""What all processes of one query need: their share of memory, and the job, which is sent to them once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from state.commit.crash_points import CrashPoints, Faults
from state.commit.decide import TaskIdentity
from state.commit.marker import UNPLACED, Ranges
from state.kafka.reader import POOL_PREFETCH_BYTES
from state.restore.snapshots import NO_SNAPSHOTS, SnapshotSettings
from state.tables.rocks_common import DEFAULT_SETTINGS
from streams.engine.graph.settings import TaskSettings
from streams.engine.source.topics import SourceSpec
from streams.logs.output import LogSettings
from streams.metrics.reports import DriverAddress
from streams.topology.plan import SubTopology

# --- The part of `memory_bytes` that each Python process of a host may keep between steps

PREFETCH = 4
"""A quarter of the memory is for prefetched records, over all processes."""
CACHE = 4
"""A quarter is for the stores' block caches, over all processes. Memtables are charged to the caches."""
SMALLEST_CACHE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The memory that one Python process may keep.

    Attributes:
        prefetch_bytes: Prefetched records.
        cache_bytes: Block cache of all stores that the process opens, with their memtables.
    """

    prefetch_bytes: int
    cache_bytes: int

    @classmethod
    def of(cls, memory_bytes: int, processes: int) -> ProcessMemory:
        share = memory_bytes // max(1, processes)
        return cls(share // PREFETCH, max(SMALLEST_CACHE, share // CACHE))


# --- The data that all processes of one streaming query need, created on the driver and sent along once.

DEFAULT_MEMORY = ProcessMemory(POOL_PREFETCH_BYTES, DEFAULT_SETTINGS.block_cache_bytes)


@dataclass(frozen=True)
class QueryJob:
    """One sub-topology to run.

    Attributes:
        client: Librdkafka client properties; excluded from `repr`.
        crash: The crash points of workers; normally none.
        trim_delay_ms: How long changelog records stay after they are no longer needed.
        memory: What each process of an executor may keep from step to step.
        snapshots: Where snapshots of the stores are written to and restored from.
        replica_dir: Folder of the copies that replicas keep on each executor; None = there are none.
        restore_reports: Where micro-batches report running restores; None: they do not.
        unplaced: Whether its topics have no records yet whose keys would show the placement. Then a live task takes no record
            before the driver has decided.
    """

    sub: SubTopology
    tasks: int
    settings: TaskSettings
    source: SourceSpec
    client: Mapping[str, str] = field(repr=False)
    state_dir: Path
    transaction_timeout_ms: int
    spill_bytes: int
    bulk_io: bool
    crash: Faults = field(default_factory=CrashPoints)
    trim_delay_ms: int = 0
    memory: ProcessMemory = DEFAULT_MEMORY
    snapshots: SnapshotSettings = NO_SNAPSHOTS
    replica_dir: Path | None = None
    logs: LogSettings = field(default_factory=LogSettings)
    restore_reports: DriverAddress | None = None
    unplaced: bool = False

    @property
    def outputs(self) -> list[str]:
        named = {str(sink.topic) for sink in self.sub.sinks if sink.topic is not None}
        return sorted(named | ({self.settings.dead_letter_topic} if self.settings.dead_letter_topic else set()))

    def identity(self, task: int, query_id: str) -> TaskIdentity:
        return TaskIdentity(
            self.settings.application_id,
            self.sub.name,
            task,
            self.tasks,
            query_id,
            self.sub.topology_hash,
            UNPLACED if self.unplaced else self.settings.placement.value,
        )

    def owner(self, partition: int) -> int:
        """The task that reports a source partition's progress to the consumer group."""
        return partition % self.tasks

    def owned_offsets(self, ranges: Ranges, task: int) -> dict[tuple[str, int], int]:
        """The new offsets of the source partitions whose progress this task reports."""
        return {
            (topic, int(partition)): last
            for topic, of in ranges.items()
            for partition, (_, last) in of.items()
            if self.owner(int(partition)) == task
        }
