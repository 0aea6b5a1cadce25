"""Runs a topology by `streams run` in a separate process, and can kill a worker of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from state.errors import StreamsError
from streams.drills.processes import python_workers

_SAMPLE_S = 0.1
_BUSY_SHARE = 0.5
# Most workers only start, or read a little; one with this much CPU time is in the middle of real work.
_WARM_CPU_S = 0.5
_STOP_TIMEOUT_S = 30.0


class RunFailedError(StreamsError):
    """The topology's process ended with an error."""


@dataclass(frozen=True)
class KilledWorker:
    """A Python worker that was killed in the middle of its work.

    Attributes:
        pid: The worker's process id.
        cpu_s: The CPU time that it had used, seconds.
    """

    pid: int
    cpu_s: float


def submit(script: Path, options: Sequence[str], kill_worker: bool = False) -> KilledWorker | None:
    """Runs a topology to its end, with its output on our standard output, so that its progress is visible.

    Args:
        script: The topology's file.
        options: Its command line options.
        kill_worker: Whether to kill (SIGKILL) one Python worker of Spark while it is busy.

    Returns:
        The killed worker; None if none was to be killed, or none was busy for long enough.

    Raises:
        RunFailedError: The topology ended with an error.
    """
    process = subprocess.Popen(command_of(script, options), env=environment())
    killer = WorkerKiller(process.pid)
    if kill_worker:
        killer.start()
    try:
        code = process.wait()
    except BaseException:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    finally:
        killer.finish()
    if code != 0:
        raise RunFailedError(f"streams run {script.name} ended with exit code {code}; what it said is above.")
    return killer.killed


def command_of(script: Path, options: Sequence[str]) -> list[str]:
    """The command line, of this Python."""
    return [sys.executable, "-m", "streams", "run", str(script), *options]


def environment() -> dict[str, str]:
    """This process's environment with its Python, so that Spark is found without an activated virtual environment."""
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


class WorkerKiller(threading.Thread):
    """Waits until a Python worker of a Spark process is busy, and kills it: once.

    Args:
        pid: Process id of the driver.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(name="worker-killer", daemon=True)
        self.killed: KilledWorker | None = None
        self._pid = pid
        self._finished = threading.Event()

    def finish(self) -> None:
        """Ends the thread, if it is running."""
        self._finished.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """Samples the workers' CPU times until one of them has been busy for most of a sample."""
        before: dict[psutil.Process, float] = {}
        while self.killed is None and not self._finished.wait(_SAMPLE_S):
            now = {worker: cpu for worker in python_workers(self._pid) if (cpu := _cpu_s(worker)) is not None}
            for worker, cpu_s in now.items():
                is_busy = worker in before and cpu_s - before[worker] >= _BUSY_SHARE * _SAMPLE_S
                if is_busy and cpu_s >= _WARM_CPU_S:
                    self._kill(worker, cpu_s)
                    break
            before = now

    def _kill(self, worker: psutil.Process, cpu_s: float) -> None:
        try:
            # psutil also compares the start time, so a process that reuses the id is not killed.
            worker.kill()
        except psutil.NoSuchProcess:
            return
        self.killed = KilledWorker(worker.pid, cpu_s)


def _cpu_s(process: psutil.Process) -> float | None:
    try:
        times = process.cpu_times()
        return float(times.user + times.system)
    except psutil.Error:
        return None
