"""Reports of workers and figures made from them, for tests."""

from __future__ import annotations

from typing import Any

from streams.metrics.application import StepFigures
from streams.metrics.recorder import MetricsRecorder

NOW_MS = 1_000_000


def report(task: int = 0, version: int = 1, **fields: Any) -> dict[str, Any]:
    """A worker's report of a step: 5 records in, 3 out, 2 in changelogs."""
    return {
        "task": task,
        "version": version,
        "batch_id": version - 1,
        "decision": "run",
        "counts": {"in": 5, "out": 3, "changelog": 2},
        "counters": {},
        "stream_time": 7,
        "seconds": {"fence": 0.002, "process": 0.2},
        "total_s": 0.25,
        "cpu_s": 0.1,
        "peak_rss_mb": 100,
        **fields,
    }


def step(task: int = 0, version: int = 1, **fields: Any) -> StepFigures:
    """The figures of such a step."""
    return StepFigures.of(report(task, version, **fields))


def recorder(*batches: tuple[StepFigures, ...], tasks: int = 2) -> MetricsRecorder:
    """A recorder after some micro-batches of the sub-topology `sub`, which reads the topic `in`."""
    made = MetricsRecorder("app", lambda: NOW_MS)
    made.starting("sub", tasks, ("in",))
    for number, steps in enumerate(batches):
        made.step("sub", number, steps)
    return made
