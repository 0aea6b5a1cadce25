"""Commands in processes of their own, as users start them; which processes they start, and whether all of these end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from streams.drills.failure import DrillFailed

START_TIMEOUT_S = 400.0
END_TIMEOUT_S = 60.0
_DAEMON_MODULE = "streams.spark.daemon"


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str, log: Callable[[], str] = str) -> None:
    """Waits until a condition is true.

    Raises:
        DrillFailed: The condition is still false after the timeout; with `what` and the log.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            raise DrillFailed(f"{what}: not within {timeout_s:g} s\n{log()}".strip())
        time.sleep(0.1)


def own_environment() -> dict[str, str]:
    """The variables of this process, with its Python for Spark."""
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


class CommandProcess:
    """A command in a process group of its own, as a terminal starts it.

    Args:
        command: The command line.
        folder: Where its log goes.
        environment: All variables; default: `own_environment`.
        cwd: Its working directory; default: that of this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        # A terminal's columns would wrap what is looked for in the log.
        variables = {**(own_environment() if environment is None else environment), "COLUMNS": "1000"}
        _hear_interrupts()
        self._log = folder / f"log-{time.monotonic_ns()}.txt"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env=variables,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._seen: set[psutil.Process] = set()

    @property
    def running(self) -> bool:
        """Whether the command has not ended yet."""
        return self.process.poll() is None

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def last_words(self) -> str:
        lines = [line for line in self.log().splitlines() if line.strip()]
        return lines[-1] if lines else "(nothing was said)"

    def end(self) -> str:
        """How it has ended: the exit code (-11: by signal 11), and the last line of the output."""
        return f"exit code {self.process.poll()}, {self.last_words()}"

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Waits until a condition is true while the command runs.

        Raises:
            DrillFailed: The command has ended before, or the timeout is over.
        """
        wait_until(lambda: condition() or not self.running, timeout_s, what, self.log)
        if not condition():
            raise DrillFailed(f"{what}: the application has ended\n{self.log()}")

    def watch(self) -> None:
        """Remembers the present processes of the command; the id of one that has ended may be another process's by now."""
        if not self.running:
            return
        with suppress(psutil.NoSuchProcess):
            me = psutil.Process(self.process.pid)
            self._seen.update([me, *me.children(recursive=True)])

    def left_behind(self) -> list[str]:
        """Command lines of remembered processes that are still alive."""
        alive = []
        for process in self._seen:
            with suppress(psutil.NoSuchProcess):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(" ".join(process.cmdline())[:200])
        return alive

    def kill_group(self) -> None:
        """Sends SIGKILL to the whole group: the driver and its JVM."""
        self.watch()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        """Sends SIGSTOP to driver, JVM and workers, as on a machine that stalls."""
        self.watch()
        for process in self._seen:
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        """Sends SIGCONT to all remembered processes."""
        for process in self._seen:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def java(self) -> list[psutil.Process]:
        """The JVM that the driver has started; empty before and after."""
        with suppress(psutil.NoSuchProcess):
            return [one for one in psutil.Process(self.process.pid).children() if "java" in one.name()]
        return []

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers, oldest first."""
        return sorted(python_workers(self.process.pid), key=lambda process: process.pid)

    def kill_java(self) -> None:
        """Sends SIGKILL to the JVM alone, as the kernel does for want of memory."""
        self.watch()
        for process in self.java():
            process.kill()

    def interrupt(self) -> None:
        """Sends SIGINT to the whole group, as a terminal does on Ctrl-C."""
        self.watch()
        os.killpg(self.process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """Sends SIGTERM to the process that was started."""
        self.watch()
        self.process.terminate()

    def ended(self, timeout_s: float) -> int:
        """Waits for the end of the command and of all its processes; returns the exit code."""
        wait_until(lambda: not self.running, timeout_s, "the application has not ended", self.log)
        self.all_gone()
        return int(self.process.returncode)

    def all_gone(self) -> None:
        """Waits until none of the remembered processes is alive."""
        wait_until(
            lambda: not self.left_behind(), END_TIMEOUT_S, "processes are left behind", lambda: str(self.left_behind())
        )

    def close(self) -> None:
        self.watch()
        for process in self._seen:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


def _hear_interrupts() -> None:
    """Lets the processes started from now on receive Ctrl-C.

    What a script starts in the background (`… &`, `nohup`) ignores SIGINT, and so does everything that it starts in turn.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def python_workers(pid: int) -> list[psutil.Process]:
    """The processes forked by Spark's Python daemon below a process, which run the sources and the tasks."""
    try:
        descendants = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    daemons = {process.pid for process in descendants if _is_daemon(process)}
    # The daemon's forks have the same command line as the daemon, but a daemon as their parent.
    return [process for process in descendants if process.pid in daemons and _parent(process) in daemons]


def _is_daemon(process: psutil.Process) -> bool:
    try:
        return _DAEMON_MODULE in process.cmdline()
    except psutil.Error:
        return False


def _parent(process: psutil.Process) -> int | None:
    try:
        parent: int = process.ppid()
        return parent
    except psutil.Error:
        return None
