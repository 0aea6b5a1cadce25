"""Runs one case on an engine and judges the outcome."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from streams.operators.operator import Mode
from tests.conformance.case import Case, CaseError
from tests.conformance.compare import difference
from tests.conformance.driver_engine import Outcome, run_on_driver

Engine = Callable[[Case, Mode], Outcome]


def _run_on_spark(case: Case, mode: Mode) -> Outcome:
    # Here, so that the driver engine needs neither Spark nor Kafka.
    from tests.conformance.spark_engine import run_on_spark

    return run_on_spark(case, mode)


ENGINES: dict[str, Engine] = {"driver": run_on_driver, "spark": _run_on_spark}
"""Engines by name. Each is a function of the same form; it fixes the order of rows within a key only."""


def problem_of(case: Case, engine: str, mode: Mode) -> str:
    """What is wrong with the outcome of a case; empty if it passes."""
    try:
        outcome = ENGINES[engine](case, mode)
        return judge(case, outcome, by_key=engine != "driver")
    except CaseError as error:
        return str(error)


def judge(case: Case, outcome: Outcome, by_key: bool) -> str:
    """What is wrong with an outcome."""
    problems = []
    wanted, found = case.error, outcome.error
    if found is not None and wanted is None:
        trace = "".join(traceback.format_exception(found)[-8:])
        problems.append(f"failed at record {outcome.error_at}: {trace}")
    elif wanted is not None and (found is None or outcome.error_at != wanted["record"]):
        seen = "no error" if found is None else f"{type(found).__name__} at record {outcome.error_at}"
        problems.append(f"expected {wanted['type']} at record {wanted['record']}, got {seen}")
    if differs := difference(case, outcome.rows, by_key=by_key):
        problems.append(differs)
    if case.dropped_late is not None and case.dropped_late != outcome.dropped_late:
        problems.append(f"expected {case.dropped_late} late records, got {outcome.dropped_late}")
    return "\n".join(problems)
