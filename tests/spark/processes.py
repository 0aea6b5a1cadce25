"""Applications in processes of their own, as their users start them; and what they leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from confluent_kafka import Consumer, TopicPartition

from tests.spark.harness import Harness, Read

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 400.0
END_TIMEOUT_S = 60.0


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str, log: Callable[[], str] = str) -> None:
    """Waits for something to become true."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s\n{log()}"
        time.sleep(0.1)


class Application:
    """A command in a process group of its own, as a terminal starts it.

    Args:
        command: the command line.
        folder: where its log goes.
        prefix: of its topics.
        environment: variables of its own; default: ours, and our Python for Spark.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, prefix: str, environment: Mapping[str, str] | None = None
    ) -> None:
        if environment is None:
            environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        environment = {**environment, "APPS_PREFIX": prefix}
        # A terminal's columns would wrap what the tests look for.
        environment["COLUMNS"] = "1000"
        self._log = folder / f"log-{time.monotonic_ns()}.txt"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._seen: set[psutil.Process] = set()

    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(errors="replace")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for something to become true while it runs."""
        wait_until(lambda: condition() or self.process.poll() is not None, START_TIMEOUT_S, what, self.log)
        assert condition(), f"{what}: the application has ended\n{self.log()}"

    def watch(self) -> None:
        """Remembers the processes that it has now; the number of one that has ended may be somebody else's by now."""
        if self.process.poll() is not None:
            return
        try:
            me = psutil.Process(self.process.pid)
            self._seen.update([me, *me.children(recursive=True)])
        except psutil.NoSuchProcess:
            pass

    def left_behind(self) -> list[str]:
        """Command lines of its remembered processes that still live."""
        alive = []
        for process in self._seen:
            try:
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(" ".join(process.cmdline())[:200])
            except psutil.NoSuchProcess:
                pass
        return alive

    def kill_group(self) -> None:
        """SIGKILL to the whole group: the driver and its JVM."""
        self.watch()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_java(self) -> None:
        """SIGKILL to the JVM that the driver has started, as the kernel does for want of memory."""
        self.watch()
        (java,) = [one for one in psutil.Process(self.process.pid).children() if "java" in one.name()]
        java.kill()

    def interrupt(self) -> None:
        """Ctrl-C: a terminal sends SIGINT to the whole group."""
        self.watch()
        os.killpg(self.process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """SIGTERM to the process that was started."""
        self.watch()
        self.process.terminate()

    def ended(self, timeout_s: float) -> int:
        """Waits for its end and for that of its processes; gives the exit code."""
        wait_until(lambda: self.process.poll() is not None, timeout_s, "the application has not ended", self.log)
        self.all_gone()
        return int(self.process.returncode)

    def all_gone(self) -> None:
        """Waits until none of its processes lives any more."""
        wait_until(
            lambda: not self.left_behind(), END_TIMEOUT_S, "processes are left behind", lambda: str(self.left_behind())
        )

    def close(self) -> None:
        """Ends what is left, after a failed test."""
        self.watch()
        for process in self._seen:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


@contextmanager
def streams_run(target: str, harness: Harness, folder: Path, *options: str) -> Iterator[Application]:
    """`streams run` of a harness's application in a process of its own, which ends with the block."""
    command = [str(Path(sys.executable).parent / "streams"), "run", target, "-b", harness.servers]
    place = ["-a", harness.application_id, "--base-dir", str(harness.folder)]
    settings = ["--set", "spark.ui.enabled=false", "--set", "spark.driver.memory=512m"]
    application = Application([*command, *place, *settings, *options], folder, harness.application_id)
    try:
        yield application
    finally:
        application.close()


class Follower(threading.Thread):
    """A read_committed consumer that reads a topic all the time, as an outside reader would."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.records: list[Read] = []
        self._finish = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "follower",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # Drills take its broker away; it is patient, and need not tell.
                "log_level": "0",
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def run(self) -> None:
        while not self._finish.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and not message.error():
                at = message.timestamp()[1]
                self.records.append(Read(message.partition(), message.offset(), at, message.key(), message.value()))
        self._consumer.close()

    def finish(self) -> list[Read]:
        """Ends the thread; gives what it has read."""
        self._finish.set()
        self.join()
        return self.records
