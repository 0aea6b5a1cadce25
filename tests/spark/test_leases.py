"""The query of live execution on real Spark: leases follow each other, and none needs what an earlier one has left on a disk."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streams.spark import live, worker
from streams.spark.executors import await_executors, tasks_at_once
from streams.spark.leases import STEADY_S, LeaseWatch

WAIT_S = 240.0
HOST = "127.0.0.1"


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_S:g} s: {what}"
        time.sleep(0.05)


def writing(log: str) -> Callable[[bytes], Any]:
    """Makes a slot's function that only writes down its lease, its number of slots and its own group."""

    def slot_function(_: bytes) -> Any:
        def run(key: tuple[Any, ...], frames: Any, state: Any) -> Iterator[Any]:
            import time

            import pandas as pd
            from pyspark import TaskContext

            for _ in frames:
                pass
            context = TaskContext.get()
            assert context is not None
            lease, slots = (context.getLocalProperty(f"streams.live.{name}") for name in ("lease", "slots"))
            with open(log, "a") as file:
                file.write(f"{lease} {slots} {key[0]} {state.exists}\n")
            time.sleep(0.1)
            yield pd.DataFrame({"slot": [0]})

        return run

    return slot_function


def test_a_lease_needs_no_state_of_the_one_before(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot may come to another host, whose disk has nothing of the leases before."""
    log, folder = tmp_path / "log", tmp_path / "checkpoint"
    folder.mkdir()
    log.touch()
    monkeypatch.setattr(worker, "dump_live_job", lambda job: b"")
    monkeypatch.setattr(live, "slot_function", writing(str(log)))
    monkeypatch.setattr(live.tempfile, "mkdtemp", lambda prefix: str(folder))
    job: Any = SimpleNamespace(slots=3)
    possible = [2]

    def leases() -> list[list[str]]:
        return [line.split() for line in log.read_text().splitlines()]

    def watch(driver: live.LiveDriver) -> LeaseWatch:
        return LeaseWatch(driver, lambda: possible[0])

    with live.LiveDriver(HOST, HOST, lambda message: None) as driver:
        query, gate = live.start_live(spark, "leases", job, driver, lambda: None, watch)
        try:
            until(lambda: len(leases()) >= 6, "two leases with a call for each group")
            # As on another host: no file, and nothing in memory.
            for state in folder.glob("state/*/[0-9]*"):
                shutil.rmtree(state)
            spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()  # type: ignore[union-attr]
            had = len(leases())
            possible[0] = 3
            driver.end_leases()
            until(lambda: len(leases()) >= had + 9 or not query.isActive, "further leases")
            assert query.isActive, query.exception()
            # A host has a few small files of each group, however many leases it has had; that of a running lease is temporary.
            files = [path.name for path in folder.glob("state/0/0/*") if not path.name.endswith(".crc")]
            assert len(files) <= 2, files
        finally:
            gate.stop(query)
    found = leases()
    assert {state for *_, state in found} == {"False"}
    assert found[0][:2] == ["0", "2"]
    assert found[-1][:2] == ["1", "3"]
    assert len({group for _, _, group, _ in found}) == 3
    assert query.exception() is None


def test_spark_says_how_many_tasks_it_runs_at_once(spark: SparkSession) -> None:
    assert tasks_at_once(spark) == 2
    began = time.monotonic()
    await_executors(spark, lambda: False)
    assert time.monotonic() - began < STEADY_S
