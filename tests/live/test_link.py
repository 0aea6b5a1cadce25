"""The connection between slots and the driver: reports one way, pauses and the stop the other."""

from __future__ import annotations

import logging
import os
import queue
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

import pytest

from state import secrets
from streams.driver import live
from streams.driver.live import RENEW_AFTER_S, LiveDriver, LiveGate
from streams.engine.live import slot as slots
from streams.engine.live.link import Link
from streams.engine.source.log import STEP
from streams.logs.recent import SentLines, handling, keeping_lines
from streams.metrics.memory import host_name
from streams.metrics.reports import MOST_BYTES, MOST_WAITING, SILENT_S, DriverAddress, Reports, connect

HOST = "127.0.0.1"
WAIT_S = 30.0
HOUR_MS = 3_600_000


@pytest.fixture
def heard() -> queue.Queue[Any]:
    return queue.Queue()


@pytest.fixture
def driver(heard: queue.Queue[Any]) -> Iterator[LiveDriver]:
    with LiveDriver(HOST, HOST, heard.put) as one:
        yield one


def until(link: Link, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        link.listen()
        time.sleep(0.01)


def test_reports_arrive_in_their_order(driver: LiveDriver, heard: queue.Queue[Any]) -> None:
    link = Link.to(driver.address)
    for number in range(3):
        link.tell({"number": number})
    assert [heard.get(timeout=WAIT_S)["number"] for _ in range(3)] == [0, 1, 2]
    link.close()


def test_the_dashboard_has_the_log_lines_of_workers_once_and_names_other_hosts(driver: LiveDriver) -> None:
    link, log = Link.to(driver.address), logging.getLogger("own")
    with keeping_lines() as lines:
        for host, message in (("far", "from another host"), (host_name(), "from this host")):
            with handling(SentLines(link.tell, host)):
                # The process is the driver's, too, which keeps the line by itself.
                log.warning(message)
        link.tell({"line": "{}", "host": host_name()})
        until(link, lambda: {} in lines.newest())
        found = [(one["message"], one.get("host")) for one in lines.newest() if one]
    assert sorted(found, key=str) == [
        ("from another host", "far"),
        ("from another host", None),
        ("from this host", None),
    ]
    log.warning("nobody hears this")
    link.close()


def test_hosts_may_have_only_ipv6(heard: queue.Queue[Any]) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with LiveDriver("::1", "::1", heard.put) as driver:
        link = Link.to(driver.address)
        link.tell({"number": 1})
        assert heard.get(timeout=WAIT_S) == {"number": 1}
        link.close()


def test_a_slot_hears_of_pauses_and_of_the_stop_even_if_it_comes_later(driver: LiveDriver) -> None:
    link = Link.to(driver.address)
    driver.pause(["b", "a"])
    until(link, lambda: link.paused == {"a", "b"})
    driver.pause([])
    until(link, lambda: not link.paused)
    assert not link.stopped
    LiveGate(driver).close()
    late = Link.to(driver.address)
    for one in (link, late):
        until(one, lambda one=one: one.stopped)
        one.close()


def test_a_slot_knows_what_is_paused_before_its_first_step(driver: LiveDriver) -> None:
    driver.pause(["a"])
    link = Link.to(driver.address)
    link.listen(WAIT_S)
    assert link.paused == {"a"}
    link.close()


def test_who_connects_and_says_nothing_keeps_neither_slots_nor_the_end_waiting(heard: queue.Queue[Any]) -> None:
    with LiveDriver(HOST, HOST, heard.put) as driver:
        silent = socket.create_connection((HOST, driver.address.port))
        link = Link.to(driver.address)
        link.tell({"number": 1})
        assert heard.get(timeout=WAIT_S)["number"] == 1
    link.close()
    silent.close()


def test_a_slot_finds_its_driver_gone_once_that_has_ended(heard: queue.Queue[Any]) -> None:
    """The driver's process goes on, with another execution."""
    with LiveDriver(HOST, HOST, heard.put) as driver:
        link = Link.to(driver.address)
        link.tell({"number": 1})
        heard.get(timeout=WAIT_S)
        link.listen(WAIT_S)
        assert not link.lost
    until(link, lambda: link.lost)
    link.close()


def test_both_ends_notice_a_host_that_has_lost_its_power(driver: LiveDriver, heard: queue.Queue[Any]) -> None:
    """It closes no connection, so each system asks the other one's."""
    link = Link.to(driver.address)
    link.tell({"number": 1})
    heard.get(timeout=WAIT_S)
    (other,) = driver._connections
    for end in (link._connection, other):
        with socket.socket(fileno=os.dup(end.fileno())) as one:
            assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if hasattr(socket, "TCP_KEEPIDLE"):
                asks = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
                idle, interval, count = (one.getsockopt(socket.IPPROTO_TCP, option) for option in asks)
                assert idle + interval * count <= SILENT_S
    link.close()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_who_says_nothing_is_cut_off_after_a_while(heard: queue.Queue[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PROOF_S", 0.2)
    with LiveDriver(HOST, HOST, heard.put) as driver:
        link = Link.to(driver.address)
        silent = [socket.create_connection((HOST, driver.address.port), timeout=WAIT_S) for _ in range(5)]
        for one in silent:
            # What it is asked, and then the end.
            while one.recv(1024):
                pass
            one.close()
        wait_until(lambda: not driver._pending and len(driver._connections) == 1)
        link.tell({"number": 1})
        assert heard.get(timeout=WAIT_S)["number"] == 1
        link.close()


def test_no_more_than_some_may_say_nothing_at_once(heard: queue.Queue[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_PENDING", 3)
    with LiveDriver(HOST, HOST, heard.put) as driver:
        silent = [socket.create_connection((HOST, driver.address.port), timeout=WAIT_S) for _ in range(10)]
        wait_until(lambda: len(driver._pending) <= 3)
        link = Link.to(driver.address)
        link.tell({"number": 1})
        assert heard.get(timeout=WAIT_S)["number"] == 1
        link.close()
        for one in silent:
            one.close()


def test_the_driver_knows_which_slots_have_begun(driver: LiveDriver) -> None:
    links = [Link.to(driver.address, slot=slot) for slot in (2, 4)]
    wait_until(lambda: driver.begun == {2, 4})
    links[1].close()
    wait_until(lambda: driver.begun == {2})
    links[0].close()


def test_a_slot_without_a_driver_stops() -> None:
    with Listener((HOST, 0), authkey=b"key") as listener, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(listener.accept)
        link = Link.to(DriverAddress(HOST, listener.address[1], b"key"))
        accepted.result(WAIT_S).close()
        until(link, lambda: link.stopped)
        link.close()


def test_only_workers_of_the_run_may_connect(driver: LiveDriver, heard: queue.Queue[Any]) -> None:
    with pytest.raises(AuthenticationError):
        Link.to(replace(driver.address, key=b"another"))
    assert b"key" not in repr(driver.address).encode()
    link = Link.to(driver.address)
    link.tell({"number": 1})
    assert heard.get(timeout=WAIT_S) == {"number": 1}
    link.close()


def test_a_slot_has_the_drivers_clock_and_hears_when_that_is_set(
    driver: LiveDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step = tmp_path / "step"
    monkeypatch.setenv(STEP, str(step))
    link = Link.to(driver.address)
    assert link.listen(WAIT_S)
    for hours in (0, 2, -2, 0):
        step.write_text(str(hours * HOUR_MS))
        link.tell({"number": 1})
        until(link, lambda hours=hours: abs(link.now_ms() - time.time() * 1000 - hours * HOUR_MS) < HOUR_MS / 2)
    link.close()


def test_a_message_that_was_read_late_does_not_set_the_clock_back(
    driver: LiveDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Link.to(driver.address)
    link.listen(WAIT_S)
    before, clock = link.now_ms(), time.monotonic
    driver.pause(["a"])
    monkeypatch.setattr(slots.time, "monotonic", lambda: clock() + 5)
    link.listen(WAIT_S)
    assert link.paused == {"a"}
    assert link.now_ms() >= before + 5000
    link.close()


def test_leases_end_early_once_a_slot_that_has_failed_works_again(heard: queue.Queue[Any]) -> None:
    now = [0.0]
    with LiveDriver(HOST, HOST, heard.put, clock=lambda: now[0]) as driver:
        link = Link.to(driver.address)
        link.listen(WAIT_S)
        driver.renew()
        driver.failed()
        now[0] += RENEW_AFTER_S / 2
        driver.renew()
        assert driver.lease == 0
        now[0] += RENEW_AFTER_S / 2
        driver.renew()
        until(link, lambda: link.stopped)
        following, late = Link.to(driver.address, driver.lease), Link.to(driver.address, driver.lease - 1)
        assert following.listen(WAIT_S)
        assert not following.stopped
        # It belongs to the leases that have ended, and the next one waits for it.
        until(late, lambda: late.stopped)
        late.close()
        link.close()
        following.close()


def test_a_slot_that_reads_nothing_holds_up_neither_the_driver_nor_other_slots(driver: LiveDriver) -> None:
    """Its function hangs, while the driver has much to say."""
    hangs, works = Link.to(driver.address, slot=0), Link.to(driver.address, slot=1)
    wait_until(lambda: driver.begun == {0, 1})
    names = [f"a-sub-topology-with-a-long-name-{number}" for number in range(100)]

    def talk() -> None:
        for number in range(4000):
            driver.pause(names if number % 2 else [])
            works.listen()
        driver.pause(["a"])

    with ThreadPoolExecutor(1) as pool:
        pool.submit(talk).result(WAIT_S)
    # It reads what there is, and hears the newest with the answer to its report.
    hangs.listen()
    hangs.tell({"number": 1})
    for link in (hangs, works):
        until(link, lambda link=link: link.paused == {"a"})
        link.close()


def test_a_driver_that_takes_nothing_in_holds_up_no_task() -> None:
    """Its process was stopped, or its machine swaps."""
    text = "x" * 10_000
    with Listener((HOST, 0), authkey=b"key") as listener, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(listener.accept)
        link = Link.to(DriverAddress(HOST, listener.address[1], b"key"))
        connection = accepted.result(WAIT_S)
        began = time.monotonic()
        told = [link.tell({"text": text}) for _ in range(4 * MOST_WAITING)]
        assert told[0]
        assert not told[-1], "said again later"
        link.close()
        assert time.monotonic() - began < WAIT_S
        connection.close()


def test_what_waits_is_sent_before_the_end(driver: LiveDriver, heard: queue.Queue[Any]) -> None:
    link = Link.to(driver.address)
    for number in range(MOST_WAITING // 2):
        link.tell({"number": number})
    link.close()
    assert [heard.get(timeout=WAIT_S)["number"] for _ in range(MOST_WAITING // 2)] == list(range(MOST_WAITING // 2))


def test_a_message_without_measure_is_left_out(
    driver: LiveDriver, heard: queue.Queue[Any], caplog: pytest.LogCaptureFixture
) -> None:
    link = Link.to(driver.address)
    assert link.tell({"sub": "s", "report": "x" * MOST_BYTES})
    link.tell({"number": 1})
    assert heard.get(timeout=WAIT_S) == {"number": 1}
    (said,) = caplog.messages
    assert said == f"a message to the driver is left out: it has {MOST_BYTES + 23} bytes (s: report)"
    link.close()


def test_secrets_stay_with_the_worker(
    driver: LiveDriver, heard: queue.Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_known", set())
    monkeypatch.setattr(secrets, "_pattern", [])
    secrets.remember({"sasl.password": "4711"})
    link = Link.to(driver.address)
    link.tell({"sub": "s", "events": [{"fields": {"reasons": ["login with 4711"]}}], "positions": [["in", 0, 4711]]})
    found = heard.get(timeout=WAIT_S)
    assert found["events"] == [{"fields": {"reasons": ["login with ********"]}}]
    assert found["positions"] == [["in", 0, 4711]]
    link.close()


def test_what_is_no_message_ends_nothing(driver: LiveDriver, heard: queue.Queue[Any]) -> None:
    with connect(driver.address) as worker:
        for data in (b"", b"{no", b"[]", b"7", b'{"number": 1}'):
            worker.send_bytes(data)
        assert [heard.get(timeout=WAIT_S) for _ in range(2)] == [[], {"number": 1}]
        assert not worker.poll(0.1), "only slots are answered"
        with pytest.raises((EOFError, OSError)):  # noqa: PT012
            worker.send_bytes(b"x" * (MOST_BYTES + 1))
            worker.recv_bytes()


def test_a_worker_connects_with_its_first_message(driver: LiveDriver, heard: queue.Queue[Any]) -> None:
    silent = Reports(lambda: pytest.fail("it has said nothing"))
    silent.close(WAIT_S)
    reports = Reports(lambda: connect(driver.address))
    reports.tell({"number": 1})
    assert heard.get(timeout=WAIT_S) == {"number": 1}
    reports.close()
    wait_until(lambda: not driver._connections)
