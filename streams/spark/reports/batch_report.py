"""Batches of queries without a task function, as reports of steps: progress and metrics show both alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def batch_report(
    version: int,
    records_in: int,
    records_out: int,
    seconds: Mapping[str, float],
    *,
    task: int = 0,
    skipped: bool = False,
    counters: Mapping[str, int] | None = None,
) -> Mapping[str, Any]:
    """A task's part of a batch as the report of a step that keeps no state; see `streams.spark.task_function`."""
    return {
        "task": task,
        "version": version,
        "decision": "skip" if skipped else "run",
        "counts": {"in": records_in, "out": records_out, "changelog": 0},
        "counters": dict(counters or {}),
        "stream_time": -1,
        "seconds": seconds,
        "total_s": sum(seconds.values()),
        "cpu_s": 0.0,
        "peak_rss_mb": 0,
    }
