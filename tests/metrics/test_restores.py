"""Restores are in the figures while they run: as workers say to the driver, and on its pages."""

from __future__ import annotations

import random
import socket
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from state.commit.decide import TaskIdentity
from state.restore.task_stores import TaskStateManager, WorkerMemory
from state.stores.codec import timestamped
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams.config import load_config
from streams.config.settings import Address
from streams.driver.runner import StreamsApplication
from streams.metrics.application import StoreRestore
from streams.metrics.export import metrics_served
from streams.metrics.recorder import MetricsRecorder
from streams.metrics.reports import INTERVAL_S, RESTORING, DriverAddress, RestoreReporter, reports_to
from tests.live.test_running import program
from tests.metrics.made import recorder, step
from tests.metrics.test_export import get, value
from tests.restore.logs import APPLICATION, SPECS, MemoryLogs, commit, marker_of, write_random


@pytest.fixture
def running() -> MetricsRecorder:
    """The figures within a micro-batch."""
    made = recorder()
    made.begun("sub")
    return made


class Reported:
    """What a reporter says, taken in one by one as by the driver."""

    def __init__(self, running: MetricsRecorder) -> None:
        self.running = running
        self.said: deque[Mapping[str, Any]] = deque()
        self.tell = self.said.append

    def take(self) -> None:
        message = orjson.loads(orjson.dumps(self.said.popleft()))
        store, *progress = message[RESTORING]
        self.running.restoring(message["sub"], message["task"], store, StoreRestore(*progress))


@pytest.fixture
def reports(running: MetricsRecorder) -> Reported:
    return Reported(running)


def restores(made: MetricsRecorder) -> dict[tuple[int, str], StoreRestore]:
    return dict(made.snapshot().sub_topologies["sub"].restores)


def test_a_restore_is_served_while_it_runs(running: MetricsRecorder, reports: Reported, tmp_path: Path) -> None:
    logs, live = MemoryLogs(), TaskStore(MemoryTable(), SPECS)
    write_random(live, random.Random(4), now=20)
    for number in range(9):
        live.store("table").put(b"%d" % number, timestamped(b"v", 1), 1)
    marker = marker_of(commit(live, logs, 1))
    reporter = RestoreReporter(reports.tell, "sub", lambda: 0.0)
    identity = TaskIdentity(APPLICATION, "sub", 0, 1, "query", "hash")
    stores = TaskStateManager(logs, identity, SPECS, tmp_path, memory=WorkerMemory(), listener=reporter)
    seen = []

    def look(point: str) -> None:
        """Within the restore of the first store, whose beginning was reported and whose end was not."""
        if point == "restore_halfway":
            reports.take()
            seen.append((get(f"{url}/metrics")[1], get(f"{url}/ready")[1]))

    with metrics_served(running, Address("127.0.0.1", 0)) as address, stores.open() as store:
        url = f"http://{address}"
        stores.restore_to(store, marker, look)
    ((text, why),) = seen
    offsets = marker.changelog_ends["table"]
    place = {"app": "app", "sub_topology": "sub", "task": "0", "store": "table"}
    assert offsets >= 9
    assert value(text, "streams_restore_offsets", **place) == offsets
    assert value(text, "streams_restore_remaining_offsets", **place) == offsets
    assert value(text, "streams_restore_read_records", **place) == 0
    assert why.endswith(f"; sub restores 1 store: 0 % of {offsets} changelog offsets are read\n")
    reports.take()
    assert restores(running)[0, "table"] == StoreRestore(offsets, 0, offsets)


def test_a_store_is_reported_at_its_beginning_and_end_and_now_and_then_between(
    running: MetricsRecorder, reports: Reported
) -> None:
    clock = [100.0]
    reporter = RestoreReporter(reports.tell, "sub", lambda: clock[0])
    seen = []

    def taken() -> None:
        reports.take()
        seen.append(restores(running)[1, "counts"])

    reporter.on_start("counts", 1, 100)
    taken()
    reporter.on_batch("counts", 1, 10, 1000, 80)
    clock[0] += INTERVAL_S
    reporter.on_batch("counts", 1, 30, 1000, 50)
    taken()
    reporter.on_batch("counts", 1, 20, 1000, 0)
    taken()
    assert seen == [StoreRestore(100, 100), StoreRestore(100, 50, 40), StoreRestore(100, 0, 60)]


def test_without_a_driver_that_answers_a_restore_goes_on() -> None:
    """One that is gone, one in a network that swallows everything, and none."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (9, silent.getsockname()[1]):
            began = time.monotonic()
            with reports_to(DriverAddress("127.0.0.1", port, b"key")) as tell:
                assert tell is not None
                reporter = RestoreReporter(tell, "sub", lambda: 0.0)
                reporter.on_start("counts", 0, 5)
                reporter.on_batch("counts", 0, 5, 10, 0)
            assert time.monotonic() - began < 5.0
    with reports_to(None) as tell:
        assert tell is None


def test_restores_end_with_their_micro_batch_even_if_the_last_report_was_lost(running: MetricsRecorder) -> None:
    running.restoring("sub", 0, "counts", StoreRestore(10, 4, 6))
    running.step("sub", 0, (step(),))
    assert restores(running) == {(0, "counts"): StoreRestore(10, 0, 6)}
    running.restoring("sub", 0, "counts", StoreRestore(10, 2, 8))
    assert restores(running) == {(0, "counts"): StoreRestore(10, 0, 8)}, "a report that was late"
    running.restoring("of an earlier run", 0, "counts", StoreRestore(10, 2, 8))


def test_a_restore_that_was_broken_off_is_forgotten_when_the_query_starts_again(running: MetricsRecorder) -> None:
    running.restoring("sub", 0, "counts", StoreRestore(10, 0, 9))
    running.restoring("sub", 0, "sums", StoreRestore(10, 4, 6))
    running.starting("sub", 2, ("in",))
    assert restores(running) == {(0, "counts"): StoreRestore(10, 0, 9)}


def test_a_live_task_restores_while_others_of_its_sub_topology_work(running: MetricsRecorder) -> None:
    """Their reports end no micro-batch."""
    running.restoring("sub", 1, "counts", StoreRestore(10, 10))
    running.step("sub", 0, (step(task=0, steps=3),))
    assert restores(running) == {(1, "counts"): StoreRestore(10, 10)}
    running.restoring("sub", 1, "counts", StoreRestore(10, 4, 6))
    assert restores(running) == {(1, "counts"): StoreRestore(10, 4, 6)}
    running.step("sub", 0, (step(task=1, steps=1),))
    assert restores(running) == {(1, "counts"): StoreRestore(10, 0, 6)}


class Session:
    """A Spark session, as far as its address is concerned."""

    def __init__(self, master: str, **conf: str) -> None:
        self.sparkContext = self
        self.master, self._conf = master, {f"spark.driver.{name}": text for name, text in conf.items()}

    def getConf(self) -> dict[str, str]:
        return self._conf


NEEDED = {"application_id": "app", "bootstrap_servers": "nowhere:1"}
LOCAL = Session("local[2,4]", host="192.0.2.1")


@pytest.mark.parametrize(
    ("settings", "live", "session", "host"),
    [
        ({}, False, LOCAL, None),
        ({}, True, LOCAL, "127.0.0.1"),
        ({"metrics": "0"}, False, LOCAL, "127.0.0.1"),
        ({"metrics": "0"}, False, Session("spark://m", host="d.example", bindAddress="127.0.0.1"), "d.example"),
        ({"metrics": "0"}, False, Session("spark://m", host="192.0.2.1"), None),
    ],
    ids=["no figures are served", "live", "local", "a cluster", "no port can be opened"],
)
def test_workers_report_to_the_address_of_the_driver(
    settings: dict[str, str], live: bool, session: Session, host: str | None
) -> None:
    application = StreamsApplication(program(), load_config(None, {**NEEDED, **settings}))
    application._spark = session  # type: ignore[assignment]
    with application._listener(live) as found:
        assert (None if found is None else found.address.host) == host


def test_live_execution_needs_its_port() -> None:
    application = StreamsApplication(program(), load_config(None, NEEDED))
    application._spark = Session("spark://m", host="192.0.2.1")  # type: ignore[assignment]
    with pytest.raises(OSError, match="assign"):
        application._listener(True)
