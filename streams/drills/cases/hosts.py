"""Faults of hosts, with the application on a Spark cluster of two: dead executors and drivers, and lost, slow and cut-off hosts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from state.kafka.key_hash import partition_for_key
from streams.drills.drill import Conditions, drill
from streams.drills.hosts import ClusterApplication, LoopbackHost, step_of, why_not
from streams.drills.processes import CommandProcess
from streams.drills.program import ORDERS, PARTITIONS, TOTALS
from streams.drills.world import APPLICATION_ID, World
from streams.engine.live.slot import REPORT_EVERY_S

NAMESPACES = "root, for namespaces"
EXCLUDING = ("--set", "spark.excludeOnFailure.taskAndStage.enabled=true")
"""After an attempt of a task has failed on a host, further attempts go to other hosts."""
Task = tuple[str, int]
"""The sub-topology and the number of a task."""
EVERY: set[Task] = {(sub, task) for sub in (ORDERS, "by-region-repartition") for task in range(PARTITIONS)}
"""The tasks of the default program."""
SLOW_ROUNDS = 12
STILL_S, MOVING_S = 1.5, 0.5
DRIVERS = 2


def started(world: World) -> tuple[LoopbackHost, LoopbackHost]:
    """Starts the application, waits until all tasks have run, and returns the hosts; the last one has more tasks.

    Spark may give all tasks to one host and then leaves them there, where their state is.
    """
    world.start()
    # Live tasks begin at different times, and only partitions that have results are known to get more.

    def have_run() -> set[Task]:
        return {(one.sub_topology, one.task) for host in world.cluster.hosts for one in host.tasks(APPLICATION_ID)}

    world.wait_for(lambda: have_run() == EVERY, "each task has run on a host")
    world.wait_for(world.all_have_state, "each task has state that can be lost")
    # The driver knows where a task has run once its step is reported: before the next one begins, or live once a second.
    world.wait_for(world.grows(), "results of a further step")
    if world.live:
        time.sleep(2 * REPORT_EVERY_S)
    other, busy = sorted(world.cluster.hosts, key=lambda host: len(host.tasks(APPLICATION_ID)))
    world.require(bool(busy.tasks(APPLICATION_ID)), "no host has state of tasks")
    world.say(f"the hosts are {kind(world)}; they have the tasks {names(busy)} and {names(other)}")
    return other, busy


def kind(world: World) -> str:
    return "namespaces" if world.cluster.isolated else f"loopback addresses ({why_not()})"


def names(host: LoopbackHost) -> str:
    """Names the tasks whose state a host has."""
    return ", ".join(f"{task.sub_topology}/{task.task}" for task in host.tasks(APPLICATION_ID)) or "none"


def application(world: World) -> ClusterApplication:
    assert isinstance(world.application, ClusterApplication)
    return world.application


@drill(
    "D36",
    "executor killed",
    injects="SIGKILL to an executor with its workers, on one of two hosts",
    holds="its tasks continue in another executor",
    conditions=Conditions(hosts=True),
    quick=True,
)
def executor_killed(world: World) -> None:
    _, host = started(world)
    (executor,) = host.executors()
    executor.kill()
    killed = time.monotonic()
    world.wait_for(lambda: executor.pid not in [one.pid for one in host.executors()], "the executor ends")
    world.saw(f"the executor of {host.name} was killed, which had the tasks {names(host)}; the hosts are {kind(world)}")
    world.recovers("an executor was killed", killed)


@drill(
    "D37",
    "host lost",
    injects="a power cut of a host, whose disk is lost; an empty one with replicas takes its place; then the other one is lost",
    holds="the tasks are restored on the other host, and taken over from its replicas",
    minutes=2,
    conditions=Conditions(hosts=True),
)
def host_lost(world: World) -> None:
    other, host = started(world)
    lose(world, host, ": restored from")
    world.cluster.run_worker(host)
    world.wait_for(lambda: bool(host.executors()), f"an executor on {host.name}")
    world.recovers("an empty host came in its place")
    application(world).copy_all(host)
    lose(world, other, ": taken over from the replica")
    world.cluster.run_worker(other)


def lose(world: World, host: LoopbackHost, how: str) -> None:
    """Loses a host, and waits until its tasks continue elsewhere, with state from the source that the text `how` names."""
    had = names(host)
    host.lose()
    lost = time.monotonic()
    world.saw(f"{host.name} was lost with its disk, which had the tasks {had}")
    world.saw(moved(world, host, how))
    world.recovers(f"{host.name} was lost", lost)


def moved(world: World, host: LoopbackHost, how: str = "") -> str:
    """Waits until a task has moved from a host, and returns the application's log line about it."""
    lines: list[str] = []

    def said() -> bool:
        lines[:] = [line for line in application(world).moves() if f"moved from {host.name} " in line and how in line]
        return bool(lines)

    world.wait_for(said, f"a task that moved from {host.name}{how}")
    return lines[-1]


@drill(
    "D38",
    "slow host",
    injects="one of two hosts freezes for 1.5 s of every 2 s",
    holds="every task continues writing results",
    minutes=1.5,
    conditions=Conditions(hosts=True),
)
def slow_host(world: World) -> None:
    _, host = started(world)
    grown, seen = world.grows(), world.results()
    for _ in range(SLOW_ROUNDS):
        host.command.freeze()
        time.sleep(STILL_S)
        host.command.thaw()
        time.sleep(MOVING_S)
    world.require(grown(), "not every task has written results while a host was slow")
    world.saw(
        f"{host.name} stood still for {STILL_S:g} s of every {STILL_S + MOVING_S:g} s, {SLOW_ROUNDS} times; "
        f"{world.results() - seen} results in that time"
    )
    world.recovers("a host was slow")


@drill(
    "D39",
    "host without broker",
    injects="one of two hosts cannot reach the broker any more",
    holds="the other host takes over its tasks",
    minutes=3,
    conditions=Conditions(hosts=True, options=EXCLUDING),
    needs=NAMESPACES,
)
def cut_off_from_broker(world: World) -> None:
    _, host = started(world)
    host.cut_off(world.cluster.broker)
    cut = time.monotonic()
    world.saw(f"{host.name} was cut off from the broker; {moved(world, host)}")
    world.recovers(f"{host.name} was cut off from the broker", cut)
    host.connect_again(world.cluster.broker)
    world.recovers(f"{host.name} reached the broker again")


@drill(
    "D40",
    "driver of a cluster killed",
    injects="SIGKILL to driver and JVM, several times, while the hosts run",
    holds="tasks continue wherever Spark starts them, over old copies of their state",
    minutes=2,
    conditions=Conditions(hosts=True),
)
def driver_killed(world: World) -> None:
    hosts = started(world)
    for number in range(1, DRIVERS + 1):
        world.application.kill_all()
        killed = time.monotonic()
        world.cluster.executors_gone()
        world.saw(f"driver {number} was killed; its executors on both hosts ended by themselves")
        world.application.start()
        world.recovers(f"driver {number} was killed", killed)
    world.stop_at_rest()
    copies = {(one.sub_topology, one.task): step_of(one.path) for one in hosts[0].tasks(APPLICATION_ID)}
    twice = [
        f"{one.sub_topology}/{one.task}: {copies[one.sub_topology, one.task]} and {step_of(one.path)}"
        for one in hosts[1].tasks(APPLICATION_ID)
        if (one.sub_topology, one.task) in copies
    ]
    world.saw(f"tasks with copies on both hosts, and their steps: {'; '.join(twice) or 'none'}")
    world.start()


# A host is lost, and another host takes over its tasks: from the changelogs, or from a replica's copies.

KEYS_OF_STATE = 60_000
"""Each of these keys gets an order, so that the state is large enough to show whether copying is faster than restoring."""
WARM_S = 120.0
LARGE_STEPS = ("--max-records-per-trigger", "20000")


class ReplicaHost:
    """A host with `streams replica`.

    Args:
        name: The name of its folder.
    """

    def __init__(self, world: World, name: str) -> None:
        self.copies = world.folder / name / "replicas"
        options = ["-a", APPLICATION_ID, "-b", world.servers, "--base-dir", str(world.folder / name)]
        command = [sys.executable, "-m", "streams", "replica", world.application.target, *options]
        self.process = CommandProcess([*command, "--interval", "500ms", "--json"], world.folder)

    def tasks(self) -> dict[Task, bool]:
        """Task -> whether the host's copy of the task is warm, by its last report; tasks without a copy are left out."""
        found: dict[Task, bool] = {}
        for line in self.process.log().splitlines():
            with suppress(json.JSONDecodeError, TypeError, KeyError):
                said = json.loads(line)["tasks"]
                found = {(one["sub_topology"], one["task"]): one["warm"] for one in said}
        return found

    def warm(self) -> set[Task]:
        """The tasks whose copy on the host is warm."""
        return {task for task, warm in self.tasks().items() if warm}

    def leave(self, world: World) -> None:
        self.process.interrupt()
        code = self.process.ended(WARM_S)
        world.require(code == 0, f"streams replica ended with {code}: {self.process.last_words()}")


@contextmanager
def replica_hosts(world: World, *names: str) -> Iterator[list[ReplicaHost]]:
    """Hosts with replicas in one group, which end with the block."""
    hosts = [ReplicaHost(world, name) for name in names]
    try:
        yield hosts
    finally:
        for host in hosts:
            host.process.close()


@drill(
    "D32",
    "failover",
    injects="a lost host whose tasks another host takes over, once without a copy of the state and once with a replica's copy",
    holds="two replicas share the tasks; a copy is taken over instead of restored from the changelogs",
    minutes=2,
    conditions=Conditions(options=LARGE_STEPS),
)
def failover(world: World) -> None:
    fill(world)
    world.start()
    world.wait_for(lambda: len(world.readers[TOTALS].records) > KEYS_OF_STATE, "large state")
    world.recovers("a host without a copy took over", move(world))
    with replica_hosts(world, "second", "third") as (second, third):

        def shared() -> bool:
            both = second.warm(), third.warm()
            return all(both) and both[0] | both[1] == EVERY and not both[0] & both[1]

        world.wait_for(shared, "two replicas share the tasks", WARM_S)
        world.saw(f"two replicas shared the tasks: {len(second.warm())} and {len(third.warm())}")
        second.leave(world)
        world.wait_for(lambda: third.warm() == EVERY, "one replica has all tasks", WARM_S)
        world.saw("one replica ended, and the other one took its tasks over")
        moved = move(world, "--set", f"replica_dir={third.copies}")
        world.wait_for(lambda: shared_files(world.application.state, third.copies) > 0, "the copies are taken over")
        files = shared_files(world.application.state, third.copies)
        world.saw(f"{files} table files of the local stores were the replica's own, by hard links")
        world.recovers("a host with a replica took over", moved)


def fill(world: World) -> None:
    now = world.load.now_ms
    by_partition: dict[int, list[tuple[bytes, bytes, int]]] = {number: [] for number in range(PARTITIONS)}
    for number in range(KEYS_OF_STATE):
        key = b"many-%d" % number
        by_partition[partition_for_key(key, PARTITIONS)].append((key, b'{"id":"many-%d"}' % number, now))
    for partition, records in by_partition.items():
        world.topics.write(ORDERS, *records, partition=partition)


def move(world: World, *options: str) -> float:
    """Loses the application's host with its local state, and starts on another one; returns when it was lost."""
    world.application.kill_all()
    world.application.delete_state()
    killed = time.monotonic()
    world.application.start(*options)
    return killed


def shared_files(state: Path, copies: Path) -> int:
    """The number of table files that local stores share with copies of them, by hard links."""
    return len(files_of(state, "*.sst") & files_of(copies))


def files_of(folder: Path, name: str = "*") -> set[int]:
    """The inodes of the files below a folder, which may come and go while it is read."""
    found = set()
    for file in folder.rglob(name):
        with suppress(FileNotFoundError):
            found.add(file.stat().st_ino)
    return found
