"""Figures of steps, for tests."""

from __future__ import annotations

from typing import Any

import orjson

from streams.metrics.application import PartitionTime, RestoreFigures, StateSize, StepFigures, StoreSize
from streams.metrics.recorder import MetricsRecorder

NOW_MS = 1_000_000


def step(task: int = 0, version: int = 1, **fields: Any) -> StepFigures:
    """The figures of a step as the driver has them: 5 records in, 3 out, 2 in changelogs."""
    state, restore = fields.pop("state", None), fields.pop("restore", None)
    made: dict[str, Any] = {
        "batch_id": version - 1,
        "records_in": 5,
        "records_out": 3,
        "changelog_records": 2,
        "event_time_ms": 7,
        "seconds": {"fence": 0.002, "process": 0.2},
        "total_s": 0.25,
        "cpu_s": 0.1,
        "peak_rss_bytes": 100 * 2**20,
        "live": "steps" in fields,
        **fields,
        "event_times": tuple(PartitionTime(*one) for one in fields.get("event_times", ())),
        "state": state
        and StateSize(state["disk_bytes"], {name: StoreSize(*of) for name, of in state["stores"].items()}),
        "restore": restore and RestoreFigures(**restore),
    }
    return StepFigures.of(orjson.loads(orjson.dumps(StepFigures(task, version, **made))))


def recorder(*batches: tuple[StepFigures, ...], tasks: int = 2) -> MetricsRecorder:
    """A recorder after some micro-batches of the sub-topology `sub`, which reads the topic `in`."""
    made = MetricsRecorder("app", lambda: NOW_MS)
    made.starting("sub", tasks, ("in",))
    for number, steps in enumerate(batches):
        made.step("sub", number, steps)
    return made
