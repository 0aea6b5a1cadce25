"""The world of a simulation: a Kafka, hosts with disks of their own, a clock, and every event of theirs in one log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from state.restore.task_stores import WorkerMemory
from streams.testing.simulation import Crash, Event, Fate, SimulatedKafka, SimulatedStores, SimulatedTable
from tests.simulation.attempt import Attempt


class Chaos(Protocol):
    """Decides what goes wrong, and in which order things happen that may happen in any order."""

    def before(self, cluster: Cluster, event: Event) -> Fate:
        """As `Hook.before`; may also pause the attempt that runs."""

    def after(self, cluster: Cluster, event: Event) -> None:
        """As `Hook.after`."""

    def choose(self, count: int, what: str) -> int:
        """One of `count` ways to go on; 0 is the usual one."""


@dataclass
class Host:
    """A machine: its disks survive the processes that write to them."""

    name: str
    disks: dict[tuple[str, int], SimulatedTable] = field(default_factory=dict)
    memory: WorkerMemory = field(default_factory=WorkerMemory)


class Cluster:
    """Kafka and hosts; the hook of all of them.

    Args:
        chaos: decides what goes wrong.
        hosts: number of machines.

    Attributes:
        now_ms: the clock.
        attempt: the task attempt that runs at the moment; None = the driver.
        zombies: attempts that nobody waits for any more, but which are still there.
        trace: what has happened, for people.
        events: number of events so far.
    """

    def __init__(self, chaos: Chaos, hosts: int = 2) -> None:
        self.chaos = chaos
        self.kafka = SimulatedKafka(hook=self)
        self.hosts = [Host(f"host{number}") for number in range(hosts)]
        self.now_ms = 0
        self.attempt: Attempt | None = None
        self.zombies: list[Attempt] = []
        self.trace: list[Callable[[], str]] = []
        self.events = 0

    def before(self, event: Event) -> Fate:
        """See `Hook`; a dead process does nothing any more."""
        attempt = self.attempt
        if attempt is not None and attempt.dead:
            raise Crash(str(event))
        self.events += 1
        number = self.events
        self.trace.append(lambda: f"{number:5} {attempt or 'driver'}: {event}")
        return self.chaos.before(self, event)

    def after(self, event: Event) -> None:
        """See `Hook`."""
        if self.attempt is not None and self.attempt.dead:
            raise Crash(str(event))
        self.chaos.after(self, event)

    def happen(self, kind: str, where: str) -> None:
        """An event of the driver: nothing of it is there if the driver dies before it, all of it if after."""
        self.before(Event(kind, where))

    def say(self, text: str) -> None:
        """Into the log."""
        self.trace.append(lambda: f"      -- {text}")

    def advance(self, ms: int) -> None:
        """Time goes on."""
        self.now_ms += ms
        self.kafka.now_ms = self.now_ms

    def table(self, host: Host, sub: str, task: int) -> SimulatedTable:
        """A task's place on a host's disk."""
        key = (sub, task)
        if key not in host.disks:
            host.disks[key] = SimulatedTable(self, f"{host.name}/{sub}/{task}")
        return host.disks[key]

    def kill(self, attempt: Attempt) -> None:
        """The process of an attempt dies: what it had not flushed is gone, what Kafka has of it stays."""
        attempt.kill()
        stores = attempt.stores
        if isinstance(stores, SimulatedStores):
            for host in self.hosts:
                for table in host.disks.values():
                    if table.owner is stores:
                        table.crash()
                        host.memory = WorkerMemory()

    def run(self, attempt: Attempt) -> None:
        """Lets an attempt go on until it ends or stands still; if it died, what belonged to its process is lost."""
        before, self.attempt = self.attempt, attempt
        try:
            attempt.resume()
        finally:
            self.attempt = before
        if attempt.dead:
            self.kill(attempt)

    def end_zombies(self, kill: bool) -> None:
        """Whoever is left goes on to its end, or dies."""
        for zombie in self.zombies:
            if kill:
                self.kill(zombie)
            while not zombie.ended:
                self.run(zombie)
        self.zombies = []
