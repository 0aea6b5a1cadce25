"""Faults of hosts, with the application on a Spark cluster of two: dead executors, lost, slow and cut-off hosts, dead drivers."""

from __future__ import annotations

import time

from streams.drills.hosts import network
from streams.drills.hosts.application import ClusterApplication
from streams.drills.hosts.host import LoopbackHost
from streams.drills.hosts.spark_cluster import step_of
from streams.drills.world import APPLICATION_ID, World

NAMESPACES = "root, for namespaces"
EXCLUDING = ("--set", "spark.excludeOnFailure.taskAndStage.enabled=true")
"""Attempts of a task that has failed on a host go to the other hosts."""
SLOW_ROUNDS = 12
STILL_S, MOVING_S = 1.5, 0.5
DRIVERS = 2


def started(world: World) -> tuple[LoopbackHost, LoopbackHost]:
    """Starts the application, waits until all tasks have run, and returns the hosts: last the one with more tasks.

    Spark may give all tasks to one host and then leaves them there, where their state is.
    """
    world.start()
    world.wait_for(world.grows(), "results of each task")
    # The driver knows where a task has run once its step is reported, which is before the next one begins.
    world.wait_for(world.grows(), "results of a further step")
    other, busy = sorted(world.cluster.hosts, key=lambda host: len(host.tasks(APPLICATION_ID)))
    world.require(bool(busy.tasks(APPLICATION_ID)), "no host has state of tasks")
    world.say(f"the hosts are {kind(world)}; they have the tasks {names(busy)} and {names(other)}")
    return other, busy


def kind(world: World) -> str:
    return "namespaces" if world.cluster.isolated else f"loopback addresses ({network.why_not()})"


def names(host: LoopbackHost) -> str:
    """The tasks of which a host has state."""
    return ", ".join(f"{task.sub_topology}/{task.task}" for task in host.tasks(APPLICATION_ID)) or "none"


def application(world: World) -> ClusterApplication:
    assert isinstance(world.application, ClusterApplication)
    return world.application


def executor_killed(world: World) -> None:
    """D36: the executor of a host dies, with all Python workers; the host and its disk remain."""
    _, host = started(world)
    (executor,) = host.executors()
    executor.kill()
    killed = time.monotonic()
    world.wait_for(lambda: executor.pid not in [one.pid for one in host.executors()], "the executor ends")
    world.saw(f"the executor of {host.name} was killed, which had the tasks {names(host)}; the hosts are {kind(world)}")
    world.recovers("an executor was killed", killed)


def host_lost(world: World) -> None:
    """D37: a host vanishes with its disk, comes back empty, keeps replicas, and takes over from the other one."""
    other, host = started(world)
    lose(world, host, ": restored from")
    world.cluster.run_worker(host)
    world.wait_for(lambda: bool(host.executors()), f"an executor on {host.name}")
    world.recovers("an empty host came in its place")
    application(world).copy_all(host)
    lose(world, other, ": taken over from the replica")
    world.cluster.run_worker(other)


def lose(world: World, host: LoopbackHost, how: str) -> None:
    """Loses a host, and waits until its tasks go on elsewhere, from what the text says."""
    had = names(host)
    host.lose()
    lost = time.monotonic()
    world.saw(f"{host.name} was lost with its disk, which had the tasks {had}")
    world.saw(moved(world, host, how))
    world.recovers(f"{host.name} was lost", lost)


def moved(world: World, host: LoopbackHost, how: str = "") -> str:
    """Waits until a task has moved from a host; returns what the application says about that."""
    lines: list[str] = []

    def said() -> bool:
        lines[:] = [line for line in application(world).moves() if f"moved from {host.name} " in line and how in line]
        return bool(lines)

    world.wait_for(said, f"a task that moved from {host.name}{how}")
    return lines[-1]


def slow_host(world: World) -> None:
    """D38: all processes of a host stand still most of the time."""
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
        f"{world.results() - seen} results meanwhile"
    )
    world.recovers("a host was slow")


def cut_off_from_broker(world: World) -> None:
    """D39: a host reaches all but the broker: its attempts fail, and Spark gives them to the other host."""
    _, host = started(world)
    host.cut_off(world.cluster.broker)
    cut = time.monotonic()
    world.saw(f"{host.name} was cut off from the broker; {moved(world, host)}")
    world.recovers(f"{host.name} was cut off from the broker", cut)
    host.connect_again(world.cluster.broker)
    world.recovers(f"{host.name} reached the broker again")


def driver_killed(world: World) -> None:
    """D40: the driver dies again and again, and each new one places the tasks anew, where older copies of their state may be."""
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
