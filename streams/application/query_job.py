"""The job of a sub-topology's query: what its readers and tasks must know of the application and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from state.commit.crash_points import CrashPoints
from streams.application.prepare import Application, PreparedSub
from streams.metrics.restores import ReportAddress
from streams.microbatch.job import QueryJob
from streams.microbatch.memory import ProcessMemory
from streams.source.offsets import FirstBatch


def query_job(
    application: Application,
    prepared: PreparedSub,
    counts: dict[str, int],
    processes: int,
    readers: int | None,
    *,
    until: Mapping[tuple[str, int], int],
    first: FirstBatch | None,
    restore_reports: ReportAddress | None,
) -> QueryJob:
    """The job of one query."""
    config, sub = application.config, prepared.sub
    return QueryJob(
        sub=sub,
        tasks=prepared.tasks,
        settings=application.task_settings(counts),
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
