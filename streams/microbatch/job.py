"""The shares of `memory_bytes` that each Python process of a host has for what it keeps between steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from state.commit.crash_points import CrashPoints, Faults
from state.commit.decide import TaskIdentity
from state.commit.marker import Ranges
from state.kafka.reader import POOL_PREFETCH_BYTES
from state.restore.snapshots import NO_SNAPSHOTS, SnapshotSettings
from state.tables.rocks_common import DEFAULT_SETTINGS
from streams.logs.output import LogSettings
from streams.metrics.restores import ReportAddress
from streams.runtime.settings import TaskSettings
from streams.source.planner import SourceSpec
from streams.topology.plan import SubTopology

PREFETCH = 4
"""A quarter of the memory is for prefetched records, over all processes."""
CACHE = 4
"""A quarter is for the stores' block caches, over all processes; their memtables are charged to the caches."""
SMALLEST_CACHE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """What one Python process may keep.

    Attributes:
        prefetch_bytes: Prefetched records of all partitions that the process reads.
        cache_bytes: Block cache of all stores that the process opens, with their memtables.
    """

    prefetch_bytes: int
    cache_bytes: int

    @classmethod
    def of(cls, memory_bytes: int, processes: int) -> ProcessMemory:
        """The share of one of several processes of a host."""
        share = memory_bytes // max(1, processes)
        return cls(share // PREFETCH, max(SMALLEST_CACHE, share // CACHE))


# --- The data that all processes of one streaming query need, created on the driver and sent along once.

DEFAULT_MEMORY = ProcessMemory(POOL_PREFETCH_BYTES, DEFAULT_SETTINGS.block_cache_bytes)


@dataclass(frozen=True)
class QueryJob:
    """One sub-topology to run.

    Attributes:
        sub: The sub-topology.
        tasks: Number of its tasks, and of Spark's shuffle partitions.
        settings: Settings of the runtime.
        source: Settings of the source.
        client: Librdkafka client properties; excluded from `repr`.
        state_dir: Folder of the local stores on each executor.
        transaction_timeout_ms: Transaction timeout of the producers.
        spill_bytes: Bound of a step's write buffer.
        bulk_io: Use librdkafka's C API instead of the ordinary client.
        crash: The crash points of workers; normally none.
        trim_delay_ms: How long changelog records stay after they ceased to be needed.
        memory: What each process of an executor may keep from step to step.
        snapshots: Where snapshots of the stores are taken to and restored from.
        logs: What each process logs, and in which form.
        replica_dir: Folder of the copies that replicas keep on each executor; None = there are none.
        restore_reports: Where workers report running restores to; None = the figures are not served.
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
    restore_reports: ReportAddress | None = None

    @property
    def outputs(self) -> list[str]:
        """The output topics named by the program and the settings."""
        named = {str(sink.topic) for sink in self.sub.sinks if sink.topic is not None}
        return sorted(named | ({self.settings.dead_letter_topic} if self.settings.dead_letter_topic else set()))

    def identity(self, task: int, query_id: str) -> TaskIdentity:
        return TaskIdentity(
            self.settings.application_id, self.sub.name, task, self.tasks, query_id, self.sub.topology_hash
        )

    def owner(self, partition: int) -> int:
        """The task that reports a source partition's progress to the consumer group."""
        return partition % self.tasks

    def owned_offsets(self, ranges: Ranges, task: int) -> dict[tuple[str, int], int]:
        """New offsets of the source partitions whose progress a task reports."""
        return {
            (topic, int(partition)): last
            for topic, of in ranges.items()
            for partition, (_, last) in of.items()
            if self.owner(int(partition)) == task
        }
