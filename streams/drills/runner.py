"""Runs drills one after the other, each in a separate world, and collects their results."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from streams.drills.drill import Drill, DrillFailed, NotPossibleHere, SpoiledByBroker
from streams.drills.subject import Subject
from streams.drills.world import World

ATTEMPTS = 5
"""The maximum number of worlds for a drill, if a known bug of the broker spoils them."""
Say = Callable[[str], None]


class Outcome(str, Enum):
    """How a drill ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not possible on this machine; the result says why."""
    SPOILED = "spoiled"
    """A known bug of the broker made each attempt inconclusive."""


@dataclass
class DrillResult:
    """The result of one drill.

    Attributes:
        outcome: How it ended.
        seconds: How long it took.
        evidence: The proofs that its fault has happened.
        recoveries: The faults that the application recovered from, with the seconds until new results.
        wrong: What failed, or why the drill was skipped.
        folder: Logs and state; None: deleted.
    """

    drill: Drill
    outcome: Outcome = Outcome.PASSED
    seconds: float = 0.0
    evidence: list[str] = field(default_factory=list)
    recoveries: list[tuple[str, float]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    folder: Path | None = None

    @property
    def recovery_s(self) -> float | None:
        """The longest recovery, in seconds; None: there was none."""
        return max((seconds for _, seconds in self.recoveries), default=None)

    def as_dict(self) -> dict[str, object]:
        return {
            "drill": self.drill.id,
            "title": self.drill.title,
            "outcome": self.outcome.value,
            "seconds": round(self.seconds, 1),
            "recovery_s": None if self.recovery_s is None else round(self.recovery_s, 1),
            "recoveries": [{"after": after, "seconds": round(seconds, 1)} for after, seconds in self.recoveries],
            "evidence": self.evidence,
            "wrong": self.wrong,
            "folder": None if self.folder is None else str(self.folder),
        }


def run_drill(
    drill: Drill, subject: Subject, say: Say, *, seed: int = 1, folder: Path | None = None, live: bool = True
) -> DrillResult:
    """Runs one drill, live unless it needs micro-batches. Its folder is deleted if it passes or is skipped."""
    began = time.monotonic()
    result = DrillResult(drill)
    for attempt in range(ATTEMPTS):
        place = Path(tempfile.mkdtemp(prefix=f"streams-drill-{drill.id}-", dir=folder))
        result = _attempt(drill, subject, seed + attempt, place, say, live and not drill.not_live)
        if result.outcome in (Outcome.PASSED, Outcome.SKIPPED):
            shutil.rmtree(place, ignore_errors=True)
            result.folder = None
        if result.outcome is not Outcome.SPOILED:
            break
        say(f"the broker has spoiled seed {seed + attempt}: {result.wrong[0]}")
    result.seconds = time.monotonic() - began
    return result


def _attempt(drill: Drill, subject: Subject, seed: int, folder: Path, say: Say, live: bool) -> DrillResult:
    result = DrillResult(drill, folder=folder)
    world = World(folder, subject, drill.conditions, seed, say, live)
    result.evidence, result.recoveries = world.evidence, world.recoveries
    try:
        with world:
            try:
                drill.run(world)
                if not world.evidence:
                    raise DrillFailed("no fault was seen, so the drill proves nothing")
                result.wrong = world.settle() if drill.settles else []
            finally:
                # After any failure, first check whether a broker has left a transaction hanging.
                world.logs.check()
    except NotPossibleHere as reason:
        result.outcome, result.wrong = Outcome.SKIPPED, [str(reason)]
    except SpoiledByBroker as reason:
        result.outcome, result.wrong = Outcome.SPOILED, [str(reason)]
    except DrillFailed as error:
        result.wrong = [str(error)]
    except Exception as error:
        # An error in the drill itself, by any fault, must not keep the other drills from running.
        result.wrong = [f"{type(error).__name__}: {error}"]
    if result.wrong and result.outcome is Outcome.PASSED:
        result.outcome = Outcome.FAILED
    return result


# The page of results (`docs/drills.md`): what each drill injects, what must hold, and how long the recovery took.

_HEAD = """\
# Fault drills

`streams drill list` prints the drills, `streams drill run D03` runs one of them, `streams drill run quick` the quick ones,
and `make drills` all of them, in both executions. This page is made by `streams drill run all --report docs/drills.md`: a run of
fewer drills leaves the rows of the others as they are. The application runs live, which is the default, except in the few drills
about micro-batches. With `--execution micro-batch`, all drills run in micro-batches, and the results are on
[a page of their own](drills-micro-batches.md).

Lake sinks and sources outside Kafka always run in micro-batches, and so do sub-topologies with more tasks than partitions. In the
drills on them (D35, D41, D42, D44, D46, D50), the rest of the application runs live.

Each drill starts a broker of its own (or a cluster of three), a continuous flow of input, read_committed readers that run all
the time, and the application as a real process: a stream-stream join, windows that emit on close, counts, and a second stage
behind a repartition topic. It injects its fault and must *see* it: a drill without a proof of its fault fails. Afterwards the
verifier compares

* what the readers have seen with a recomputation from the input by a plain model: each result once, the counts of a key in order;
* what each reader saw meanwhile with what is in the topics at the end;
* the versions of the commit markers of each task with 1, 2, 3 and so on;
* the local stores with the model, and byte for byte with stores that the changelogs restore.

A drill that damages no local database also fails if a worker has taken one for damaged and restored it.

Where a named error is what must hold, the drill also compares the ends of all logs and the group's offsets before and after.

## With an application of your own

`streams drill run D02 D10 --topology shop/app.py:build -b HOST:PORT` copies the first records of the topics that the program reads
(`--records`) to a scratch broker, runs the program there once without faults, and then under each drill. Application id, state and
checkpoint are the drill's own, and the cluster is only read. Without knowledge of the program, the verifier compares the last
result of each key and the rows of all stores with the undisturbed run, the versions of the markers, and the stores with their
changelogs. `streams drill list` shows which drills take any program.

## Results

"""


_SEEN = "## What was seen"
_NOT_HELD = "not held"
_MICRO_BATCHES_HEAD = """\
# Fault drills in micro-batches

The [fault drills](drills.md), with the application in micro-batches. This page is made by
`streams drill run all --execution micro-batch --report docs/drills-micro-batches.md`.

## Results

"""


def page(results: Sequence[DrillResult], drills: Sequence[Drill], live: bool = True, before: str = "") -> str:
    """The page with the results of a run. Drills that were not run keep their rows from the last page (`before`)."""
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    by_id = {one.drill.id: one for one in results}
    told, seen = _told(before), _seen(before) | {one.drill.id: _details(one) for one in results}
    said = {
        drill.id: _outcome(drill, by_id.get(drill.id), live, told.get(drill.id, (_NOT_HELD, "-"))) for drill in drills
    }
    held = [outcome for outcome, _ in said.values() if not outcome.startswith(_NOT_HELD)]
    passed = sum(outcome.startswith(Outcome.PASSED.value) for outcome in held)
    rows = [f"| {_title(drill)} | {drill.injects} | {drill.holds} | {' | '.join(said[drill.id])} |" for drill in drills]
    head = f"{_HEAD if live else _MICRO_BATCHES_HEAD}{passed} of {len(held)} drills that ran passed ({machine})."
    table = ["| drill | injects | must hold | result | recovery |", "|---|---|---|---|---|", *rows]
    details = [line for drill in drills for line in seen.get(drill.id, ())]
    return "\n".join([head, "", *table, "", _SEEN, *details]) + "\n"


def _title(drill: Drill) -> str:
    return f"{drill.id} {drill.title}{' (quick)' if drill.quick else ''}"


def _outcome(drill: Drill, result: DrillResult | None, live: bool, told: tuple[str, str]) -> tuple[str, str]:
    """The cells for the outcome and the recovery."""
    if result is None:
        return told
    wrong = f": {_cell(result.wrong[0])}" if result.wrong else ""
    where = f" (in micro-batches: {drill.not_live})" if live and drill.not_live else ""
    return f"{result.outcome.value}{where}{wrong}", _seconds(result.recovery_s)


def _told(page: str) -> dict[str, tuple[str, str]]:
    """Drill -> the cells of a page with its outcome and its recovery."""
    rows = [line.removesuffix(" |").rsplit(" | ", 2) for line in page.splitlines() if re.match(r"\| D\d\d ", line)]
    return {row[0][2:5]: (row[1], row[2]) for row in rows}


def _seen(page: str) -> dict[str, list[str]]:
    """Drill -> the lines of a page about what was seen, with the empty line before them."""
    _, _, text = page.partition(_SEEN)
    parts = re.split(r"\n\*\*(?=D\d\d )", text)[1:]
    return {part[:3]: ["", *f"**{part}".rstrip().splitlines()] for part in parts}


def _details(result: DrillResult) -> list[str]:
    if not result.evidence and not result.recoveries:
        return []
    recoveries = [f"* {_seconds(seconds)} until results after: {_cell(after)}" for after, seconds in result.recoveries]
    return [
        "",
        f"**{result.drill.id} {result.drill.title}**",
        "",
        *(f"* {_cell(p)}" for p in result.evidence),
        *recoveries,
    ]


def _cell(text: str) -> str:
    """Text for a table cell: one line, in which Markdown's own characters are escaped."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")[:300]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
