"""The end of Spark's Python processes that have inspected a data source; no Spark is started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streams.spark.jvm.inspectors import Inspectors

DAEMON = "python -m pyspark.daemon pyspark.sql.worker."
KEPT = [
    "python -m streams.spark.daemon pyspark.worker",
    "python -m pyspark.sql.streaming.python_streaming_source_runner",
]


class Process:
    """A child of the Java process, as `java.lang.ProcessHandle` shows it."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.ended = False

    def info(self) -> Any:
        return SimpleNamespace(commandLine=lambda: SimpleNamespace(orElse=lambda _: self.command))

    def destroy(self) -> None:
        self.ended = True


@pytest.fixture
def processes() -> list[Process]:
    inspecting = ("lookup_data_sources", "create_data_source", "plan_data_source_read")
    return [Process(command) for command in [*(DAEMON + module for module in inspecting), *KEPT]]


@pytest.fixture
def inspectors(processes: list[Process]) -> Inspectors:
    own = SimpleNamespace(children=lambda: SimpleNamespace(toArray=lambda: processes))
    handle = SimpleNamespace(current=lambda: own)
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(ProcessHandle=handle)))
    return Inspectors(SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm)))  # type: ignore[arg-type]


def test_inspecting_processes_end_when_all_queries_have_finished_a_micro_batch(
    processes: list[Process], inspectors: Inspectors
) -> None:
    inspectors.started("a")
    inspectors.started("b")
    inspectors.running("a")
    assert not any(process.ended for process in processes)
    inspectors.running("b")
    assert [process.command for process in processes if not process.ended] == KEPT


def test_a_query_that_starts_again_keeps_them_until_its_next_micro_batch(
    processes: list[Process], inspectors: Inspectors
) -> None:
    inspectors.started("a")
    inspectors.started("b")
    inspectors.running("a")
    inspectors.started("a")
    inspectors.running("b")
    assert not any(process.ended for process in processes)
