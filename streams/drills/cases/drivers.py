"""Faults of drivers, their checkpoints and their tasks: killed, stalled, two at a time, short of memory, or foreign."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from state.commit.crash_points import POINTS
from state.commit.decide import slot_transactional_id
from state.commit.marker import CommitMarker
from streams.application.adopt import ADOPTING
from streams.application.instances import LOCK
from streams.checkpoint.files import FIRST_BATCH
from streams.cluster.java_admin import JavaAdmin
from streams.drills.brokers import END_TXN, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, ProxyAction
from streams.drills.cases.machine import limit_of_workers
from streams.drills.drill import Conditions, DrillFailed, drill
from streams.drills.processes import CommandProcess, own_environment
from streams.drills.topics import read_aborted
from streams.drills.world import APPLICATION_ID, STUCK_S, World

RESTORING = ("restore_halfway", "restore_read", "restore_done")
"""Crash points that are reached only while a store is brought to its marker; they belong to drill D19."""
REPORTING = ("before_report", "report_given")
"""Crash points that are reached only in micro-batches: Spark has no copy of the markers of live steps."""
SENT = ("marker_sent", "before_commit")
"""Crash points at which the marker is in the log, in a transaction that is not committed."""
ALL_S = 900.0
FREEZE_S = 120.0
MANY_ATTEMPTS = ("--set", "spark.master=local[2,40]")
"""Spark ends a query after a few failed attempts of a task; here a task dies far more often, perhaps in one micro-batch."""


@drill(
    "D02",
    "workers killed at crash points",
    injects="SIGKILL to a Python worker at every named point of a step",
    holds="steps before the commit are done again, steps after it are not",
    minutes=1.5,
    conditions=Conditions(options=MANY_ATTEMPTS),
    quick=True,
    any_program=True,
)
def crash_points(world: World) -> None:
    points = [point for point in POINTS if point not in RESTORING and not (world.live and point in REPORTING)]
    # One in each step. Both sub-topologies have these versions, so the first to reach one dies there, and continues to the next
    # one. Live tasks fence only when they begin, and the ones that have not died are many steps ahead.
    where = (point if world.live else f"{point}@*:{version}" for version, point in enumerate(points, 2))
    # Most of them may fall before the first result.
    world.application.start(faults=",".join(f"kill {point}" for point in where))
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


@drill(
    "D06",
    "transaction timeout",
    injects="a step that takes longer than its transaction may",
    holds="the broker aborts it, and it is done again",
    any_program=True,
)
def transaction_timeout(world: World) -> None:
    world.start("--set", "transaction_timeout_ms=5000", faults="freeze before_commit@0:4")
    worker = frozen_worker(world)
    step = world.application.happened()[0][1].partition("@")[2]
    # The broker aborts a transaction by itself; the step's records are then in the log, and no reader will ever see them.
    world.wait_for(lambda: step in aborted_steps(world), "the broker aborts the transaction")
    world.saw(f"the broker aborted the transaction of step {step} while its worker was stalled")
    os.kill(worker, signal.SIGCONT)
    world.recovers("the stalled worker continued")


@drill(
    "D29",
    "no memory",
    injects="a memory limit on the workers (cgroup) that falls below what they use, until the kernel kills one",
    holds="other workers do their steps",
    conditions=Conditions(options=MANY_ATTEMPTS),
    any_program=True,
)
def short_of_memory(world: World) -> None:
    with limit_of_workers(world.folder, world.application.workers) as limit:
        world.start(environment={"PYSPARK_PYTHON": str(limit.python)})

        def struck() -> bool:
            limit.lower()
            return limit.killed > 0

        world.wait_for(struck, "a worker is killed for want of memory")
        limit.lift()
        world.saw(f"workers killed for want of memory: {limit.killed}, by {limit}")
        world.recovers("a worker was killed for want of memory")


# Faults of Spark's checkpoint: it is lost, rolled back or cut short, or replaced by a new one from the markers.

MISMATCH = "CheckpointMismatchError"
ADOPT_S = 120.0
ADOPTIONS, RESCALES = 5, 3
KILLED_WITHIN_S = 1.5


@drill(
    "D17",
    "wrong checkpoints",
    injects="a checkpoint that is rolled back, cut short or lost; then `streams adopt`, killed within",
    holds="a `CheckpointMismatchError` before anything is written; the adopted one continues",
    minutes=2,
    any_program=True,
    not_live="a live step logs nothing in Spark's checkpoint, and D49 loses one",
)
def wrong_checkpoints(world: World) -> None:
    world.start()
    # At rest, so that the last micro-batch is in the commit log: without its file, Spark repeats that one.
    world.stop_at_rest()
    older = world.folder / "older"
    shutil.copytree(world.application.checkpoint, older)
    file = newest_log_file(world, "commits")
    file.unlink()
    world.saw(f"the last file of the commit log was deleted ({file.name})")
    world.start()
    world.recovers("a commit of Spark's was lost")
    world.stop_at_rest()
    right = world.folder / "right"
    shutil.copytree(world.application.checkpoint, right)

    put_back(world, older)
    world.saw(f"rolled back: {world.refused(MISMATCH)[:140]}")
    put_back(world, right)
    file = newest_log_file(world, "offsets")
    file.write_bytes(file.read_bytes()[:20])
    world.saw(f"{file.name} of the offset log cut short: {world.refused(MISMATCH)[:140]}")
    put_back(world, None)
    world.saw(f"lost: {world.refused(MISMATCH)[:140]}")
    killed_within_an_adoption(world)
    adopt(world)
    world.restarts("a new checkpoint was adopted")


def put_back(world: World, copy: Path | None) -> None:
    """Replaces the checkpoint by a copy, or deletes it if the copy is None."""
    shutil.rmtree(world.application.checkpoint)
    if copy is not None:
        shutil.copytree(copy, world.application.checkpoint)


def newest_log_file(world: World, log: str) -> Path:
    """The last file of one of Spark's logs, for the longest log of a sub-topology that has no unfinished micro-batch."""
    folders = [folder for folder in world.application.checkpoint.iterdir() if (folder / "commits").is_dir()]
    finished = [folder for folder in folders if last_batch(folder / "offsets") == last_batch(folder / "commits") >= 0]
    world.require(bool(finished), "each sub-topology has an unfinished micro-batch")
    folder = max(finished, key=lambda folder: last_batch(folder / log))
    newest = folder / log / str(last_batch(folder / log))
    # Spark would compare the file with its checksum, which a lost write would not have changed either.
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    return newest


def last_batch(log: Path) -> int:
    """The number of the last micro-batch in one of Spark's logs; -1: none."""
    return max((int(file.name) for file in log.glob("*") if file.name.isdigit()), default=-1)


def killed_within_an_adoption(world: World) -> None:
    """Kills `streams adopt` after its plan is on disk and before a checkpoint has taken its place."""

    def plans() -> list[str]:
        return [plan.parent.name for plan in world.application.checkpoint.glob(f"*{ADOPTING}/{FIRST_BATCH}")]

    for _ in range(ADOPTIONS):
        adopting = command(world, "adopt")
        adopting.until_end(lambda: bool(plans()), ADOPT_S, "no plan of the adoption")
        adopting.close()
        if left := plans():
            world.saw(f"streams adopt was killed, and its plan was left in {left[0]}")
            return
        put_back(world, None)
    raise DrillFailed(f"all of {ADOPTIONS} adoptions were over before they were killed")


def command(world: World, name: str, *options: str, environment: Mapping[str, str] | None = None) -> CommandProcess:
    """Starts a command that changes the application's state; `environment` has additional variables."""
    common = ["-a", APPLICATION_ID, "-b", world.servers, "--base-dir", str(world.application.base), "--yes"]
    started = [sys.executable, "-m", "streams", name, world.application.target, *common, *options]
    return CommandProcess(started, world.folder, {**own_environment(), **(environment or {})})


def adopt(world: World, environment: Mapping[str, str] | None = None) -> None:
    """Runs `streams adopt` to its end."""
    to_its_end(world, command(world, "adopt", environment=environment))


def to_its_end(world: World, running: CommandProcess) -> None:
    """Waits until a command has done its work."""
    try:
        world.require(running.ended(ADOPT_S) == 0, f"it failed: {running.log()[-600:]}")
    finally:
        running.close()


@drill(
    "D42",
    "killed within rescales",
    injects="SIGKILL to `streams rescale`, several times, from 2 tasks to 3 and back",
    holds="the rescale continues, and the results are the same as without it",
    minutes=3,
)
def killed_within_rescales(world: World) -> None:
    # Topics of two partitions: with three tasks, a live application continues in micro-batches.
    world.partly_live()
    world.start()
    for tasks in ("3", "2"):
        world.stop_at_rest()
        kills = sum(killed_within_a_rescale(world, tasks) for _ in range(RESCALES))
        world.require(kills > 0, "no rescale was killed between its beginning and its end")
        to_its_end(world, command(world, "rescale", "--tasks", tasks))
        world.restarts(f"a rescale to {tasks} tasks", "--tasks", tasks)


def killed_within_a_rescale(world: World, tasks: str) -> bool:
    """Kills `streams rescale` soon after its notes appear in Kafka; returns whether it was killed before it had finished."""

    def notes() -> list[str]:
        return world.internal_topics("-rescale")

    rescaling = command(world, "rescale", "--tasks", tasks)
    rescaling.until_end(lambda: bool(notes()), ADOPT_S, "no notes of the rescale")
    time.sleep(world.drawn.uniform(0, KILLED_WITHIN_S))
    rescaling.close()
    if left := notes():
        world.saw(f"streams rescale --tasks {tasks} was killed, and {', '.join(left)} remained")
    return bool(left)


@drill(
    "D51",
    "killed within a hand-over",
    injects="SIGKILL to `streams export-app`, then to `streams import-app`, each once it has written to Kafka",
    holds="the same command finishes the hand-over, and the results are the same as without it",
    minutes=3,
)
def killed_within_a_hand_over(world: World) -> None:
    world.start()
    world.stop_at_rest()
    for name in ("export-app", "import-app"):
        killed_within_writes_of(world, name)
        again = command(world, name)
        again.ended(ADOPT_S)
        if "`streams adopt` finishes it" in again.log():
            # It was killed after the last marker.
            again.close()
            adopt(world)
        else:
            to_its_end(world, again)
    world.restarts("the state was handed over and taken back")


def killed_within_writes_of(world: World, name: str) -> None:
    """Kills a command once its first marker is in Kafka."""
    before = world.commits()
    running = command(world, name)
    running.until_end(lambda: world.commits() > before, ADOPT_S, f"streams {name} has written nothing")
    killed = running.running
    running.close()
    world.require(killed, f"streams {name} was over before it was killed: {running.log()[-600:]}")
    world.saw(f"streams {name} was killed when {world.commits() - before} records of markers were written")


# Faults of whole drivers: killed between two commits, two at a time, stalled and resumed, or from another program.

SECOND_DRIVER_S = 300.0
LATE_S = 12.0
"""Seconds within which a driver that has lost against another one notices it, in every sub-topology."""
REFUSED = (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
LAST_EPOCH = 32_766
"""The last epoch that a coordinator gives a producer id (`TransactionMetadata.isEpochExhausted`)."""
SUB = "orders"
"""The first sub-topology of the default program."""


def writer(world: World) -> str:
    """The transactional id that commits for task 0: the task's own, or in live execution the one of its slot."""
    return slot_transactional_id(APPLICATION_ID, 0) if world.live else f"{APPLICATION_ID}-{SUB}-0"


@drill(
    "D03",
    "driver killed between two commits",
    injects="SIGKILL to driver, JVM and workers after Kafka's commit and before Spark's",
    holds="the committed step is skipped, the others are done again",
    any_program=True,
)
def between_commits(world: World) -> None:
    world.start(faults="freeze after_commit@0:4")
    frozen_worker(world)
    step = world.application.happened()[0][1]
    batches = {log: newest(world, log) for log in ("offsets", "commits")}
    world.application.kill_all()
    unfinished = any(a > b for a, b in zip(batches["offsets"], batches["commits"], strict=True))
    world.require(unfinished or world.live, f"{batches}")
    world.saw(f"driver killed after {step}; Spark's newest micro-batches (offsets, commits): {batches}")
    world.restarts("a new driver was started")


def newest(world: World, log: str) -> list[int]:
    """Sub-topology -> the newest micro-batch in one of Spark's logs."""
    folders = sorted(folder for folder in world.application.checkpoint.iterdir() if (folder / "offsets").is_dir())
    return [last_batch(folder / log) for folder in folders]


@drill(
    "D04",
    "two drivers",
    injects="a second driver on the same checkpoint, and one on a copy of it",
    holds="at most one continues",
    any_program=True,
)
def two_drivers(world: World) -> None:
    world.start()
    beside(world, "the same checkpoint")
    survives(world, "two drivers on one checkpoint")
    copy = world.folder / "copied"
    try:
        shutil.copytree(world.application.checkpoint, copy)
    except shutil.Error as error:
        # Files change while they are copied, so a copy of a checkpoint in use is never quite consistent.
        world.say(f"copying: {str(error)[:100]}")
    beside(world, "a copy of the checkpoint", "--set", f"checkpoint_dir={copy}")
    survives(world, "a second driver on a copied checkpoint")


def beside(world: World, where: str, *options: str) -> None:
    """Runs a second driver until one of the two has ended. The other one continues, or is started again."""
    ended = world.race(SECOND_DRIVER_S, *options)
    world.require(bool(ended), f"two drivers on {where} ran for {SECOND_DRIVER_S:g} s, and neither ended")
    for name, words in ended.items():
        world.saw(f"on {where} the {name} ended: {words[:200]}")


def survives(world: World, after: str) -> None:
    """Waits for results. If the remaining driver ends late, because it lost against the other one, it is started again."""
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


@drill(
    "D05",
    "zombie",
    injects="a host that stalls within a transaction, is replaced, and wakes up",
    holds="the broker refuses its commit",
)
def zombie(world: World) -> None:
    # Its local stores are elsewhere, as on another machine.
    world.start("--set", f"state_dir={world.folder / 'other-host'}", faults="freeze before_commit@0:4")
    frozen_worker(world)
    stalled = world.application.current
    stalled.freeze()
    # Another host does not see the lock of this one.
    (world.application.checkpoint / LOCK).unlink()
    world.restarts("another host took over from a stalled one")
    world.at_rest()
    # No other process commits now, in any sub-topology that the stalled worker may belong to.
    commit = world.proxy.on(END_TXN, ProxyAction.WATCH, f"{APPLICATION_ID}-".encode())
    stalled.thaw()
    world.require(commit.hit.wait(60), "the stalled worker did not try to commit")
    code = commit.error_code()
    world.require(code in REFUSED, f"the broker took the commit of the stalled worker (error code {code})")
    world.saw(f"the stalled worker's commit was refused by the broker (error code {code})")
    stalled.close()
    stalled.all_gone()
    world.load.paused = False
    world.recovers("the stalled host was switched off")


@drill(
    "D31",
    "changed program",
    injects="a program with another structure on the state of a program that was killed within a step",
    holds="a `TopologyMismatchError` before anything is written; the right program continues",
)
def changed_program(world: World) -> None:
    world.start(faults="freeze marker_sent@0:4")
    frozen_worker(world)
    world.application.kill_all()
    said = world.refused("TopologyMismatchError", target="streams.drills.program:changed")
    world.saw(f"a changed program was refused: {said[:160]}")
    world.restarts("the right program was started again")


@drill(
    "D43",
    "end of a producer's epochs",
    injects="a task's transactional id is fenced until its epochs are used up",
    holds="the broker gives the next producer another id, and steps continue",
    minutes=2,
)
def exhausted_epochs(world: World) -> None:
    world.start()
    world.application.kill_all()
    name = writer(world)
    with JavaAdmin({"bootstrap.servers": world.broker.bootstrap_servers}) as admin:
        # The first one aborts what the kill has left open, and takes a new epoch.
        admin.fence(name)
        first, epoch = admin.producer(name)
        for _ in range(LAST_EPOCH - epoch):
            admin.fence(name)
        last, at_end = admin.producer(name)
    world.require((last, at_end) == (first, LAST_EPOCH), f"producer {first} of epoch {epoch} became {last}, {at_end}")
    world.restarts("a producer was at the end of its epochs")
    with JavaAdmin({"bootstrap.servers": world.broker.bootstrap_servers}) as admin:
        now, epoch = admin.producer(name)
    world.require(now != first, f"the producer still has the id {first}, and epoch {epoch}")
    world.saw(f"producer {first} of {name} was at epoch {at_end}; its successor {now} has epoch {epoch}")
