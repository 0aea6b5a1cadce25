"""Runs a case on ``TopologyTestDriver``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from streams import Topology, Windowed
from streams.operators.operator import Mode
from streams.testing import TopologyTestDriver
from tests.conformance.build import build
from tests.conformance.case import Case, CaseError
from tests.conformance.compare import Row
from tests.conformance.json_values import canonical


class Outcome(NamedTuple):
    """What came of a case.

    Attributes:
        rows: all records that were written, in order within each topic.
        error: the exception that ended it, if one did.
        error_at: index of the record (or mark) that was in process then; -1: the topology could not be built.
        dropped_late: how many records were counted as late.
    """

    rows: list[Row]
    error: Exception | None
    error_at: int
    dropped_late: int


def run_on_driver(case: Case, mode: Mode, execution: str = "micro-batch") -> Outcome:
    """Feeds the records one by one, or step by step, and reads what came out.

    With `execution="live"`, records cross repartition topics where they change their task.
    """
    try:
        topology = build(case.topology, case.config.get("optimize", False))
    except CaseError:
        raise
    except Exception as error:
        return Outcome([], error, -1, 0)
    config = case.config
    driver = TopologyTestDriver(
        topology,
        mode=mode,
        start_ms=config.get("wall_clock_start_ms", 0),
        rocksdb=config.get("store") == "rocksdb",
        emit_interval_ms=config.get("emit_interval_ms", 0),
        execution=execution,
    )
    with driver:
        at, error = -1, None
        try:
            for step in _steps(case):
                with ExitStack() as stack:
                    if case.batch:
                        stack.enter_context(driver.batch())
                    for at in step:
                        _feed(driver, case.records[at])
                _mark(driver, case.records[at])
        except CaseError:
            raise
        except Exception as problem:
            error = problem
        return Outcome(list(_rows(driver, topology)), error, at, driver.dropped("late"))


def _steps(case: Case) -> Iterator[Sequence[int]]:
    """Indexes of the records of each step, its closing mark included."""
    step: list[int] = []
    for at, record in enumerate(case.records):
        step.append(at)
        if not case.batch or "topic" not in record:
            yield step
            step = []
    if step:
        yield step


def _feed(driver: TopologyTestDriver, record: dict[str, Any]) -> None:
    if "topic" in record:
        unknown = set(record) - {"topic", "key", "value", "timestamp"}
        if unknown:
            raise CaseError(f"a record has unknown fields {sorted(unknown)}")
        topic = driver.create_input_topic(record["topic"])
        topic.pipe_input(record["key"], record["value"], record["timestamp"])


def _mark(driver: TopologyTestDriver, record: dict[str, Any]) -> None:
    """Do what a mark says; after the step that it closes."""
    if "topic" in record:
        return
    if set(record) == {"advance_wall_clock_ms"}:
        driver.advance_wall_clock_time(record["advance_wall_clock_ms"])
    elif record == {"restart": True}:
        driver.restart(wipe_state=True)
    elif record != {"step": True}:
        raise CaseError(f"unknown record {record!r}")


def _rows(driver: TopologyTestDriver, topology: Topology) -> Iterator[Row]:
    topics = dict.fromkeys(sink.topic for sink in topology.sinks() if isinstance(sink.topic, str))
    for topic in topics:
        for record in driver.create_output_topic(topic).read_records_to_list():
            yield row_of(topic, record.key, record.value, record.timestamp)


def row_of(topic: str, key: Any, value: Any, timestamp: int) -> Row:
    """An output record as rows of cases are written."""
    window = None
    if isinstance(key, Windowed):
        key, window = key.key, {"start": key.window.start, "end": key.window.end}
    return Row(topic, canonical(key), canonical(window), canonical(value), timestamp)
