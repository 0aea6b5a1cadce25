"""What the processes import in which Spark inspects and plans a query's source; no Spark is needed to see that."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import streams.spark.source
from streams.source.live import live_planner
from streams.source.planner import SourceSpec

live_planner({"bootstrap.servers": "127.0.0.1:1"}, SourceSpec({}))
print({"numba", "rocksdict", "pandas", "streams.api", "streams.operators", "streams.dsl"} & set(sys.modules))
"""


def test_a_process_that_plans_imports_neither_operators_nor_kernels() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"
