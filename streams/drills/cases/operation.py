"""Faults while an application is operated: killed while it is paused, and clocks of machines that are a day off."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from streams.drills.cases.drivers import ADOPT_S, to_its_end
from streams.drills.drill import DrillFailed, drill
from streams.drills.processes import CommandProcess, own_environment
from streams.drills.world import APPLICATION_ID, START_S, World

QUIET_S = 5.0
"""Seconds without a commit, under load, that only a paused application has."""
_WRONG_CLOCK = """
import runpy, sys, time
real, real_ns = time.time, time.time_ns
time.time, time.time_ns = lambda: real() + {seconds}, lambda: real_ns() + {seconds} * 10**9
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


class WrongClock:
    """A Python whose clock is wrong by some days, for programs that are started as `python -m MODULE`.

    Only Python's clock is wrong. The clock of C libraries is right, and they compare times only with their own.

    Args:
        days: The days that the clock is off.
        folder: Where the program is written.
    """

    def __init__(self, days: int, folder: Path) -> None:
        self._expected_h = 24 * days
        self.python = folder / f"python-{days:+d}-days"
        code = shlex.quote(_WRONG_CLOCK.format(seconds=days * 86_400))
        self.python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {code} "$@"\n')
        self.python.chmod(0o755)

    def proof(self) -> str:
        """Shows by how much a program's clock is wrong."""
        folder = self.python.parent
        (folder / "clock.py").write_text("import time; print(time.time())\n")
        asked = [str(self.python), "-m", "clock"]
        said = subprocess.run(asked, cwd=folder, env=own_environment(), capture_output=True, check=True)
        wrong_by_h = (float(said.stdout) - time.time()) / 3600
        if abs(wrong_by_h - self._expected_h) > 1:
            raise DrillFailed(f"a clock that should be {self._expected_h:+d} h off is {wrong_by_h:+.1f} h off")
        return f"{wrong_by_h:+.1f} h"


def told(world: World, *words: str, clock: WrongClock | None = None) -> CommandProcess:
    """Starts a `streams` command, perhaps with a wrong clock."""
    python = sys.executable if clock is None else str(clock.python)
    return CommandProcess([python, "-m", "streams", *words, "-b", world.servers], world.folder)


def paused(world: World, clock: WrongClock | None = None) -> None:
    """Pauses the application, and waits until it commits nothing although there is input."""
    to_its_end(world, told(world, "pause", APPLICATION_ID, clock=clock))
    last, since = -1, 0.0

    def quiet() -> bool:
        nonlocal last, since
        if (now := world.commits()) != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since >= QUIET_S

    world.wait_for(quiet, "no commits while paused")


def _has_begun(world: World) -> bool:
    """Whether an application that was started while it is paused has begun to wait for records."""
    log = world.application.current.log()
    return bool(world.application.workers()) and "is paused" in log if world.live else "no records yet" in log


@drill(
    "D47",
    "killed while paused",
    injects="SIGKILL to workers, and to driver, JVM and workers, while the application is paused, and in the moment of a pause",
    holds="it stays paused through the kill and a new start, and continues after `streams resume` where it was",
    minutes=2,
    any_program=True,
)
def killed_while_paused(world: World) -> None:
    world.start()
    for what in ("the workers", "driver, JVM and workers"):
        paused(world)
        before = world.commits()
        if what == "the workers":
            killed = world.application.workers()
            for worker in killed:
                worker.kill()
            world.require(bool(killed), "no worker was there")
        else:
            world.application.kill_all()
            world.application.start()
            world.wait_for(partial(_has_begun, world), "the new start", START_S)
        time.sleep(QUIET_S)
        world.require(world.commits() == before, f"it has committed while paused, after a kill of {what}")
        world.saw(f"{what} killed while paused, and nothing was committed for {QUIET_S:g} s")
        to_its_end(world, told(world, "resume", APPLICATION_ID))
        world.recovers(f"{what} were killed while paused")
    pausing = told(world, "pause", APPLICATION_ID)
    world.pause(2.0)
    world.application.kill_all()
    to_its_end(world, pausing)
    world.saw("driver, JVM and workers killed in the moment of a pause")
    world.application.start()
    to_its_end(world, told(world, "resume", APPLICATION_ID))
    world.recovers("a kill in the moment of a pause")


@drill(
    "D48",
    "wrong clock of a worker",
    injects="workers whose clocks are a day ahead, then a day behind",
    holds="the same results: the driver's clock decides what is due",
    minutes=1.5,
    any_program=True,
)
def wrong_clock_of_a_worker(world: World) -> None:
    for days in (1, -1):
        clock = WrongClock(days, world.folder)
        world.start(environment={"PYSPARK_PYTHON": str(clock.python)})
        wrong = [one for one in world.application.workers() if any("real_ns()" in part for part in one.cmdline())]
        world.require(bool(wrong), "no worker has the wrong clock")
        world.saw(f"{len(wrong)} workers had a clock that was {clock.proof()} off")
        world.recovers(f"workers had a clock that was {clock.proof()} off")
        world.application.kill_all()
    world.restarts("the clocks are right again")


@drill(
    "D49",
    "wrong clock of an operator",
    injects="commands on a machine whose clock is a day ahead, then a day behind",
    holds="`pause`, `resume`, `status` and `adopt` do the same, and `reset` is refused while the application runs",
    minutes=2.5,
    any_program=True,
)
def wrong_clock_of_an_operator(world: World) -> None:
    target = world.application.target, "-a", APPLICATION_ID
    base = "--base-dir", str(world.application.base), "--yes"
    world.start()
    for days in (1, -1):
        clock = WrongClock(days, world.folder)
        paused(world, clock)
        to_its_end(world, told(world, "resume", APPLICATION_ID, clock=clock))
        world.recovers(f"a pause by a clock that is {clock.proof()} off")
        to_its_end(world, told(world, "status", *target, clock=clock))
        resetting = told(world, "reset", APPLICATION_ID, *base, clock=clock)
        code = resetting.ended(ADOPT_S)
        refused = code == 1 and "another instance" in resetting.log()
        world.require(refused, f"reset while the application runs: exit code {code}: {resetting.log()[-600:]}")
        world.saw(
            f"commands ran by a clock that is {clock.proof()} off; reset was refused: {resetting.last_words()[:120]}"
        )
        world.stop_at_rest()
        shutil.rmtree(world.application.checkpoint)
        to_its_end(world, told(world, "adopt", *target, *base, clock=clock))
        world.restarts(f"an adoption by a clock that is {clock.proof()} off")
