"""Faults of lake sinks: drivers killed between any two steps of a Delta commit."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from streams.drills.delta_rows import delta_rows
from streams.drills.program.lake import EACH, FOLDER, LATEST, wrong_rows
from streams.drills.program.topology import ORDERS
from streams.drills.reader import read_committed
from streams.drills.world import START_S, World
from streams.errors import StreamsError
from streams.wording import counted

CRASH = "STREAMS_LAKE_CRASH"
"""The variable of `streams/spark/lake/crash.py`."""
KILLS = ("resumed:2", "offsets_logged:3", "table_committed:3", "purged:3", "table_committed:1")
"""Point and how often it is reached first: with two sinks, the third time is in the midst of the run."""
TABLES_S = 120.0


def killed_around_a_delta_commit(world: World) -> None:
    """D35: the driver is killed before, within and after the commits of two Delta tables, again and again."""
    lake = world.folder / "lake"
    world.application.target = "streams.drills.program.lake:build"
    variables = {FOLDER: str(lake)}
    for kill in KILLS:
        world.application.start(environment={**variables, CRASH: kill})
        code = world.application.current.ended(START_S)
        world.require(code == -signal.SIGKILL, f"{kill}: exit code {code}: {world.application.current.last_words()}")
        world.saw(f"driver killed at {kill}; {counted(len(delta_rows(lake / EACH)), 'row')} so far")
    killed = time.monotonic()
    world.application.start(environment=variables)
    world.recovers("the last kill", killed)
    world.load.paused = True
    world.at_rest()
    wrong = differences(world, lake)
    deadline = time.monotonic() + TABLES_S
    while wrong and time.monotonic() < deadline:
        time.sleep(1)
        wrong = differences(world, lake)
    world.require(not wrong, "; ".join(wrong))
    world.say(f"{counted(len(delta_rows(lake / EACH)), 'order')} in the tables, each once")


def differences(world: World, lake: Path) -> list[str]:
    """What differs between the tables and the input, now."""
    try:
        each, latest = delta_rows(lake / EACH), delta_rows(lake / LATEST)
    except (OSError, StreamsError) as error:  # a file that a commit has just replaced
        return [str(error)]
    return wrong_rows(read_committed(world.broker.bootstrap_servers, ORDERS), each, latest)
