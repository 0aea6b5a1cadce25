"""Faults of Spark's checkpoint: lost, rolled back, cut short; and a new one from the markers."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from streams.application.adopt import ADOPTING
from streams.checkpoint.files import FIRST_BATCH
from streams.drills.failure import DrillFailed
from streams.drills.processes import CommandProcess, own_environment, wait_until
from streams.drills.world import APPLICATION_ID, World

MISMATCH = "CheckpointMismatchError"
ADOPT_S = 120.0
ADOPTIONS, RESCALES = 5, 3
LATE_S = 1.5


def wrong_checkpoints(world: World) -> None:
    """D17: a checkpoint lacks its last commit, which heals; one that is rolled back, cut short or lost is refused."""
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
    began = time.monotonic()
    world.application.start()
    world.recovers("a new checkpoint was adopted", began)


def put_back(world: World, copy: Path | None) -> None:
    """Replaces the checkpoint by a copy; None: by nothing."""
    shutil.rmtree(world.application.checkpoint)
    if copy is not None:
        shutil.copytree(copy, world.application.checkpoint)


def newest_log_file(world: World, log: str) -> Path:
    """The last file of one of Spark's logs, of the sub-topology that has most, among those without an unfinished micro-batch."""
    folders = [folder for folder in world.application.checkpoint.iterdir() if (folder / "commits").is_dir()]
    finished = [folder for folder in folders if last_batch(folder / "offsets") == last_batch(folder / "commits") >= 0]
    world.require(bool(finished), "each sub-topology has an unfinished micro-batch")
    folder = max(finished, key=lambda folder: last_batch(folder / log))
    newest = folder / log / str(last_batch(folder / log))
    # Spark would compare the file with its checksum, which a lost write would not have changed either.
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    return newest


def last_batch(log: Path) -> int:
    """The last micro-batch in one of Spark's logs; -1: none."""
    return max((int(file.name) for file in log.glob("*") if file.name.isdigit()), default=-1)


def killed_within_an_adoption(world: World) -> None:
    """Kills `streams adopt` once its plan is on the disk, and before a checkpoint has taken its place."""

    def plans() -> list[str]:
        return [plan.parent.name for plan in world.application.checkpoint.glob(f"*{ADOPTING}/{FIRST_BATCH}")]

    def planned_or_over(adopting: CommandProcess) -> bool:
        return bool(plans()) or not adopting.running

    for _ in range(ADOPTIONS):
        adopting = command(world, "adopt")
        wait_until(partial(planned_or_over, adopting), ADOPT_S, "no plan of the adoption", adopting.log)
        adopting.close()
        if left := plans():
            world.saw(f"streams adopt was killed, and its plan was left in {left[0]}")
            return
        put_back(world, None)
    raise DrillFailed(f"all of {ADOPTIONS} adoptions were over before they were killed")


def command(world: World, name: str, *options: str, environment: Mapping[str, str] | None = None) -> CommandProcess:
    """Starts a command that changes the state of the application; `environment`: further variables."""
    common = ["-a", APPLICATION_ID, "-b", world.servers, "--base-dir", str(world.application.base), "--yes"]
    started = [sys.executable, "-m", "streams", name, world.application.target, *common, *options]
    return CommandProcess(started, world.folder, {**own_environment(), **(environment or {})})


def adopt(world: World, environment: Mapping[str, str] | None = None) -> None:
    """Runs `streams adopt` to its end."""
    to_its_end(world, command(world, "adopt", environment=environment))


def to_its_end(world: World, running: CommandProcess) -> None:
    """Waits until a command has done what it was asked for."""
    try:
        world.require(running.ended(ADOPT_S) == 0, f"it failed: {running.log()[-600:]}")
    finally:
        running.close()


def killed_within_rescales(world: World) -> None:
    """D42: SIGKILL to `streams rescale`, several times, to 3 tasks and back to 2; what was begun is continued."""
    world.start()
    for tasks in ("3", "2"):
        world.stop_at_rest()
        kills = sum(killed_within_a_rescale(world, tasks) for _ in range(RESCALES))
        world.require(kills > 0, "no rescale was killed between its beginning and its end")
        to_its_end(world, command(world, "rescale", "--tasks", tasks))
        began = time.monotonic()
        world.application.start("--tasks", tasks)
        world.recovers(f"a rescale to {tasks} tasks", began)


def killed_within_a_rescale(world: World, tasks: str) -> bool:
    """Kills `streams rescale` a moment after its notes appear in Kafka; whether it was neither too early nor too late."""

    def notes() -> list[str]:
        return world.internal_topics("-rescale")

    rescaling = command(world, "rescale", "--tasks", tasks)
    wait_until(lambda: bool(notes()) or not rescaling.running, ADOPT_S, "no notes of the rescale", rescaling.log)
    time.sleep(world.drawn.uniform(0, LATE_S))
    rescaling.close()
    if left := notes():
        world.saw(f"streams rescale --tasks {tasks} was killed, and {', '.join(left)} remained")
    return bool(left)
