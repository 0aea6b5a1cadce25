"""The page of results (`docs/drills.md`): what each drill injects, what must hold, and how long the recovery took."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from streams.drills.drill import Drill
from streams.drills.runner import DrillResult, Outcome

_HEAD = """\
# Fault drills

`streams drill list` prints the drills, `streams drill run D03` holds one of them, `streams drill run quick` those of `make test`,
and `make drills` all of them. This page is made by `streams drill run all --report docs/drills.md`.

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


def page(results: Sequence[DrillResult], drills: Sequence[Drill]) -> str:
    """The page for the results of a run."""
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    passed = sum(one.outcome is Outcome.PASSED for one in results)
    minutes = sum(one.seconds for one in results) / 60
    said = f"{passed} of {len(results)} drills that were held passed, in {minutes:.0f} minutes ({machine})."
    by_id = {one.drill.id: one for one in results}
    rows = [_row(drill, by_id.get(drill.id)) for drill in drills]
    table = ["| drill | injects | must hold | result | recovery |", "|---|---|---|---|---|", *rows]
    seen = [line for one in results for line in _details(one)]
    return "\n".join([_HEAD + said, "", *table, "", "## What was seen", *seen]) + "\n"


def _row(drill: Drill, result: DrillResult | None) -> str:
    outcome = "not held" if result is None else result.outcome.value
    if result is not None and result.wrong:
        outcome += f": {_cell(result.wrong[0])}"
    recovery = _seconds(None if result is None else result.recovery_s)
    title = f"{drill.id} {drill.title}{' (quick)' if drill.quick else ''}"
    return f"| {' | '.join((title, drill.injects, drill.holds, outcome, recovery))} |"


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
    """Text for a table: one line, without what Markdown would take for its own."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")[:300]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
