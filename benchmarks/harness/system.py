"""The system under test: a peer as a process group of its own, or the engine inside this process (for smoke tests)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from benchmarks.harness.peers import ROOT, Peer
from benchmarks.workloads.base import RunConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_S = 30.0
NOT_SUPPORTED = 64
"""The exit code by which a peer says that it cannot run a workload."""
_SHOWN_LINES = 30


class SystemFailedError(Exception):
    """The system under test has ended although nobody has stopped it."""


class NotSupportedError(Exception):
    """The system under test says that it cannot run this workload."""


class System(Protocol):
    """A system under test."""

    def start(self) -> None:
        """Starts it."""

    @property
    def root(self) -> int | None:
        """The id of its first process; None: this process."""

    def check(self) -> None:
        """Raises `SystemFailedError` or `NotSupportedError` if it has ended."""

    def stop(self) -> None:
        """Stops it in an orderly way."""

    def kill(self) -> None:
        """Ends all its processes at once, as a crash of the host would."""

    def said(self, word: str) -> Mapping[str, float] | None:
        """The figures of the last line of its log that begins with a word: `RESTORED {"seconds": 1.5}`; None: there is none."""


class ProcessSystem:
    """A peer as processes.

    Args:
        peer: The peer.
        config: The run.
        folder: Where configuration file and log go.
        environment: Further environment variables.
    """

    def __init__(self, peer: Peer, config: RunConfig, folder: Path, environment: dict[str, str] | None = None) -> None:
        self._peer = peer
        self._config = config
        self._folder = folder
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def start(self) -> None:
        """Starts the peer's command."""
        self._folder.mkdir(parents=True, exist_ok=True)
        Path(self._config.state_dir).mkdir(parents=True, exist_ok=True)
        path = self._folder / "run.json"
        path.write_text(json.dumps(asdict(self._config), indent=2), encoding="utf-8")
        environment = {**os.environ, "BENCHMARK_CONFIG": str(path), **self._environment}
        self._log = (self._folder / "log.txt").open("ab")
        self._process = subprocess.Popen(
            self._peer.command_line(path),
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def root(self) -> int:
        """The id of the peer's first process."""
        assert self._process is not None, "not started"
        return self._process.pid

    def check(self) -> None:
        """Raises if the peer has ended."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return
        lines = self._lines()
        if code == NOT_SUPPORTED:
            raise NotSupportedError(lines[-1] if lines else "it does not say why")
        shown = "\n".join(f"  {line}" for line in lines[-_SHOWN_LINES:])
        raise SystemFailedError(f"{self._peer.name} has ended with exit code {code}; the end of its log:\n{shown}")

    def stop(self) -> None:
        """SIGTERM; after `STOP_S` seconds the whole group is killed, and so is whatever the first process has left behind."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._process = None
        if self._log is not None:
            self._log.close()

    def kill(self) -> None:
        """SIGKILL to the whole group."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def said(self, word: str) -> Mapping[str, float] | None:
        """The figures of the last line of the log that begins with the word."""
        lines = [line for line in self._lines() if line.startswith(f"{word} ")]
        found: Mapping[str, float] | None = json.loads(lines[-1].removeprefix(word)) if lines else None
        return found

    def _lines(self) -> list[str]:
        return (self._folder / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.root, number)
        except (ProcessLookupError, PermissionError):
            return


class SessionSystem:
    """The engine inside this process, in a Spark session that many runs share; its figures are not worth much.

    Args:
        config: The run.
        spark: The session.
    """

    root = None

    def __init__(self, config: RunConfig, spark: SparkSession) -> None:
        from benchmarks.peers.streams.main import settings_of
        from benchmarks.workloads.catalogue import WORKLOADS
        from streams import KafkaStreams

        self._spark = spark
        self._make: Callable[[], KafkaStreams] = lambda: KafkaStreams(
            WORKLOADS[config.workload].topology(config), settings_of(config)
        )
        self._streams: KafkaStreams | None = None

    def start(self) -> None:
        """Starts the application in a thread."""
        self._streams = self._make().start(self._spark)

    def check(self) -> None:
        """Raises the application's error, if it has ended with one."""
        if self._streams is not None and self._streams.await_termination(0):
            raise SystemFailedError("the application has ended")

    def stop(self) -> None:
        """Stops the application."""
        if self._streams is not None:
            self._streams.stop()
            self._streams.await_termination()
            self._streams = None

    def kill(self) -> None:
        """Stops the application: its processes are the test's own."""
        self.stop()

    def said(self, word: str) -> Mapping[str, float] | None:
        """Nothing."""
        return None
