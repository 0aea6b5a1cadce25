"""The query of live execution on real Spark: leases follow each other, fail, and are stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streams.driver import live
from streams.driver.executors import await_executors, tasks_at_once
from streams.driver.leases import STEADY_S, LeaseWatch
from streams.driver.live_query import LiveQuery
from streams.driver.queries import readable
from streams.engine.spark import worker
from tests.spark.live import eventually

HOST = "127.0.0.1"


def writing(log: str) -> Callable[..., Callable[[int], None]]:
    """Makes a slot's function that only writes down its lease, its number of slots and its own number."""

    def slot_function(_: bytes, lease: int, slots: int) -> Callable[[int], None]:
        def run(slot: int) -> None:
            import time

            with open(log, "a") as file:
                file.write(f"{lease} {slots} {slot}\n")
            time.sleep(0.1)

        return run

    return slot_function


def test_leases_follow_each_other_with_as_many_slots_as_there_may_be(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.touch()
    monkeypatch.setattr(worker, "dump_live_job", lambda job: b"")
    monkeypatch.setattr(live, "slot_function", writing(str(log)))
    job: Any = SimpleNamespace(slots=3)
    possible = [2]

    def leases() -> list[list[str]]:
        return [line.split() for line in log.read_text().splitlines()]

    def watch(driver: live.LiveDriver) -> LeaseWatch:
        return LeaseWatch(driver, lambda: possible[0])

    with live.LiveDriver(HOST, HOST, lambda message: None) as driver:
        query, gate = live.start_live(spark, "leases", job, driver, lambda: None, watch)
        try:
            eventually(lambda: len(leases()) >= 4, "two leases with a call for each slot")
            had = len(leases())
            possible[0] = 3
            driver.end_leases()
            eventually(lambda: len(leases()) >= had + 9 or not query.isActive, "further leases")
            assert query.isActive, query.exception()
            tracker = spark.sparkContext.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(query.runId)]
            stages = [tracker.getStageInfo(stage) for one in jobs if one for stage in one.stageIds]
            assert {one.numTasks for one in stages if one} == {3}, "Spark's dynamic allocation sees how many could run"
        finally:
            gate.stop(query)
    found = leases()
    assert sorted(found[:2]) == [["0", "2", "0"], ["0", "2", "1"]]
    assert sorted(found[-3:]) == [["1", "3", "0"], ["1", "3", "1"], ["1", "3", "2"]]
    assert query.exception() is None
    assert not query.isActive


def test_a_slot_that_fails_ends_the_query_with_what_it_raised(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slot_function(*_: Any) -> Callable[[int], None]:
        def run(slot: int) -> None:
            raise ValueError(f"slot {slot} cannot")

        return run

    monkeypatch.setattr(worker, "dump_live_job", lambda job: b"")
    monkeypatch.setattr(live, "slot_function", slot_function)
    job: Any = SimpleNamespace(slots=1)
    with live.LiveDriver(HOST, HOST, lambda message: None) as driver:
        query, _ = live.start_live(spark, "leases", job, driver, lambda: None)
        eventually(lambda: not query.isActive, "the end of the query")
    failure = query.exception()
    assert failure is not None
    assert str(readable(failure)) == "ValueError: slot 0 cannot"


def test_a_lease_that_does_not_end_is_cancelled(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = str(tmp_path / "begun")

    def slot_function(*_: Any) -> Callable[[int], None]:
        def run(slot: int) -> None:
            import time
            from pathlib import Path

            Path(begun).touch()
            time.sleep(600)

        return run

    monkeypatch.setattr(worker, "dump_live_job", lambda job: b"")
    monkeypatch.setattr(live, "slot_function", slot_function)
    job: Any = SimpleNamespace(slots=1)
    with live.LiveDriver(HOST, HOST, lambda message: None) as driver:
        query, gate = live.start_live(spark, "leases", job, driver, lambda: None)
        eventually(Path(begun).exists, "a slot")
        gate.stop(query, drain_s=0.2)
    assert not query.isActive
    assert query.exception() is None


def test_spark_says_how_many_tasks_it_runs_at_once(spark: SparkSession) -> None:
    assert tasks_at_once(spark) == 2
    began = time.monotonic()
    await_executors(spark, lambda: False)
    assert time.monotonic() - began < STEADY_S


def test_a_lease_is_begun_without_the_json_of_spark_s_page(spark: SparkSession) -> None:
    context, scopes = spark.sparkContext, []

    def lease() -> None:
        empty = context.parallelize([], 1)
        scopes.append(empty._jrdd.rdd().scope().isEmpty())

    query = LiveQuery(context, "lease", lease)
    eventually(lambda: not query.isActive, "the lease ends")
    assert query.exception() is None
    assert scopes == [True]
    assert not context.parallelize([], 1)._jrdd.rdd().scope().isEmpty(), "a user's own jobs keep their names"
