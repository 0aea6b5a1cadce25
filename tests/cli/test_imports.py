"""What a command imports before it does anything: libraries of columns and of Spark cost seconds that nobody asked for."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

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
EARLY = ["main", "run", "status", "topic", "broker", "config", "inspection.doctor", "inspection.errors"]
"""The modules of commands that have no engine before they need one."""
QUICK = [name for name in COMMAND_MODULES if name not in WORKING and name not in MAY_IMPORT]
IN_TURN = [
    *(f"streams.cli.{module}" for module in EARLY),
    *ASKING,
    "streams.engine.spark.daemon",
    *(f"streams.cli.{module}" for module in QUICK if module not in EARLY),
    *LIGHT,
]
"""None of these imports what those behind it may not import, so one process can import them all."""
PROGRAM = """
import json, os, pickle, sys
from importlib import import_module

def tell(name, found):
    print(json.dumps([name, list(found)]), flush=True)

def told(name, step):
    before = set(sys.modules)
    result = step()
    tell(name, set(sys.modules) - before)
    return result

def plan():
    from streams.cli.target import load_topology
    from streams.topology.lint import lint
    from streams.topology.plan import build_plan

    topology = load_topology("tests.cli.every_operator:build")
    planned = build_plan(topology, "app", [])
    assert topology.describe() and topology.explain()
    assert list(lint(topology)) is not None
    assert [sub.topology_hash for sub in planned.sub_topologies]
    return planned

def make(planned):
    import cloudpickle

    for sub in pickle.loads(cloudpickle.dumps(planned.sub_topologies)):
        for node in sub.processors:
            processor = node.processor()
            yield from (kind.__name__ for kind in type(processor).__mro__)
            yield type(getattr(processor, "inner", processor)).__name__

for module in sys.argv[1:]:
    told(module, lambda: import_module(module))
planned = told("a plan", plan)
if os.fork() == 0:
    told("a warm-up", lambda: import_module("streams.engine.spark.warm_up").warm_up())
    tell("made", set(make(planned)))
    os._exit(0)
if os.wait()[1]:
    sys.exit("warm_up")
for module in ("streams.cli.state", "streams.driver.runner"):
    told(module, lambda: import_module(module))
"""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def told() -> dict[str, set[str]]:
    """What each step of the program has imported that none before it had, all in one new process; and what operators it made."""
    command = [sys.executable, "-c", PROGRAM, *IN_TURN]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return {name: set(found) for name, found in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("module", EARLY)
def test_a_command_imports_no_engine_before_it_needs_one(told: dict[str, set[str]], module: str) -> None:
    assert told[f"streams.cli.{module}"] & (LIBRARIES | ENGINE | PLANNING) == set()


@pytest.mark.parametrize("module", [*QUICK, *MAY_IMPORT])
def test_a_command_imports_no_library_of_columns(told: dict[str, set[str]], module: str) -> None:
    assert told[f"streams.cli.{module}"] & (LIBRARIES | ENGINE | OPERATORS) <= MAY_IMPORT.get(module, set())


@pytest.mark.parametrize("module", ASKING)
def test_what_asks_a_cluster_imports_no_engine(told: dict[str, set[str]], module: str) -> None:
    assert told[module] & (LIBRARIES | ENGINE | PLANNING) == set()


@pytest.mark.parametrize("module", LIGHT)
def test_what_plans_an_application_and_reads_its_commits_needs_no_columns(
    told: dict[str, set[str]], module: str
) -> None:
    assert told[module] & (LIBRARIES | ENGINE | OPERATORS) == set()


def test_a_topology_is_loaded_planned_and_described_without_its_operators(told: dict[str, set[str]]) -> None:
    assert told["a plan"] & (LIBRARIES | ENGINE | OPERATORS) == set()


def test_that_topology_has_every_operator(told: dict[str, set[str]]) -> None:
    """`wrapped` needs a wrapper, and `rows_as_emitted` is called in a step."""
    names = {name for names in late.NAMES.values() for name in names.split()}
    assert names - told["made"] == {"rows_as_emitted", "wrapped"}


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


def test_spark_s_daemon_can_be_started_by_what_imports_nothing_heavy(told: dict[str, set[str]]) -> None:
    assert told["streams.engine.spark.daemon"] & (LIBRARIES | ENGINE | PLANNING) == set()


def test_the_driver_needs_neither_pandas_nor_compiled_kernels(told: dict[str, set[str]]) -> None:
    assert told["streams.driver.runner"] & {"numba", "pandas", "rocksdict"} == set()


def test_workers_have_all_operators_before_they_are_forked(told: dict[str, set[str]]) -> None:
    assert told["a warm-up"] >= OPERATORS
