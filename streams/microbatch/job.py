"""Everything that the processes of one streaming query must know, made on the driver and sent along once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from state.commit.crash_points import CrashPoints, Faults
from state.commit.decide import TaskIdentity
from state.commit.marker import Ranges
from streams.runtime.settings import TaskSettings
from streams.source.planner import SourceSpec
from streams.topology.plan import SubTopology


@dataclass(frozen=True)
class QueryJob:
    """One sub-topology to run.

    Attributes:
        sub: The sub-topology.
        tasks: Number of its tasks, and of Spark's shuffle partitions.
        settings: Of the runtime.
        source: What to read.
        client: Librdkafka client properties; kept out of `repr`.
        state_dir: Folder of the local stores on each executor.
        transaction_timeout_ms: Of the producers.
        spill_bytes: Bound of a step's write buffer.
        bulk_io: librdkafka's C API instead of the ordinary client.
        crash: Where a fault drill wants a worker to die; nowhere, as a rule.
        trim_delay_ms: How long changelog records stay that are not needed any more.
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

    @property
    def outputs(self) -> list[str]:
        """The topics that the program and the settings name to be written to."""
        named = {str(sink.topic) for sink in self.sub.sinks if sink.topic is not None}
        return sorted(named | ({self.settings.dead_letter_topic} if self.settings.dead_letter_topic else set()))

    def identity(self, task: int, query_id: str) -> TaskIdentity:
        """Who runs a step of `task`."""
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
