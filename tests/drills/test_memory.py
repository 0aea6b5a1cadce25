"""The limit on workers' memory: where the kernel enforces it, a process that uses too much is killed, and counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from streams.drills.cases.machine import ControlGroup, Watcher, limit_of_workers

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
