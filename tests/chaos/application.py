"""The application under blows: a process of its own that is started, killed and started again, and found dead or alive."""

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
"""What a start ends with while brokers are away; what runs already ends with an `ApplicationFailedError`, if it does."""


class Supervised:
    """Starts `streams run` again whenever a blow has ended it.

    Args:
        servers: the broker, by its proxy.
        folder: for state, checkpoint and logs.

    Attributes:
        starts: how often it was started.
        died: what it said when it ended although it should have lived.
        may_end: whether it may have lost against another driver, whose files it finds in its checkpoint.
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
        """The one that runs, or has run last."""
        assert self._current is not None, "not started yet"
        return self._current

    def start(self) -> None:
        """Starts it."""
        self._current = self.another()
        self.starts += 1

    def another(self, *options: str) -> Application:
        """One more driver with the same settings."""
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
        """Starts it again if it has ended by itself; says whether it should not have, and notes what it said."""
        if self.current.process.poll() is None:
            return False
        allowed, self.may_end = self.may_end, False
        words = last_words(self.current)
        # A start needs its cluster, and says so; whoever runs it starts it again.
        if not allowed and not words.startswith(NO_CLUSTER):
            self.died.append(words)
            self.start()
            return True
        self.start()
        return False

    def workers(self) -> list[psutil.Process]:
        """Its Python workers, oldest first."""
        return sorted(python_workers(self.current.process.pid), key=lambda process: process.pid)

    def java(self) -> list[psutil.Process]:
        """Its JVM."""
        with suppress(psutil.NoSuchProcess):
            return [one for one in psutil.Process(self.current.process.pid).children() if "java" in one.name()]
        return []

    def kill_all(self) -> None:
        """SIGKILL to driver, JVM and workers, and waits until all are gone."""
        self.current.watch()
        self.current.close()
        self.current.all_gone()

    def stop(self) -> int:
        """SIGTERM, as an operator stops it; its exit code."""
        self.current.terminate()
        return self.current.ended(STOP_S)

    def delete_state(self) -> None:
        """All local stores go, as a new machine has none."""
        shutil.rmtree(self.state, ignore_errors=True)

    def close(self) -> None:
        """Ends whatever was started."""
        for one in self._all:
            one.close()


def last_words(application: Application) -> str:
    """The last line of a log."""
    lines = [line for line in application.log().splitlines() if line.strip()]
    return lines[-1] if lines else "(nothing was said)"


def grows(count: Callable[[], int]) -> Callable[[], bool]:
    """A question whether there is more than now."""
    before = count()
    return lambda: count() > before
