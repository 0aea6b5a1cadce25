"""The parts of a small step, measured without Spark."""

import pytest

from benchmarks.small_steps import TASKS, CpuWatch, measure
from state.commit import step as commit_step


@pytest.mark.kafka
def test_each_part_of_a_step_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_step, "StopWatch", CpuWatch)
    steps = 4 * TASKS
    found = measure(steps, records=200)
    assert {"fence", "decide", "restore", "process", "commit", "apply", "step"} <= set(found)
    for part, times in found.items():
        assert len(times) == steps // 2, part
        assert all(wall >= 0 and cpu >= 0 for wall, cpu in times), part
    assert all(wall > 0 and cpu > 0 for wall, cpu in found["step"])
