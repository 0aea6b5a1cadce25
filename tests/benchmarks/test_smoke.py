"""The benchmarks at a size that only shows that they still work, output verified."""

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.spark
def test_devices() -> None:
    command = [sys.executable, "-m", "benchmarks.devices", "--json"]
    sizes = ["--records", "40000", "--warm-up", "20000", "--batch", "20000"]
    done = subprocess.run([*command, *sizes], capture_output=True, text=True, timeout=840, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["verified"] is True
    # The warm-up ends with a whole micro-batch, so a part of what was to be measured may belong to it.
    assert result["records"] >= 15_000
    assert result["cpu_us_per_record"] == pytest.approx(sum(result["cpu_us_by_process"].values()), abs=0.1)
