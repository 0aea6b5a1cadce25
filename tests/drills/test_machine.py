"""The limit on workers' memory: where the kernel enforces it, a process that uses too much is killed, and counted."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from streams.broker.processes import Watchdog
from streams.drills import hosts as network
from streams.drills.cases.machine import ControlGroup, Watcher, limit_of_workers
from streams.drills.drill import DrillFailed, NotPossibleHere
from streams.drills.hosts import LoopbackHost, NamespaceHost
from streams.drills.processes import CommandProcess

EATER = (
    "import sys; kept = bytearray(b'x' * (64 << 20)); print('there', flush=True); sys.stdin.read(1); kept = kept + kept"
)


def test_a_process_that_needs_more_than_the_limit_is_killed_and_counted(tmp_path: Path) -> None:
    children: list[psutil.Process] = []
    with limit_of_workers(tmp_path, lambda: children) as limit:
        eater = subprocess.Popen([limit.python, "-c", EATER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        children.append(psutil.Process(eater.pid))
        assert eater.stdout is not None
        assert eater.stdin is not None
        assert eater.stdout.readline() == b"there\n"
        assert limit.killed == 0
        limit.lower()
        eater.stdin.write(b"x")
        eater.stdin.close()
        assert eater.wait(60) == -signal.SIGKILL
        assert limit.killed >= 1
        limit.lift()


def test_a_group_is_removed_with_processes_in_it_which_go_on(tmp_path: Path) -> None:
    with limit_of_workers(tmp_path, list) as limit:
        if not isinstance(limit, ControlGroup):
            pytest.skip("no control group with a memory limit can be made here")
        member = subprocess.Popen([limit.python, "-c", "input()"], stdin=subprocess.PIPE)
    assert member.poll() is None
    assert f"streams-drill-{os.getpid()}" not in Path(f"/proc/{member.pid}/cgroup").read_text()
    member.communicate(b"\n")
    assert member.returncode == 0
    # The script is still the application's Python then.
    assert subprocess.run([limit.python, "-c", "pass"], check=False).returncode == 0


def test_a_watcher_ends_the_largest_worker() -> None:
    small = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    large = subprocess.Popen([sys.executable, "-c", EATER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert large.stdout is not None
    assert large.stdout.readline() == b"there\n"
    watcher = Watcher(lambda: [psutil.Process(small.pid), psutil.Process(large.pid)])
    watcher.lower()
    assert (large.wait(10), watcher.killed) == (-signal.SIGKILL, 1)
    assert small.poll() is None
    small.communicate(b"\n")


# --- Drills interrupt what they start, even where they were started so that they ignore Ctrl-C themselves.


@pytest.fixture(params=["terminal", "background of a script"])
def started_from(request: pytest.FixtureRequest):
    before = signal.getsignal(signal.SIGINT)
    if request.param != "terminal":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("started_from")
def test_a_command_can_be_interrupted(tmp_path: Path) -> None:
    process = CommandProcess([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], tmp_path)
    try:
        process.wait_until(lambda: "up" in process.log(), "it is up", 30)
        process.interrupt()
        assert process.ended(20) != 0
        assert "KeyboardInterrupt" in process.log()
    finally:
        process.close()


# --- Hosts of drills: each sees only its own disk, they reach each other, faults hit one of them, and nothing is left behind.

needs_namespaces = pytest.mark.skipif(bool(network.why_not()), reason=network.why_not() or "namespaces work")
REACHES = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2).close()
    print("reached")
except OSError:
    print("not reached")
"""


@pytest.fixture
def guard() -> Iterator[Watchdog]:
    with Watchdog() as one:
        yield one


def namespace() -> str:
    return os.readlink("/proc/thread-self/ns/net")


def inside(host: NamespaceHost, *command: str) -> str:
    """The output of a command on a host."""
    pid = str(host.command.process.pid)
    spaces = ["nsenter", "--target", pid, "--net", "--mount", "--uts"]
    return subprocess.run([*spaces, *command], check=True, capture_output=True, text=True).stdout.strip()


def reaches(host: NamespaceHost, address: str, port: int) -> bool:
    return inside(host, sys.executable, "-S", "-c", REACHES, address, str(port)) == "reached"


@needs_namespaces
def test_hosts_have_a_name_a_network_and_a_disk_of_their_own_and_leave_nothing_behind(
    tmp_path: Path, guard: Watchdog
) -> None:
    before = namespace()
    with ExitStack() as stack:
        stack.enter_context(network.own_network())
        assert namespace() != before
        hosts = [NamespaceHost(f"host-{n}", f"{network.PREFIX}1{n}", tmp_path, guard) for n in (1, 2)]
        for host in hosts:
            stack.callback(host.end)
            host.run(["sh", "-c", f"echo {host.name} > {host.inside}/mine; echo written; exec sleep 600"], {})
            host.command.wait_until(lambda host=host: "written" in host.command.log(), "the command runs", 30)
        first, second = hosts
        listener = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        port = listener.getsockname()[1]
        assert inside(first, "hostname") == "host-1"
        assert inside(first, "cat", f"{first.inside}/mine") == "host-1"
        assert inside(second, "cat", f"{second.inside}/mine") == "host-2"
        assert inside(first, "sh", "-c", f"ls {tmp_path}/hosts") == "", "the disks of the others are hidden"
        assert reaches(first, network.CENTRE, port)
        assert reaches(first, network.BROKER, port)
        first.cut_off(network.BROKER)
        assert not reaches(first, network.BROKER, port)
        assert reaches(first, network.CENTRE, port), "only this address is cut off"
        assert reaches(second, network.BROKER, port), "only this host is cut off"
        first.connect_again(network.BROKER)
        assert reaches(first, network.BROKER, port)
        ran = psutil.Process(second.command.process.pid).children(recursive=True)
        assert ran
        second.lose()
        assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in ran)
        assert not second.disk.exists()
        second.run(["sleep", "600"], {})
        assert inside(second, "ls", str(second.inside)) == "joined", "it comes back empty"
    assert namespace() == before
    assert network.BRIDGE not in subprocess.run(["ip", "link"], check=True, capture_output=True, text=True).stdout


@needs_namespaces
def test_a_failed_command_says_so(tmp_path: Path) -> None:
    before = namespace()
    with pytest.raises(DrillFailed, match="ip link set nothing up"), network.own_network():
        network.ip("link", "set", "nothing", "up")
    assert namespace() == before


def test_without_namespaces_a_host_has_an_address_and_a_folder_and_cannot_be_cut_off(
    tmp_path: Path, guard: Watchdog
) -> None:
    host = LoopbackHost("host-a", "127.0.0.11", tmp_path, guard)
    host.run(["sh", "-c", "echo $SPARK_LOCAL_IP; exec sleep 600"], {})
    try:
        host.command.wait_until(lambda: "127.0.0.11" in host.command.log(), "the command starts", 30)
        with pytest.raises(NotPossibleHere, match="cannot be cut off"):
            host.cut_off("127.0.0.1")
    finally:
        host.lose()
    assert not host.running
    assert not host.disk.exists()
