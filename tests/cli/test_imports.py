"""What a command imports before it does anything: libraries of columns and of Spark cost seconds that nobody asked for."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from streams.cli.main import COMMANDS
from streams.operators import late

LIBRARIES = {"fsspec", "numba", "numpy", "pandas", "pyarrow", "pyspark", "rocksdict", "starlette", "uvicorn"}
ENGINE = {
    "state.columns",
    "state.commit.live",
    "state.stores.task_store",
    "streams.engine.live",
    "streams.engine.step",
    "streams.operators.columnar",
    "streams.operators.operator",
    "streams.engine.graph.node",
}
PLANNING = {
    "streams.application.prepare",
    "streams.dsl",
    "streams.operators",
    "streams.engine.graph",
    "streams.topology.graph",
}
OPERATORS = {f"streams.operators.{module}" for module in late.NAMES}
IMPORT = """
import importlib, json, os, sys
importlib.import_module("streams.cli.main")
for module in sys.argv[1:]:
    if os.fork() == 0:
        importlib.import_module(module)
        print(json.dumps([module, list(sys.modules)]), flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(module)
"""
PLAN = """
import json, sys
from streams.cli.target import load_topology
from streams.topology.lint import lint
from streams.topology.plan import build_plan

topology = load_topology("tests.cli.every_operator:build")
plan = build_plan(topology, "app", [])
assert topology.describe() and topology.explain()
assert list(lint(topology)) is not None
assert [sub.topology_hash for sub in plan.sub_topologies]
print(json.dumps(list(sys.modules)))
"""
MAKE = """
import json, pickle
import cloudpickle
from streams.operators import late
from streams.topology.plan import build_plan
from tests.cli.every_operator import build

made = set()
for sub in pickle.loads(cloudpickle.dumps(build_plan(build(), "app", []).sub_topologies)):
    for node in sub.processors:
        processor = node.processor()
        made |= {kind.__name__ for kind in type(processor).__mro__}
        made.add(type(getattr(processor, "inner", processor)).__name__)
print(json.dumps([name for names in late.NAMES.values() for name in names.split() if name not in made]))
"""

COMMAND_MODULES = sorted({command.module for command in COMMANDS.values()})
ASKING = ["streams.application.pausing", "streams.cluster.records", "streams.cluster.admin"]
LIGHT = [
    "state.kafka.message_reader",
    "streams.api",
    "streams.application.prepare",
    "streams.application.status",
    "streams.application.stored_tasks",
    "streams.engine.source.log",
]
ALL_MODULES = {
    *(f"streams.cli.{module}" for module in ("main", *COMMAND_MODULES)),
    *ASKING,
    *LIGHT,
    "streams.engine.spark.daemon",
    "streams.driver.runner",
}
MAY_IMPORT = {
    # These read stores or many records; the libraries of columns are what they do it with.
    "state": {
        "numpy",
        "pyarrow",
        "state.columns",
        "state.stores.task_store",
        "streams.operators.aggregate.aggregates",
        "streams.operators.columnar",
        "streams.operators.operator",
    },
}
"""What a command's module may import of all that."""
WORKING = {"drill", "migration.java", "replica", "rescale", "reset", "restore"}
"""The modules of commands that do with the engine what they do: their work takes longer than its import."""


pytestmark = pytest.mark.slow


def printed(program: str, *arguments: str) -> list[Any]:
    """The lines that a program prints in a new process, each as JSON."""
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, check=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def output(program: str) -> set[str]:
    """What a program prints in a new process, a JSON list."""
    (line,) = printed(program)
    return set(line)


@cache
def imported_by_module() -> dict[str, set[str]]:
    """What importing a module has imported, each in a process of its own that has nothing else than `streams.cli.main`.

    That has none of what is looked for here, which a test shows; it is a large part of what they all import.
    """
    return {module: set(names) for module, names in printed(IMPORT, *sorted(ALL_MODULES))}


def imported(module: str) -> set[str]:
    """What importing a module has imported."""
    return imported_by_module()[module]


@pytest.mark.parametrize(
    "module", ["main", "run", "status", "topic", "broker", "config", "inspection.doctor", "inspection.errors"]
)
def test_a_command_imports_no_engine_before_it_needs_one(module: str) -> None:
    assert imported(f"streams.cli.{module}") & (LIBRARIES | ENGINE | PLANNING) == set()


@pytest.mark.parametrize("module", [name for name in COMMAND_MODULES if name not in WORKING])
def test_a_command_imports_no_library_of_columns(module: str) -> None:
    assert imported(f"streams.cli.{module}") & (LIBRARIES | ENGINE | OPERATORS) <= MAY_IMPORT.get(module, set())


@pytest.mark.parametrize("module", ASKING)
def test_what_asks_a_cluster_imports_no_engine(module: str) -> None:
    assert imported(module) & (LIBRARIES | ENGINE | PLANNING) == set()


@pytest.mark.parametrize("module", LIGHT)
def test_what_plans_an_application_and_reads_its_commits_needs_no_columns(module: str) -> None:
    assert imported(module) & (LIBRARIES | ENGINE | OPERATORS) == set()


def test_a_topology_is_loaded_planned_and_described_without_its_operators() -> None:
    assert output(PLAN) & (LIBRARIES | ENGINE | OPERATORS) == set()


def test_that_topology_has_every_operator() -> None:
    """`wrapped` needs a wrapper, and `rows_as_emitted` is called in a step."""
    assert output(MAKE) == {"rows_as_emitted", "wrapped"}


def test_a_type_checker_sees_the_names_that_there_are() -> None:
    """The names are written twice: for a type checker, and for Python."""
    tree = ast.parse(Path(late.__file__).read_text(encoding="utf-8"))
    shown = {
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if node.module.startswith("streams.operators.")
    }
    there = {(f"streams.operators.{module}", name) for module, names in late.NAMES.items() for name in names.split()}
    assert shown == there


def test_spark_s_daemon_can_be_started_by_what_imports_nothing_heavy() -> None:
    assert imported("streams.engine.spark.daemon") & (LIBRARIES | ENGINE | PLANNING) == set()


def test_the_driver_needs_neither_pandas_nor_compiled_kernels() -> None:
    assert imported("streams.driver.runner") & {"numba", "pandas", "rocksdict"} == set()


def test_workers_have_all_operators_before_they_are_forked() -> None:
    program = "import json, sys; from streams.engine.spark.warm_up import warm_up; warm_up(); print(json.dumps(list(sys.modules)))"
    assert output(program) >= OPERATORS
