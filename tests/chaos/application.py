"""The application under test: a separate process that is started, killed and restarted."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.spark.processes import Application
from topologies.submitted import python_workers

APPLICATION_ID = "chaos"
STOP_S = 150.0
TARGET = "tests.chaos.topology:build"
MAX_RECORDS = 2_000

NO_CLUSTER = ("ClusterUnreachableError", "KafkaClientError")
"""The errors of a start while brokers are away; a running application would end with an `ApplicationFailedError`."""


class Supervised:
    """A process of `streams run` that is restarted whenever a blow has ended it.

    Args:
        servers: The broker's address, through its proxy.
        folder: The folder for state, checkpoint and logs.

    Attributes:
        starts: The number of starts.
        died: The last log lines of unexpected ends.
        may_end: Whether it may have lost against another driver, whose files it finds in its checkpoint.
    """

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers, self._folder = servers, folder
        self.state, self.checkpoint = folder / "var" / "state", folder / "var" / "checkpoint" / APPLICATION_ID
        self.starts = 0
        self.died: list[str] = []
        self.may_end = False
        self._all: list[Application] = []
        self._current: Application | None = None

    @property
    def current(self) -> Application:
        """The running application, or the last one."""
        assert self._current is not None, "not started yet"
        return self._current

    def start(self) -> None:
        """Starts the application."""
        self._current = self.another()
        self.starts += 1

    def another(self, *options: str) -> Application:
        """Starts another driver with the same settings."""
        command = [str(Path(sys.executable).parent / "streams"), "run", TARGET, "--continuous"]
        common = ["-a", APPLICATION_ID, "-b", self._servers, "--base-dir", str(self._folder / "var")]
        spark = ["spark.ui.enabled=false", "spark.driver.memory=512m", "spark.master=local[2,4]"]
        settings = ["transaction_timeout_ms=20000", *spark]
        limit = ["--max-records-per-trigger", str(MAX_RECORDS), "--property", "log_level=0"]
        given = [part for setting in settings for part in ("--set", setting)]
        started = Application([*command, *common, *limit, *given, *options], self._folder, "")
        self._all.append(started)
        return started

    def revive(self) -> bool:
        """Restarts the application if it has ended by itself; notes an unexpected end, and returns whether it was one."""
        if self.current.process.poll() is None:
            return False
        allowed, self.may_end = self.may_end, False
        words = last_words(self.current)
        # A start without a reachable cluster fails with an error, after which an operator starts it again.
        if not allowed and not words.startswith(NO_CLUSTER):
            self.died.append(words)
            self.start()
            return True
        self.start()
        return False

    def workers(self) -> list[psutil.Process]:
        """The application's Python workers, oldest first."""
        return sorted(python_workers(self.current.process.pid), key=lambda process: process.pid)

    def java(self) -> list[psutil.Process]:
        """The application's JVM."""
        with suppress(psutil.NoSuchProcess):
            return [one for one in psutil.Process(self.current.process.pid).children() if "java" in one.name()]
        return []

    def kill_all(self) -> None:
        """Sends SIGKILL to driver, JVM and workers, and waits until all have ended."""
        self.current.watch()
        self.current.close()
        self.current.all_gone()

    def stop(self) -> int:
        """Stops the application by SIGTERM, as an operator does; returns its exit code."""
        self.current.terminate()
        return self.current.ended(STOP_S)

    def delete_state(self) -> None:
        """Deletes all local stores, as if on a new machine."""
        shutil.rmtree(self.state, ignore_errors=True)

    def close(self) -> None:
        """Ends all started processes."""
        for one in self._all:
            one.close()


def last_words(application: Application) -> str:
    """The last line of a log."""
    lines = [line for line in application.log().splitlines() if line.strip()]
    return lines[-1] if lines else "(nothing was said)"


def grows(count: Callable[[], int]) -> Callable[[], bool]:
    """A function that tells whether a count has grown since this call."""
    before = count()
    return lambda: count() > before
