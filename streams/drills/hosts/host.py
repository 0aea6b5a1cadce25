"""A host: an address, a disk of its own, and one command with all that it starts.

`NamespaceHost` has a network, a name, a file system and processes of its own: of all hosts' disks it sees only its own, at the
same path as each other host, and ending it ends everything on it. `LoopbackHost` is for machines without namespaces: another
loopback address, and a folder of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from state.restore.directory import StateDirectory, TaskDirectory
from streams.broker.processes import Guard
from streams.drills.failure import NotPossibleHere
from streams.drills.hosts import network
from streams.drills.processes import CommandProcess, own_environment, python_workers

DISKS, DISK = "hosts", "disk"
"""Folders of a world: the hosts' disks, and where each host finds its own one."""
_READY_S = 30.0
_START = """\
hostname "$1" && mkdir -p "$3" && mount --bind "$2" "$3" && mount -t tmpfs hidden "$4" && mount --bind "$5" /etc/hosts || exit 1
echo ready
until [ -e "$3/joined" ]; do sleep 0.05; done
shift 5
"$@" &
wait $!
"""
"""Runs as the first process of a host: hides the other disks, waits for the network, and starts the command."""


class LoopbackHost:
    """A host that is only a loopback address and a folder.

    Args:
        name: Its name.
        address: Its address.
        world: The folder of the drill.
        guard: Ends what is left if this process dies.

    Attributes:
        disk: Its disk, as seen from outside.
    """

    def __init__(self, name: str, address: str, world: Path, guard: Guard) -> None:
        self.name, self.address = name, address
        self.disk = world / DISKS / name
        self._world, self._guard = world, guard
        self._started: CommandProcess | None = None
        self._others: list[CommandProcess] = []

    @property
    def command(self) -> CommandProcess:
        """The command of the running host."""
        assert self._started is not None, "the host was not started, or has ended"
        return self._started

    @property
    def inside(self) -> Path:
        """Where processes on the host find its disk."""
        return self.disk

    @property
    def _variables(self) -> Mapping[str, str]:
        """What tells Spark which host this is."""
        return {"SPARK_LOCAL_IP": self.address, "SPARK_LOCAL_HOSTNAME": self.address}

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts the host with its command."""
        self.disk.mkdir(parents=True, exist_ok=True)
        variables = {**own_environment(), **self._variables, **environment}
        self._started = CommandProcess(self._line(command), self._world, variables)
        self._guard.watch(self._started.process.pid)
        self._join()

    def also_run(self, command: Sequence[str]) -> CommandProcess:
        """Starts another command on the host, which ends with it."""
        started = CommandProcess(self._there(command), self._world)
        self._guard.watch(started.process.pid)
        self._others.append(started)
        return started

    def _line(self, command: Sequence[str]) -> list[str]:
        return list(command)

    def _there(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a command on the running host."""
        return list(command)

    def _join(self) -> None:
        """Connects the host to the network."""

    def tasks(self, application_id: str) -> list[TaskDirectory]:
        """The folders of tasks' state on this host, trusted or not."""
        return list(StateDirectory(self.disk / "state").tasks(application_id))

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers on this host."""
        return python_workers(self.command.process.pid)

    def executors(self) -> list[psutil.Process]:
        """Spark's executors on this host."""
        try:
            below = psutil.Process(self.command.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [process for process in below if _is_executor(process)]

    def end(self) -> None:
        """Ends everything on the host at once; its disk remains."""
        started = [] if self._started is None else [self._started, *self._others]
        self._started, self._others = None, []
        for one in started:
            one.watch()
            one.close()
            one.all_gone()
            self._guard.forget(one.process.pid)

    @property
    def running(self) -> bool:
        """Whether the host was started, and neither ended nor lost since."""
        return self._started is not None and self._started.running

    def lose(self) -> None:
        """Ends the host together with its disk."""
        self.end()
        shutil.rmtree(self.disk)

    def cut_off(self, address: str) -> None:
        """Drops everything that the host sends to an address.

        Raises:
            NotPossibleHere: The host has no network of its own.
        """
        raise NotPossibleHere(f"a host without a network of its own cannot be cut off: {network.why_not()}")

    def connect_again(self, address: str) -> None: ...


class NamespaceHost(LoopbackHost):
    """A host with namespaces of its own."""

    @property
    def _variables(self) -> Mapping[str, str]:
        return {"SPARK_LOCAL_IP": self.address}

    @property
    def inside(self) -> Path:
        """Where processes on the host find its disk: at the same path on each host."""
        return self._world / DISK

    def _line(self, command: Sequence[str]) -> list[str]:
        (self.disk / "joined").unlink(missing_ok=True)
        names = self._world / f"etc-hosts-{self.name}"
        names.write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        places = [str(place) for place in (self.disk, self.inside, self.disk.parent, names)]
        return ["unshare", *network.SPACES, "sh", "-c", _START, "host", self.name, *places, *command]

    def _there(self, command: Sequence[str]) -> list[str]:
        return ["nsenter", "--target", str(self.command.process.pid), "--net", "--mount", "--uts", *command]

    def _join(self) -> None:
        self.command.wait_until(lambda: "ready" in self.command.log(), f"{self.name} starts", _READY_S)
        network.join(self.command.process.pid, self.name, self.address)
        (self.disk / "joined").touch()

    def end(self) -> None:
        """Ends everything on the host as a power cut does: the others get no answer any more, not even a refusal."""
        if self.running:
            network.ip("link", "delete", self.name)
        super().end()

    def cut_off(self, address: str) -> None:
        """Drops everything that the host sends to an address."""
        network.ip("route", "add", "blackhole", f"{address}/32", inside=self.command.process.pid)

    def connect_again(self, address: str) -> None:
        network.ip("route", "delete", "blackhole", f"{address}/32", inside=self.command.process.pid)


def _is_executor(process: psutil.Process) -> bool:
    try:
        return "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline()
    except psutil.Error:
        return False


def python_path() -> str:
    """The PYTHONPATH with which other folders' processes find this project and what this process finds."""
    root = str(Path(__file__).parents[3])
    return os.pathsep.join(dict.fromkeys(filter(None, [root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])))
