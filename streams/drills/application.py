"""The application under test: a separate process of `streams run` that drills start, kill and start again."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from state.restore.directory import StateDirectory
from streams.broker.processes import Guard
from streams.drills.processes import CommandProcess, own_environment

STOP_S = 150.0
FAULT, FAULT_ONCE = "STREAMS_FAULT", "STREAMS_FAULT_ONCE"
"""The variables of `state/commit/crash_points.py`."""

NO_CLUSTER = ("ClusterUnreachableError", "KafkaClientError")
"""The errors of a start while brokers are away; a running application would end with an `ApplicationFailedError`."""


class Supervised:
    """A process of `streams run` that is started again whenever a drill has ended it.

    Args:
        servers: The broker's address, through its proxy if it has one.
        folder: The folder for state, checkpoint and logs.
        target: The topology.
        application_id: The id of the application.
        options: Options of `streams run` for every start.
        guard: Ends what is left if this process dies.

    Attributes:
        base: The base folder of state and checkpoint.
        state: The folder of the local stores.
        checkpoint: The folder of Spark's checkpoints.
        starts: The number of starts.
        died: The last log lines of unexpected ends.
        may_end: Whether it may have lost against another driver, whose files it finds in its checkpoint.
    """

    def __init__(
        self, servers: str, folder: Path, target: str, application_id: str, options: Sequence[str], guard: Guard
    ) -> None:
        self._guard = guard
        self.servers, self._folder = servers, folder
        self.target, self.id, self.options = target, application_id, tuple(options)
        self.base = folder / "var"
        self.state, self.checkpoint = self.base / "state", self.base / "checkpoint" / application_id
        self.starts = 0
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
        self.starts += 1

    def another(
        self, *options: str, faults: str = "", target: str = "", environment: Mapping[str, str] | None = None
    ) -> CommandProcess:
        """Starts another driver with the same settings, unless `options` or `target` say otherwise."""
        command = [sys.executable, "-m", "streams", "run", target or self.target, "--continuous"]
        common = ["-a", self.id, "-b", self.servers, "--base-dir", str(self.base)]
        spark = ["spark.ui.enabled=false", "spark.driver.memory=512m", "spark.master=local[2,4]"]
        settings = ["transaction_timeout_ms=20000", *spark]
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
        """Process and crash point (`POINT@TASK:VERSION`) of the faults that have happened, in order."""
        if not self.happened_file.exists():
            return []
        # A line is complete once it ends; the writer may be in the middle of it.
        lines = self.happened_file.read_text().split("\n")[:-1]
        return [(int(pid), fault) for pid, _, fault in (line.partition(" ") for line in lines)]

    def revive(self) -> bool:
        """Restarts the application if it has ended by itself; notes an unexpected end, and returns whether it was one."""
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
        self.current.watch()
        self.current.close()
        self.current.all_gone()

    def stop(self) -> int:
        """Stops the application by SIGTERM, as an operator does; returns its exit code."""
        self.current.terminate()
        return self.current.ended(STOP_S)

    def logged(self, text: str) -> list[str]:
        """The lines with a text in the output of all starts."""
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
