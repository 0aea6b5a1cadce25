"""The environment of a simulation: Kafka, hosts with their own disks, a clock, and all their events in one log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from state.restore.task_stores import WorkerMemory
from streams.testing.simulation import Crash, Fate, RequestEvent, SimulatedKafka, SimulatedTable
from tests.simulation.attempt import Attempt


class Chaos(Protocol):
    """The source of faults, which also decides the order of concurrent events."""

    def before(self, cluster: Cluster, event: RequestEvent) -> Fate:
        """Like `Hook.before`; may also pause the running attempt."""

    def after(self, cluster: Cluster, event: RequestEvent) -> None:
        """Like `Hook.after`."""

    def choose(self, count: int, what: str) -> int:
        """One of `count` possible next events; 0 is the usual one."""


@dataclass
class Host:
    """A machine, whose disks survive the processes that write to them."""

    name: str
    disks: dict[tuple[str, int], SimulatedTable] = field(default_factory=dict)
    memory: WorkerMemory = field(default_factory=WorkerMemory)


class Cluster:
    """Kafka and the hosts, and the hook that all their events pass.

    Args:
        chaos: The source of faults.
        hosts: The number of machines.

    Attributes:
        now_ms: The clock.
        attempt: The running task attempt; None: the driver.
        zombies: Attempts that still exist although the driver no longer waits for them.
        trace: The log of events, for people.
        events: The number of events so far.
        snapshots: Snapshots and replicas, if there are some (`tests.simulation.snapshots`).
        switching: Whether the driver switches sub-topologies from one execution to the other.
    """

    def __init__(self, chaos: Chaos, hosts: int = 2) -> None:
        self.chaos = chaos
        self.kafka = SimulatedKafka(hook=self)
        self.hosts = [Host(f"host{number}") for number in range(hosts)]
        # The time 0 is that of state whose age is not known.
        self.now_ms = self.kafka.now_ms = 1
        self.attempt: Attempt | None = None
        self.zombies: list[Attempt] = []
        self.trace: list[Callable[[], str]] = []
        self.events = 0
        self.snapshots: Any = None
        self.switching = False

    def before(self, event: RequestEvent) -> Fate:
        """See `Hook`; a dead process causes no further events."""
        attempt = self.attempt
        if attempt is not None and attempt.dead:
            raise Crash(str(event))
        self.events += 1
        number = self.events
        self.trace.append(lambda: f"{number:5} {attempt or 'driver'}: {event}")
        with self._dying(attempt):
            return self.chaos.before(self, event)

    def after(self, event: RequestEvent) -> None:
        """See `Hook`."""
        if self.attempt is not None and self.attempt.dead:
            raise Crash(str(event))
        with self._dying(self.attempt):
            self.chaos.after(self, event)

    @contextmanager
    def _dying(self, attempt: Attempt | None) -> Iterator[None]:
        """A crash ends the process at once: nothing that it would still do at its end happens."""
        try:
            yield
        except Crash:
            if attempt is not None:
                attempt.dead = True
            raise

    def happen(self, kind: str, where: str) -> None:
        """An atomic event of the driver: without effect if the driver dies before it, complete if the driver dies after it."""
        self.before(RequestEvent(kind, where))

    def say(self, text: str) -> None:
        """Adds a line to the log."""
        self.trace.append(lambda: f"      -- {text}")

    def advance(self, ms: int) -> None:
        """Advances the clock."""
        self.now_ms += ms
        self.kafka.now_ms = self.now_ms

    def seconds(self) -> float:
        """The clock, as a monotonic clock in seconds."""
        return self.now_ms / 1000

    def table(self, host: Host, sub: str, task: int) -> SimulatedTable:
        """A task's place on a host's disk."""
        key = (sub, task)
        if key not in host.disks:
            host.disks[key] = SimulatedTable(self, f"{host.name}/{sub}/{task}")
        return host.disks[key]

    def lose_disk(self, host: Host) -> None:
        """Loses a host's local state, if no process has it open; replicas are on another disk."""
        self.say(f"{host.name} loses its disk")
        if all(table.owner is None for table in host.disks.values()):
            host.disks = {key: table for key, table in host.disks.items() if key[0].endswith("/replica")}
            if self.snapshots is not None:
                self.snapshots.lose(host)

    def kill(self, attempt: Attempt) -> None:
        """Kills the process of an attempt: unflushed data is lost, and data in Kafka remains."""
        before, self.attempt = self.attempt, attempt
        attempt.kill()
        self.attempt = before
        for host in self.hosts:
            for table in host.disks.values():
                if any(table.last_owner is stores for stores in attempt.stores):
                    table.crash()
                    host.memory = WorkerMemory()

    def run(self, attempt: Attempt) -> None:
        """Runs an attempt until it ends or pauses; if it died, everything in its process is lost."""
        before, self.attempt = self.attempt, attempt
        try:
            attempt.resume()
        finally:
            self.attempt = before
        if attempt.dead:
            self.kill(attempt)

    def let_go_on(self, zombie: Attempt) -> None:
        """Runs one of the remaining attempts until it ends or pauses."""
        self.run(zombie)
        if zombie.ended:
            self.zombies.remove(zombie)

    def end_zombies(self, kill: bool) -> None:
        """Runs all remaining attempts to their end, or kills them."""
        for zombie in self.zombies:
            if kill:
                self.kill(zombie)
            while not zombie.ended:
                self.run(zombie)
        self.zombies = []
