"""Faults of whole drivers: killed between two commits, two at a time, stalled and back, and of another program."""

from __future__ import annotations

import shutil
import time

from streams.cluster.java_admin import JavaAdmin
from streams.drills.cases.checkpoint import last_batch
from streams.drills.cases.tasks import frozen_worker
from streams.drills.failure import DrillFailed
from streams.drills.proxy import END_TXN, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, Action
from streams.drills.world import APPLICATION_ID, STUCK_S, World

SECOND_DRIVER_S = 300.0
LATE_S = 12.0
"""Seconds in which a driver that has lost against another one notices that, in every sub-topology."""
REFUSED = (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
LAST_EPOCH = 32_766
"""The last epoch that a coordinator gives a producer id (`TransactionMetadata.isEpochExhausted`)."""
SUB = "orders"
"""The first sub-topology of the default program."""


def between_commits(world: World) -> None:
    """D03: driver, JVM and workers die when a step is in Kafka, and neither in the local store nor in Spark's commit log."""
    world.start(faults="freeze after_commit@0:4")
    frozen_worker(world)
    step = world.application.happened()[0][1]
    batches = {log: newest(world, log) for log in ("offsets", "commits")}
    world.application.kill_all()
    world.require(any(a > b for a, b in zip(batches["offsets"], batches["commits"], strict=True)), f"{batches}")
    world.saw(f"driver killed after {step}; Spark's newest micro-batches (offsets, commits): {batches}")
    killed = time.monotonic()
    world.application.start()
    world.recovers("a new driver was started", killed)


def newest(world: World, log: str) -> list[int]:
    """The newest micro-batch in one of Spark's logs, by sub-topology."""
    folders = sorted(folder for folder in world.application.checkpoint.iterdir() if (folder / "offsets").is_dir())
    return [last_batch(folder / log) for folder in folders]


def two_drivers(world: World) -> None:
    """D04: a second driver on the same checkpoint and state, and one on a copy of the checkpoint."""
    world.start()
    beside(world, "the same checkpoint")
    survives(world, "two drivers on one checkpoint")
    copy = world.folder / "copied"
    try:
        shutil.copytree(world.application.checkpoint, copy)
    except shutil.Error as error:
        # Files change meanwhile: the copy of a checkpoint in use is never quite consistent.
        world.say(f"copying: {str(error)[:100]}")
    beside(world, "a copy of the checkpoint", "--set", f"checkpoint_dir={copy}")
    survives(world, "a second driver on a copied checkpoint")


def beside(world: World, where: str, *options: str) -> None:
    """Runs a second driver until one of both has ended; the other goes on, or is started again."""
    first, second = world.application.current, world.application.another(*options)
    deadline = time.monotonic() + SECOND_DRIVER_S
    while first.running and second.running and time.monotonic() < deadline:
        time.sleep(0.1)
    ended = {name: one for name, one in (("first", first), ("second", second)) if not one.running}
    if not ended:
        raise DrillFailed(f"two drivers on {where} ran for {SECOND_DRIVER_S:g} s, and neither ended")
    for name, one in ended.items():
        world.saw(f"on {where} the {name} ended: {one.last_words()[:200]}")
    second.watch()
    second.close()
    second.all_gone()
    if not first.running:
        world.application.start()


def survives(world: World, after: str) -> None:
    """Waits for results; a driver that has lost against the other one may end late, and is started again."""
    grown, seconds = world.grows(), None
    began = started = time.monotonic()
    while seconds is None or time.monotonic() - started < LATE_S:
        world.require(time.monotonic() - began < STUCK_S, f"no results within {STUCK_S:g} s after {after}")
        if not world.application.current.running:
            world.saw(f"after {after} the remaining driver ended: {world.application.current.last_words()[:200]}")
            world.application.start()
            grown, seconds, started = world.grows(), None, time.monotonic()
        if seconds is None and grown():
            seconds = time.monotonic() - began
        time.sleep(0.1)
    world.recovered(after, seconds)


def zombie(world: World) -> None:
    """D05: a whole host stalls within a transaction, another one takes over, and the first one wakes up again."""
    # Its local stores are elsewhere, as on another machine.
    world.start("--set", f"state_dir={world.folder / 'other-host'}", faults="freeze before_commit@0:4")
    frozen_worker(world)
    stalled = world.application.current
    stalled.freeze()
    world.application.start()
    world.recovers("another host took over from a stalled one")
    world.load.paused = True
    world.at_rest()
    # Nobody else commits now, whichever sub-topology the stalled worker belongs to.
    commit = world.proxy.on(END_TXN, Action.WATCH, f"{APPLICATION_ID}-".encode())
    stalled.thaw()
    world.require(commit.hit.wait(60), "the stalled worker did not try to commit")
    code = commit.error_code()
    world.require(code in REFUSED, f"the broker took the commit of the stalled worker (error code {code})")
    world.saw(f"the stalled worker's commit was refused by the broker (error code {code})")
    stalled.close()
    stalled.all_gone()
    world.load.paused = False
    world.recovers("the stalled host was switched off")


def changed_program(world: World) -> None:
    """D31: a program of another structure is started on the state of a killed one; then the right one again."""
    world.start(faults="freeze marker_sent@0:4")
    frozen_worker(world)
    world.application.kill_all()
    said = world.refused("TopologyMismatchError", target="streams.drills.program.topology:changed")
    world.saw(f"a changed program was refused: {said[:160]}")
    world.application.start()
    world.recovers("the right program was started again")


def exhausted_epochs(world: World) -> None:
    """D43: a task's producer comes to the end of its epochs, which are numbers of 16 bits, and gets another producer id."""
    world.start()
    world.application.kill_all()
    name = f"{APPLICATION_ID}-{SUB}-0"
    with JavaAdmin({"bootstrap.servers": world.broker.bootstrap_servers}) as admin:
        first, epoch = admin.producer(name)
        for _ in range(LAST_EPOCH - epoch):
            admin.fence(name)
        last, at_end = admin.producer(name)
    world.require((last, at_end) == (first, LAST_EPOCH), f"producer {first} of epoch {epoch} became {last}, {at_end}")
    killed = time.monotonic()
    world.application.start()
    world.recovers("a producer was at the end of its epochs", killed)
    with JavaAdmin({"bootstrap.servers": world.broker.bootstrap_servers}) as admin:
        now, epoch = admin.producer(name)
    world.require(now != first, f"the producer still has the id {first}, and epoch {epoch}")
    world.saw(f"producer {first} of {name} was at epoch {at_end}; its successor {now} has epoch {epoch}")
