"""The job of a sub-topology's query: all that its readers and tasks need of the application and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from state.commit.crash_points import CrashPoints
from state.kafka.placement import Placement
from streams.application.prepare import Application, PreparedSub
from streams.engine.source.offsets import FirstBatch
from streams.engine.step.job import ProcessMemory, QueryJob
from streams.metrics.reports import DriverAddress


def query_job(
    application: Application,
    prepared: PreparedSub,
    counts: dict[str, int],
    processes: int,
    readers: int | None,
    *,
    until: Mapping[tuple[str, int], int],
    first: FirstBatch | None,
    restore_reports: DriverAddress | None = None,
) -> QueryJob:
    config, sub = application.config, prepared.sub
    return QueryJob(
        sub=sub,
        tasks=prepared.tasks,
        settings=replace(
            application.task_settings(counts),
            placement=prepared.placement or Placement.MURMUR2,
            placements=application.topic_placements,
        ),
        source=replace(
            application.source_spec(sub),
            until=until,
            first=first,
            tick_ms=None if config.available_now else config.wall_clock_interval_ms,
            readers=readers,
        ),
        client=config.client,
        state_dir=config.state_dir,
        transaction_timeout_ms=config.transaction_timeout_ms,
        spill_bytes=config.spill_bytes,
        bulk_io=config.bulk_io,
        crash=CrashPoints.from_environment(),
        trim_delay_ms=config.trim_delay_ms,
        memory=ProcessMemory.of(config.memory_bytes, processes),
        snapshots=config.snapshots,
        replica_dir=config.replica_dir,
        logs=config.logs,
        restore_reports=restore_reports,
    )
