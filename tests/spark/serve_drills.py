"""`make serve-drills`: what happens to processes that serve while clients read: a host lost, a large restore, a rescale, brokers
that are away.

Too long for `make test`, which has the drill of a killed process and the parts of these (`tests/serve`). In each of them no read
may fail while another copy lives, and no answer may be older than it says. SERVE_DRILL_ROWS is the number of rows of the restore.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import orjson
import pytest

from state.kafka.key_hash import partition_for_key
from streams.broker import EmbeddedBroker
from streams.broker.processes import Watchdog
from streams.drills.brokers import scratch_broker
from streams.drills.hosts import BROKER, CENTRE, NAMES, PREFIX, NamespaceHost, own_network, python_path, why_not
from streams.drills.processes import CommandProcess
from tests.spark import apps
from tests.spark.harness import Harness, Sent
from tests.spark.live import eventually
from tests.spark.processes import streams_run
from tests.spark.serving import (
    HEADERS,
    KEYS,
    TASKS,
    TOKEN,
    Servers,
    Written,
    clients,
    get,
    has_all,
    has_begun,
    is_well,
    lose,
)

ROWS = int(os.environ.get("SERVE_DRILL_ROWS", "10000000"))
AFTER_RESCALE = 3
_PART = 100_000


class OnHosts(Servers):
    """Processes on hosts of their own, and one beside the broker."""

    hosts: dict[str, NamespaceHost]

    def start(self, *options: str, port: int = 8080) -> str:
        """Starts the process beside the broker."""
        return self._started(CENTRE, port, options, lambda command, own: CommandProcess(command, own))

    def start_on(self, host: NamespaceHost) -> str:
        """Starts the process of a host."""

        def run(command: list[str], own: Path) -> CommandProcess:
            host.run(command, {"PYTHONPATH": python_path(), "SPARK_LOCAL_IP": host.address})
            return host.command

        url = self._started(host.address, 8080, ("--dir", str(host.inside / "copies")), run)
        self.hosts[url] = host
        return url

    def _started(self, address: str, port: int, options, run) -> str:
        own = self.folder / f"serve-{address}"
        own.mkdir()
        tokens = own / "tokens"
        tokens.write_text(f"{TOKEN} admin\n")
        tokens.chmod(0o600)
        command = self.command(f"{address}:{port}", own, "--token-file", str(tokens), *options)
        url = f"http://{address}:{port}"
        self.processes[url] = run(command, own)
        return url


@pytest.mark.timeout(1800)
def test_no_read_fails_while_the_host_of_a_key_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut: nobody refuses a connection to the host, there is no answer any more."""
    if reason := why_not():
        pytest.skip(reason)
    with ExitStack() as stack:
        stack.enter_context(own_network())
        guard = stack.enter_context(Watchdog())
        _, proxy = stack.enter_context(scratch_broker(tmp_path / "broker", 1, {}, BROKER))
        assert proxy is not None, "one broker is behind a proxy"
        harness = Harness(proxy.bootstrap_servers, None, tmp_path / "app", "host-lost")
        harness.folder.mkdir()
        source, counts, sums = harness.topic("in", TASKS), harness.topic("counts", TASKS), harness.topic("sums", TASKS)
        monkeypatch.setenv(apps.BLOCKS, f"{source} {counts} {sums}")
        monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        servers = OnHosts(harness, tmp_path / "serve")
        servers.folder.mkdir()
        servers.hosts = {}
        stack.enter_context(streams_run("tests.spark.apps:blocks", harness, tmp_path, "--set", "execution=live"))
        eventually(lambda: has_begun(harness), "the application has begun")
        stack.callback(servers.close)
        hosts = [
            NamespaceHost(name, f"{PREFIX}1{number}", tmp_path / "hosts", guard) for number, name in enumerate(NAMES, 1)
        ]
        for host in hosts:
            stack.callback(host.end)
        shared = [servers.start_on(host) for host in hosts]
        lose(servers, shared, servers.start("--group", "whole"), source, lambda url: servers.hosts[url].lose())


# A copy of many rows that is restored, and an application that gets another number of tasks: what is read is known.


def send_many(harness: Harness, topic: str, rows: int) -> None:
    """A row for each number, whose value is the number."""
    now = int(time.time() * 1000)
    for first in range(0, rows, _PART):
        harness.send(topic, (Sent(b"%d" % n, orjson.dumps(n), now) for n in range(first, min(first + _PART, rows))))


@contextmanager
def reading(urls: list[str], rows: int, away: set[str]) -> Iterator[dict[str, int]]:
    """Reads keys of all processes that are not away, and counts who has answered whom; no read may fail."""
    ended, failed, nodes = threading.Event(), list[str](), dict[str, int]()

    def read() -> None:
        http, chosen = httpx2.Client(timeout=60, headers=HEADERS), random.Random(1)
        while not ended.is_set():
            for url in urls:
                key = chosen.randrange(rows)
                try:
                    answer = http.get(f"{url}/v1/stores/rows/keys/{key}")
                except httpx2.TransportError as error:
                    if url not in away:
                        failed.append(f"{url}: {error!r}")
                    continue
                if answer.status_code != 200 or answer.json()["value"] != key:
                    failed.append(f"{url}: {key}: {answer.status_code} {answer.text}")
                by = f"{url} by {answer.headers.get('streams-node', 'itself')}"
                nodes[by] = nodes.get(by, 0) + 1

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield nodes
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)
    print(nodes)
    assert not failed, failed[:5]


class OfRows(Servers):
    """Processes that serve the table of rows."""

    def command(self, http: str, own: Path, *options: str) -> list[str]:
        """The command line of a process."""
        return ["tests.spark.apps:rows" if "apps:" in part else part for part in super().command(http, own, *options)]


@pytest.mark.timeout(7200)
def test_no_read_fails_while_a_large_copy_is_restored(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = harness.topic("in", TASKS)
    monkeypatch.setenv(apps.ROWS, source)
    send_many(harness, source, ROWS)
    harness.run(apps.rows(), max_records_per_trigger=1_000_000)
    servers, away = OfRows(harness, tmp_path), set[str]()
    with ExitStack() as stack:
        stack.callback(servers.close)
        lost, kept = servers.start("--group", "one"), servers.start("--group", "two")
        for url in (lost, kept):
            servers.processes[url].wait_until(lambda url=url: is_well(url) and has_all(url), "it has all rows", 3000)
        nodes = stack.enter_context(reading([lost, kept], ROWS, away))
        away.add(lost)
        servers.processes[lost].kill_group()
        port = int(lost.rpartition(":")[2])
        shutil.rmtree(servers.folder_of(port) / "copies")
        began = time.monotonic()
        servers.start("--group", "one", port=port)
        eventually(lambda: answers(lost), "it answers again", 200)
        before = nodes.get(f"{lost} by {kept}", 0)
        away.clear()
        eventually(lambda: has_all(lost), "its copies are restored", 3000)
        print(f"{ROWS} rows restored in {time.monotonic() - began:.0f} s")
        assert nodes.get(f"{lost} by {kept}", 0) > before, f"nothing was read of it during the restore: {nodes}"


def answers(url: str) -> bool:
    """Whether a process answers at all, with rows of its own or of others."""
    try:
        return get(f"{url}/v1/stores/rows/keys/1").status_code == 200
    except httpx2.TransportError:
        return False


@pytest.mark.timeout(1800)
def test_no_read_fails_while_an_application_is_rescaled(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old copies answer until their processes are started again, one after the other."""
    source, counts, sums = harness.topic("in", TASKS), harness.topic("counts", TASKS), harness.topic("sums", TASKS)
    monkeypatch.setenv(apps.BLOCKS, f"{source} {counts} {sums}")
    servers, written = Servers(harness, tmp_path), Written(source)
    offsets = dict.fromkeys(range(TASKS), 0)

    def write() -> None:
        """A record for each key, which the application then counts."""
        records = []
        for key in KEYS:
            place = partition_for_key(key.encode(), TASKS)
            harness.send(source, [Sent(key.encode(), b"1", int(time.time() * 1000))])
            records.append((key, {"offset": offsets[place]}))
            offsets[place] += 1
        harness.run(apps.blocks())
        for key, record in records:
            written.wrote(key, record, len(written.of(key)) + 1)

    write()
    with ExitStack() as stack:
        stack.callback(servers.close)
        # Each shares the tasks of its group with nobody: there are two copies of all.
        urls = [servers.start("--group", name) for name in ("one", "two")]
        for url in urls:
            servers.processes[url].wait_until(lambda url=url: is_well(url) and has_all(url), "it serves", 200)
        progress = stack.enter_context(clients(urls, written, writes=False))
        progress()
        command = [sys.executable, "-m", "streams", "rescale", "tests.spark.apps:blocks", "--tasks", str(AFTER_RESCALE)]
        where = ["-a", harness.application_id, "-b", harness.servers, "--base-dir", str(harness.folder)]
        stopped = CommandProcess([*command, *where, "--yes"], tmp_path)
        stopped.until_end(lambda: False, 300, "the rescale ends")
        assert stopped.process.returncode == 0, stopped.log()
        progress()
        write()
        progress()
        for url in urls:
            assert [one["tasks"] for one in get(f"{url}/v1/metadata").json()["copies"]] == [TASKS] * TASKS
        for name, url in zip(("one", "two"), urls, strict=True):
            written.killed = url
            servers.processes[url].kill_group()
            progress()
            servers.start("--group", name, port=int(url.rpartition(":")[2]))
            eventually(lambda url=url: is_well(url) and has_all(url, AFTER_RESCALE), "it has the new tasks")
            written.killed = ""
            progress()
        write()
        progress()
        for key in KEYS:
            assert get(f"{urls[0]}/v1/stores/counts/keys/{key}", consistency="latest", wait="30s").json()["value"] == 3


_AWAY_S = 20.0
"""Longer than the group waits for a member (`SESSION`)."""


@pytest.mark.timeout(1800)
def test_no_read_fails_while_brokers_are_away_and_a_task_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one copy of each task. Its process loses it with the brokers, and gets it back; then another process joins."""
    with EmbeddedBroker(tmp_path / "broker", die_with_parent=True) as broker, ExitStack() as stack:
        harness = Harness(broker.bootstrap_servers, None, tmp_path / "app", "brokers-away")
        harness.folder.mkdir()
        source, rows = harness.topic("in", TASKS), 1000
        monkeypatch.setenv(apps.ROWS, source)
        send_many(harness, source, rows)
        with streams_run("tests.spark.apps:rows", harness, tmp_path, "--available-now") as run:
            run.until_end(lambda: False, 300, "the application ends")
        servers = OfRows(harness, tmp_path)
        stack.callback(servers.close)

        def age_s() -> float:
            answer = get(f"{first}/v1/stores/rows/keys/1")
            assert answer.status_code == 200, answer.text
            return int(answer.headers["streams-age-ms"]) / 1000

        first = servers.start()
        eventually(lambda: is_well(first) and has_all(first), "it serves")
        with reading([first], rows, set()):
            broker.kill()
            eventually(lambda: age_s() > _AWAY_S, "it is cut off for long enough")
            broker.start()
            eventually(lambda: age_s() < 1, "it follows again")
            second = servers.start()
            eventually(lambda: is_well(second) and has_all(second, 1) and has_all(first, 1), "the task has moved")
