"""Commands in separate processes, as users start them; the processes that they start, and whether all of these end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from state.restore.directory import StateDirectory
from streams.broker.processes import Watchdog
from streams.drills.drill import DrillFailed

START_TIMEOUT_S = 400.0
END_TIMEOUT_S = 60.0
_DAEMON_MODULE = "streams.engine.spark.daemon"


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str, log: Callable[[], str] = str) -> None:
    """Waits until a condition is true."""
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
        folder: The folder for its log.
        environment: All variables; default: `own_environment`.
        cwd: Its working directory; default: the one of this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        # A terminal's width would wrap the lines that drills look for in the log.
        variables = {**(own_environment() if environment is None else environment), "COLUMNS": "1000"}
        _hear_interrupts()
        self._log = folder / f"log-{time.monotonic_ns()}.txt"
        with self._log.open("wb") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self.process = subprocess.Popen(command, cwd=cwd, env=variables, start_new_session=True, **streams)  # type: ignore[call-overload]
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
        """How the command ended: the exit code (-11: by signal 11), and the last line of its output."""
        return f"exit code {self.process.poll()}, {self.last_words()}"

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Waits until a condition is true while the command runs."""
        if not self.until_end(condition, timeout_s, what):
            raise DrillFailed(f"{what}: the application has ended\n{self.log()}")

    def until_end(self, condition: Callable[[], bool], timeout_s: float, what: str) -> bool:
        """Waits until a condition is true, or the command has ended; returns whether it was true at the last look.

        Each check asks it once, because it may be false again a moment later, like the health of a process that is getting its
        tasks. It is asked once more after the command has ended, because it may have become true just before.
        """
        met = False

        def is_over() -> bool:
            nonlocal met
            ended = not self.running
            met = condition()
            return met or ended

        wait_until(is_over, timeout_s, what, self.log)
        return met

    def watch(self) -> None:
        """Remembers the current processes of the command, because the id of one that has ended may be given to another process."""
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
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Sends SIGCONT to all remembered processes."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        for process in self._seen:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def java(self) -> list[psutil.Process]:
        """The JVM that the driver has started; empty while there is none."""
        with suppress(psutil.NoSuchProcess):
            return [one for one in psutil.Process(self.process.pid).children() if "java" in one.name()]
        return []

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers, oldest first."""
        return sorted(python_workers(self.process.pid), key=lambda process: process.pid)

    def kill_java(self) -> None:
        """Sends SIGKILL to the JVM alone, as the kernel does when memory runs out."""
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
        """Sends SIGKILL to all processes of the command."""
        self.watch()
        self._send(signal.SIGKILL)
        self.process.wait()


def _hear_interrupts() -> None:
    """Lets the processes started from now on receive Ctrl-C.

    A command that a script starts in the background (`… &`, `nohup`) ignores SIGINT, and so do all processes that it starts.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def python_workers(pid: int) -> list[psutil.Process]:
    """The processes that Spark's Python daemon has forked below a process; they run the sources and the tasks."""
    try:
        descendants = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    daemons = {process.pid for process in descendants if runs(process, _DAEMON_MODULE)}
    # The daemon's forks have the same command line as the daemon, but their parent is a daemon.
    return [process for process in descendants if process.pid in daemons and _parent(process) in daemons]


def runs(process: psutil.Process, what: str) -> bool:
    """Whether a process's command line contains a word."""
    with suppress(psutil.Error):
        return what in process.cmdline()
    return False


def _parent(process: psutil.Process) -> int | None:
    with suppress(psutil.Error):
        return int(process.ppid())
    return None


# The application under test: a separate process of `streams run` that drills start, kill and start again.

STOP_S = 150.0
FAULT, FAULT_ONCE = "STREAMS_FAULT", "STREAMS_FAULT_ONCE"
"""The variables of `state/commit/crash_points.py`."""

NO_CLUSTER = ("ClusterUnreachableError", "KafkaClientError")
"""The errors with which a start fails while brokers are away; a running application ends with an `ApplicationFailedError`."""


class Supervised:
    """A process of `streams run` that is started again whenever a drill has ended it.

    Args:
        servers: The broker's address, through its proxy if it has one.
        folder: The folder for state, checkpoint and logs.
        target: The topology.
        options: Options of `streams run` for every start.
        guard: Ends the remaining processes if this one dies.

    Attributes:
        base: The base folder of state and checkpoint.
        state: The folder of the local stores.
        checkpoint: The folder of Spark's checkpoints.
        execution: The setting `execution`.
        died: The last log lines of each unexpected end.
        may_end: Whether it may end by itself, because it lost against another driver whose files are in its checkpoint.
    """

    def __init__(
        self, servers: str, folder: Path, target: str, application_id: str, options: Sequence[str], guard: Watchdog
    ) -> None:
        self._guard = guard
        self.servers, self._folder = servers, folder
        self.target, self.id, self.options = target, application_id, tuple(options)
        self.base = folder / "var"
        self.state, self.checkpoint = self.base / "state", self.base / "checkpoint" / application_id
        self.execution = "micro-batch"
        self.died: list[str] = []
        self.may_end = False
        self._all: list[CommandProcess] = []
        self._current: CommandProcess | None = None

    @property
    def current(self) -> CommandProcess:
        """The running application, or the last one."""
        assert self._current is not None, "not started yet"
        return self._current

    def start(self, *options: str, faults: str = "", environment: Mapping[str, str] | None = None) -> None:
        """Starts the application."""
        self._current = self.another(*options, faults=faults, environment=environment)

    def another(
        self, *options: str, faults: str = "", target: str = "", environment: Mapping[str, str] | None = None
    ) -> CommandProcess:
        """Starts another driver with the same settings, unless `options` or `target` say otherwise."""
        command = [sys.executable, "-m", "streams", "run", target or self.target, "--continuous"]
        common = ["-a", self.id, "-b", self.servers, "--base-dir", str(self.base)]
        spark = ["spark.ui.enabled=false", "spark.driver.memory=512m", "spark.master=local[2,4]"]
        settings = ["transaction_timeout_ms=20000", f"execution={self.execution}", *spark]
        given = [part for setting in settings for part in ("--set", setting)]
        quiet = ["--property", "log_level=0"]
        variables = {**own_environment(), **(environment or {})}
        if faults:
            self.happened_file.unlink(missing_ok=True)
            variables |= {FAULT: faults, FAULT_ONCE: str(self.happened_file)}
        started = CommandProcess([*command, *common, *quiet, *given, *self.options, *options], self._folder, variables)
        self._guard.watch(started.process.pid)
        self._all.append(started)
        return started

    @property
    def happened_file(self) -> Path:
        """The file in which processes note the crash points at which they die."""
        return self._folder / "happened"

    def happened(self) -> list[tuple[int, str]]:
        """The faults that have happened, in order: the process, and the crash point as `POINT@TASK:VERSION`."""
        if not self.happened_file.exists():
            return []
        # A line is complete once it ends; the writer may be in the middle of it.
        lines = self.happened_file.read_text().split("\n")[:-1]
        return [(int(pid), fault) for pid, _, fault in (line.partition(" ") for line in lines)]

    def revive(self) -> bool:
        """Restarts the application if it has ended by itself. Notes an unexpected end, and returns whether there was one."""
        if self.current.running:
            return False
        allowed, self.may_end = self.may_end, False
        words = self.current.last_words()
        # A start without a reachable cluster fails with an error, after which an operator starts it again.
        if not allowed and not words.startswith(NO_CLUSTER):
            self.died.append(words)
            self.start()
            return True
        self.start()
        return False

    def workers(self) -> list[psutil.Process]:
        """The application's Python workers, oldest first."""
        return self.current.workers()

    def kill_all(self) -> None:
        """Sends SIGKILL to driver, JVM and workers, and waits until all have ended."""
        self.current.close()
        self.current.all_gone()

    def stop(self) -> int:
        """Stops the application by SIGTERM, as an operator does; returns its exit code."""
        self.current.terminate()
        return self.current.ended(STOP_S)

    def logged(self, text: str) -> list[str]:
        """The lines that contain a text, from the output of all starts."""
        return [line for one in self._all for line in one.log().splitlines() if text in line]

    def delete_state(self) -> None:
        """Deletes all local stores, as if on a new machine."""
        shutil.rmtree(self.state, ignore_errors=True)

    def databases(self) -> list[Path]:
        """The folders of the tasks' databases."""
        return [task.path / "db" for task in StateDirectory(self.state).tasks(self.id) if (task.path / "db").is_dir()]

    def close(self) -> None:
        for one in self._all:
            one.close()
            self._guard.forget(one.process.pid)
