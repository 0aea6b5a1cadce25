"""Faults of single tasks: Python workers that are killed, stalled or short of memory."""

from __future__ import annotations

import os
import signal

from state.commit.crash_points import POINTS
from state.commit.marker import CommitMarker
from streams.drills.memory import limit_of_workers
from streams.drills.reader import read_aborted
from streams.drills.world import World

RESTORING = ("restore_halfway", "restore_read", "restore_done")
"""Only reached while a store is brought to its marker: drill D19 has these."""
SENT = ("marker_sent", "before_commit")
"""The marker is in the log, in a transaction that nobody has committed."""
ALL_S = 900.0
FREEZE_S = 120.0
MANY_ATTEMPTS = ("--set", "spark.master=local[2,40]")
"""Spark ends a query after a few failed attempts of a task; here a task dies far more often, perhaps in one micro-batch."""


def crash_points(world: World) -> None:
    """D02: a worker dies at each crash point of a step, one after the other."""
    points = [point for point in POINTS if point not in RESTORING]
    # One in each step. Both sub-topologies have the versions, so whichever comes first dies, and goes on to the next one.
    world.start(faults=",".join(f"kill {point}@*:{version}" for version, point in enumerate(points, 2)))
    world.wait_for(lambda: len(world.application.happened()) == len(points), "a worker killed at every point", ALL_S)
    happened = [fault for _, fault in world.application.happened()]
    world.saw(f"{len(happened)} workers killed by SIGKILL: {', '.join(happened)}")
    world.recovers("the last kill")
    redone = aborted_steps(world)
    for fault in happened:
        point, _, step = fault.partition("@")
        if point in SENT:
            world.require(step in redone, f"{fault}: the step was not aborted and done again: {sorted(redone)}")
    world.saw(f"{len(redone)} steps aborted and done again")


def aborted_steps(world: World) -> set[str]:
    """`TASK:VERSION` of all markers whose transactions were aborted."""
    return {
        f"{one.partition}:{CommitMarker.from_bytes(one.value or b'').version}"
        for topic in world.internal_topics("-commits")
        for one in read_aborted(world.servers, topic)
    }


def frozen_worker(world: World) -> int:
    """Waits until a crash point has stopped a worker; returns its process id."""
    world.wait_for(lambda: bool(world.application.happened()), "a worker that is frozen", FREEZE_S)
    return world.application.happened()[0][0]


def transaction_timeout(world: World) -> None:
    """D06: a step takes longer than the transaction timeout, so the broker aborts its transaction."""
    world.start("--set", "transaction_timeout_ms=5000", faults="freeze before_commit@0:4")
    worker = frozen_worker(world)
    step = world.application.happened()[0][1].partition("@")[2]
    # The broker aborts a transaction by itself; the step's records are then in the log, and nobody will ever read them.
    world.wait_for(lambda: step in aborted_steps(world), "the broker aborts the transaction")
    world.saw(f"the broker aborted the transaction of step {step} while its worker was stalled")
    os.kill(worker, signal.SIGCONT)
    world.recovers("the stalled worker went on")


def short_of_memory(world: World) -> None:
    """D29: the workers may use less and less memory, until one is killed for that; other workers do the steps."""
    with limit_of_workers(world.folder, world.application.workers) as limit:
        world.start(environment={"PYSPARK_PYTHON": str(limit.python)})

        def struck() -> bool:
            limit.lower()
            return limit.killed > 0

        world.wait_for(struck, "a worker is killed for want of memory")
        limit.lift()
        world.saw(f"workers killed for want of memory: {limit.killed}, by {limit}")
        world.recovers("a worker was killed for want of memory")
