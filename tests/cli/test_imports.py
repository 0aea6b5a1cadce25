"""What a command imports before it does anything: libraries of columns and of Spark cost seconds that nobody asked for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "numba",
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark",
    "rocksdict",
    "streams.application.prepare",
    "streams.dsl",
    "streams.operators",
    "streams.runtime",
    "streams.topology.graph",
}
PROGRAM = "import importlib, json, sys; importlib.import_module(sys.argv[1]); print(json.dumps(list(sys.modules)))"


def imported(module: str) -> set[str]:
    """What importing a module has imported, in a new process."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, module], capture_output=True, check=True, text=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("command", ["main", "run", "status", "topic", "broker", "config"])
def test_a_command_imports_no_engine_before_it_needs_one(command: str) -> None:
    assert imported(f"streams.cli.{command}") & HEAVY == set()


@pytest.mark.parametrize("module", ["streams.application.pausing", "streams.cluster.records", "streams.cluster.admin"])
def test_what_asks_a_cluster_imports_no_engine(module: str) -> None:
    assert imported(module) & HEAVY == set()


def test_spark_s_daemon_can_be_started_by_what_imports_nothing_heavy() -> None:
    assert imported("streams.spark.daemon") & HEAVY == set()


def test_the_driver_needs_neither_pandas_nor_compiled_kernels() -> None:
    assert imported("streams.spark.runner") & {"numba", "pandas", "rocksdict"} == set()
