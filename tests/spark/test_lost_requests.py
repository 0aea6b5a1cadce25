"""Commits that come twice or too late, and zombies: behind a proxy that shows that it happened. Drill D09 has lost ones."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from state.kafka.admin import KafkaAdmin
from streams.drills.brokers import (
    END_TXN,
    INVALID_PRODUCER_EPOCH,
    PRODUCER_FENCED,
    Proxy,
    ProxyAction,
    Rule,
    proxied_broker,
)
from streams.drills.topics import read_aborted
from tests.spark import apps
from tests.spark.harness import Harness
from tests.spark.live import eventually
from tests.spark.processes import streams_run
from tests.spark.sweep import STRUCK, Sweep
from tests.spark.test_operators import increasing
from tests.spark.test_restore import differences

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]
HIT_S = 120
REFUSED = (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)

InBackground = Callable[[Callable[[], object]], Future[object]]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxied_broker(tmp_path_factory.mktemp("kafka")) as (_, started):
        yield started


@pytest.fixture
def harness(proxy: Proxy, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Harness:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.removeprefix("test_"))[:60]
    return Harness(proxy.bootstrap_servers, spark, tmp_path, name)


@pytest.fixture
def sweep(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    return Sweep(harness, tmp_path, monkeypatch)


@pytest.fixture
def in_background() -> Iterator[InBackground]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def on_commit(proxy: Proxy, sweep: Sweep, action: ProxyAction, but_not: bytes = b"") -> Rule:
    """The next commit of the struck task."""
    task = f"{sweep.harness.application_id}-{sweep.source}-{STRUCK}"
    return proxy.on(END_TXN, action, task.encode(), but_not=but_not)


def test_the_client_asks_again_for_a_commit(proxy: Proxy, sweep: Sweep, in_background: InBackground) -> None:
    sweep.send(2)
    late = on_commit(proxy, sweep, ProxyAction.HANG_UP)
    run = in_background(sweep.run)
    assert late.hit.wait(HIT_S)
    again = on_commit(proxy, sweep, ProxyAction.LOSE_REPLY)
    assert again.hit.wait(HIT_S)
    assert again.producer() == late.producer()
    third = on_commit(proxy, sweep, ProxyAction.WATCH)
    # A slow broker may answer the third one with "not done yet", so that there is a fourth: only another producer's counts.
    next_one = on_commit(proxy, sweep, ProxyAction.HOLD, but_not=late.producer())
    again.release()
    assert third.hit.wait(HIT_S)
    # The first request of the last transaction comes in the middle of this one.
    assert next_one.hit.wait(HIT_S)
    late.release()
    assert late.error_code() in REFUSED
    next_one.release()
    run.result()
    sweep.check()
    assert sweep.decisions() == {1: "run", 2: "run"}
    assert sweep.aborted() == {}


def frozen(sweep: Sweep) -> int:
    """Waits until the fault of the drill has stopped a worker; its process id."""
    eventually(lambda: sweep.happened.exists() and sweep.happened.read_text().endswith("\n"), "a frozen worker")
    return int(sweep.happened.read_text().split()[0])


@pytest.mark.long  # drill D06 holds this under load
def test_a_transaction_that_takes_too_long(sweep: Sweep, in_background: InBackground) -> None:
    sweep.send(1)
    run = in_background(lambda: sweep.run([f"freeze before_commit@{STRUCK}:1"], transaction_timeout_ms=5_000))
    worker = frozen(sweep)

    def aborted() -> bool:
        places = [(sweep.counts, STRUCK)]
        with KafkaAdmin({"bootstrap.servers": sweep.harness.servers}) as admin:
            ends = (admin.end_offsets(places), admin.end_offsets(places, committed=False))
        return ends[0] == ends[1] and ends[0][places[0]] > 0

    eventually(aborted, "the broker aborts what is open for too long")
    os.kill(worker, signal.SIGCONT)
    run.result()
    sweep.check()
    # It looks like being fenced, which says nothing about a commit: the marker does.
    assert sweep.decisions() == {1: "run"}
    assert sweep.aborted()[1]["markers"] == 1


def test_a_zombie_wakes_up_after_another_driver_has_done_its_work(
    proxy: Proxy, sweep: Sweep, in_background: InBackground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = sweep.harness
    monkeypatch.setenv(apps.BLOCKS, f"{sweep.source} {sweep.counts} {sweep.sums}")
    sweep.send(1)
    run = in_background(lambda: sweep.run([f"freeze before_commit@{STRUCK}:1"]))
    worker = frozen(sweep)
    # As on another host: the same application on a copy of the checkpoint, with a disk of its own.
    shutil.copytree(harness.config().checkpoint_dir, tmp_path / "copy")
    places = [f"checkpoint_dir={tmp_path / 'copy'}", f"state_dir={tmp_path / 'elsewhere'}"]
    settings = [part for place in places for part in ("--set", place)]
    with streams_run(
        "tests.spark.apps:blocks", harness, tmp_path, "--available-now", "--tasks", "2", *settings
    ) as other:
        assert other.ended(HIT_S) == 0, other.log()
    before = harness.read(sweep.counts)
    sweep.check()
    commit = proxy.on(END_TXN, ProxyAction.WATCH, f"{harness.application_id}-{sweep.source}-{STRUCK}".encode())
    os.kill(worker, signal.SIGCONT)
    run.result()
    assert commit.error_code() in REFUSED
    assert harness.read(sweep.counts) == before
    assert increasing(before)
    assert sweep.decisions() == {1: "skip"}
    assert len(read_aborted(harness.servers, sweep.counts)) > 0
    # The first driver goes on, with its own state rolled forward.
    sweep.send(1)
    sweep.run()
    sweep.check()
    assert differences(harness, sweep.topology(), tmp_path / "restored") == []
