"""Runs cases on real Spark and Kafka: one session and one broker for all, topics and an application id for each."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from streams.broker import EmbeddedBroker, fetch_jars
from streams.driver.launch.ahead import start_session
from streams.operators.operator import Mode
from tests.conformance.build import build
from tests.conformance.case import Case, CaseError
from tests.conformance.driver_engine import Outcome
from tests.conformance.live_cases import LiveCases
from tests.conformance.runner import judge
from tests.conformance.spark_case import SparkCase
from tests.conformance.spark_cluster import Cluster, prefixed

_numbers = itertools.count(1)


def run_on_spark(case: Case, mode: Mode) -> Outcome:
    """See `tests.conformance.runner.Engine`. The first case starts Kafka and Spark; they end with the process."""
    return run_on(_cluster(), case, mode)


def run_on(cluster: Cluster, case: Case, mode: Mode) -> Outcome:
    """Runs a case on a cluster that is there."""
    prefix = f"case{next(_numbers)}"
    named = replace(case, topology=prefixed(case.topology, f"{prefix}."), records=prefixed(case.records, f"{prefix}."))
    try:
        topology = build(named.topology, case.config.get("optimize", False))
    except CaseError:
        raise
    except Exception as error:
        return Outcome([], error, -1, 0)
    try:
        return SparkCase(cluster, prefix, named, mode, topology).outcome()
    finally:
        shutil.rmtree(cluster.folder / prefix, ignore_errors=True)


def run_live(cases: Sequence[Case], mode: Mode) -> Iterator[tuple[Case, str]]:
    """Runs cases as one application in live execution; gives each with what is wrong with it, if anything."""
    return run_together(_cluster(), cases, mode)


def run_together(cluster: Cluster, cases: Sequence[Case], mode: Mode) -> Iterator[tuple[Case, str]]:
    """Runs cases in one application, on a cluster that is there; if it fails, each alone, so that the one at fault is named."""
    prefix = f"live{next(_numbers)}"
    try:
        running = LiveCases(cluster, prefix, cases, mode)
        outcomes = running.outcomes()
    except CaseError as error:
        yield from ((case, str(error)) for case in cases)
        return
    finally:
        shutil.rmtree(cluster.folder / prefix, ignore_errors=True)
    if running.error is not None and len(cases) > 1:
        for case in cases:
            yield from run_together(cluster, [case], mode)
        return
    yield from ((case, judge(case, outcomes[case.name], by_key=True)) for case in cases)


@lru_cache(maxsize=1)
def _cluster() -> Cluster:
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    fetch_jars()
    broker = EmbeddedBroker(folder / "kafka", die_with_parent=True)
    atexit.register(broker.stop, delete=True)
    broker.start()
    settings = {
        "spark.master": "local[2,4]",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "1g",
    }
    session = start_session("conformance", settings, str(folder))
    atexit.register(session.stop)
    return Cluster(broker.bootstrap_servers, session, folder)
