"""Faults of Spark's checkpoint: lost, rolled back, cut short; and a new one from the markers."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from streams.drills.processes import CommandProcess
from streams.drills.world import APPLICATION_ID, World

MISMATCH = "CheckpointMismatchError"
ADOPT_S = 120.0


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


def adopt(world: World) -> None:
    """Runs `streams adopt`."""
    options = ["-a", APPLICATION_ID, "-b", world.servers, "--base-dir", str(world.application.base), "--yes"]
    command = [sys.executable, "-m", "streams", "adopt", world.application.target, *options]
    adopting = CommandProcess(command, world.folder)
    try:
        world.require(adopting.ended(ADOPT_S) == 0, f"streams adopt failed: {adopting.log()[-600:]}")
    finally:
        adopting.close()
