"""The parts of a small step, measured without Spark: in a process of its own, whose clients and databases end with it."""

import subprocess
import sys

import pytest


@pytest.mark.kafka
def test_each_part_of_a_step_is_measured() -> None:
    command = [sys.executable, "-m", "benchmarks.small_steps", "--steps", "16", "--records", "200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    parts = {line.split()[0]: [float(figure) for figure in line.split()[1:]] for line in done.stdout.splitlines()[1:]}
    assert {"fence", "decide", "restore", "process", "commit", "apply", "step"} <= set(parts)
    assert all(figure > 0 for figure in parts["step"])
