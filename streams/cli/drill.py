"""`streams drill`: lists fault drills, runs them one after the other, and writes the page of their results."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from streams.cli.command import NOT_SAFE, OptionGroup, argument, command, option
from streams.cli.command import application as group
from streams.cli.options import ApplicationOptions, AsJson, reachable
from streams.cli.output import print_json, print_table
from streams.cli.target import TopologyTarget
from streams.config import Execution, StreamsConfig
from streams.drills.cases import DRILLS
from streams.drills.drill import Drill
from streams.drills.program import OwnProgram
from streams.drills.runner import DrillResult, Outcome, page, run_drill
from streams.drills.subject import Subject
from streams.drills.users_program import UsersProgram
from streams.errors import ConfigError
from streams.wording import did_you_mean

_COLOURS = {"passed": "green", "failed": "red", "skipped": "yellow", "spoiled": "yellow"}


@command
def list_drills(as_json: AsJson = False) -> None:
    """List all drills: what they inject, and what must hold."""
    if as_json:
        print_json([drill.as_dict() for drill in DRILLS])
        return
    rows = []
    for drill in DRILLS:
        title = f"{drill.title} (quick)" if drill.quick else drill.title
        program = "any program" if drill.any_program else "its own program"
        needs = f"{program}; needs {drill.needs}" if drill.needs else program
        rows.append((drill.id, title, drill.injects, drill.holds, f"{drill.minutes:g}", needs))
    print_table(("Drill", "Title", "Injects", "Must hold", "Minutes", "Runs with"), rows)


RunsBy = Annotated[
    Execution,
    option("How the application runs: `auto` is live except in drills about micro-batches, which `live` leaves out."),
]
Report = Annotated[
    Path | None,
    option("Write the results to this Markdown page. Results of other drills on it are kept.", metavar="FILE"),
]


@dataclass(frozen=True)
class ProgramOptions(OptionGroup):
    """The program that a drill runs."""

    topology: Annotated[
        str | None, option("Your own program; its input is copied from its cluster.", metavar="TARGET")
    ] = None
    records: Annotated[int, option("With --topology: how many records to copy from each partition.", min=1)] = 2_000


@command
def run(
    drills: Annotated[list[str], argument("Numbers such as D03; `quick` or `all`.", metavar="DRILL")],
    *,
    program: ProgramOptions,
    application: ApplicationOptions,
    seed: Annotated[int, option("The seed of the input and of random faults.")] = 1,
    execution: RunsBy = StreamsConfig.model_fields["execution"].default,
    minutes: Annotated[float | None, option("How long D30 injects random faults.", min=0.1)] = None,
    report: Report = None,
    folder: Annotated[
        Path | None,
        option("Where to create scratch folders. Default: the system's folder for temporary files.", metavar="DIR"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run drills; exit code 0 only if none has failed.

    Each drill has its own scratch broker, state and checkpoint, in a
    folder that is deleted afterwards, unless the drill has failed.

    Exit code 3: a known bug of the broker has spoiled every attempt of a
    drill, so it proves nothing. Use another seed.
    """
    left_out = execution is Execution.LIVE
    chosen = [one for one in _chosen(drills, program.topology is not None) if not (left_out and one.not_live)]
    live = execution is not Execution.MICRO_BATCH
    if minutes is not None:
        chosen = [replace(one, conditions=replace(one.conditions, soak_s=minutes * 60)) for one in chosen]
    console = Console(stderr=True, soft_wrap=True)
    # So that everything that was started ends with this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    subject = _subject(program, application, console, folder)
    results: list[DrillResult] = []
    before = report.read_text(encoding="utf-8") if report is not None and report.exists() else ""
    for drill in chosen:
        hold = partial(run_drill, drill, subject, seed=seed, folder=folder, live=live)
        results.append(_hold_and_report(drill, hold, console))
        if report is not None:
            # After each, so that a run that is cut short has reported what it found.
            report.write_text(page(results, DRILLS, live, before), encoding="utf-8")
    if as_json:
        print_json([one.as_dict() for one in results])
    else:
        print_table(("Drill", "Title", "Result", "Seconds", "Recovery", ""), map(_row, results))
    outcomes = {one.outcome for one in results}
    raise typer.Exit(1 if Outcome.FAILED in outcomes else NOT_SAFE if Outcome.SPOILED in outcomes else 0)


def _hold_and_report(
    drill: Drill, hold: Callable[[Callable[[str], None]], DrillResult], console: Console
) -> DrillResult:
    """Runs a drill, and says what happens in it and how it ended."""
    say_line = partial(console.print, highlight=False, markup=False)
    say_line(f"{drill.id} {drill.title}: {drill.injects}")
    began = time.monotonic()

    def say(text: str) -> None:
        say_line(f"{time.monotonic() - began:7.1f} s  {text}")

    result = hold(say)
    why = "".join(f": {wrong.strip().splitlines()[0][:300]}" for wrong in result.wrong[:1] if wrong.strip())
    say(f"{drill.id} {result.outcome.value}{why}")
    return result


def _chosen(names: Sequence[str], own_program: bool) -> list[Drill]:
    """The drills for the given numbers, `quick` or `all`. For a user's program, only drills for any program."""
    by_id = {drill.id: drill for drill in DRILLS}
    chosen: list[Drill] = []
    for name in names:
        if name in ("all", "quick"):
            chosen += [one for one in DRILLS if (name == "all" or one.quick) and (one.any_program or not own_program)]
            continue
        found = by_id.get(name.upper())
        if found is None:
            raise ConfigError(
                f"there is no drill {name!r}.{did_you_mean(name.upper(), by_id)} `streams drill list` lists all."
            )
        if own_program and not found.any_program:
            raise ConfigError(
                f"{found.id} cannot run with your own program, because its fault is part of its own program"
            )
        chosen.append(found)
    return chosen


def _subject(chosen: ProgramOptions, application: ApplicationOptions, console: Console, folder: Path | None) -> Subject:
    if chosen.topology is None:
        return OwnProgram()
    target = TopologyTarget.parse(chosen.topology)
    config = reachable(application.load(target.application_id()))
    target.share_with_workers()
    options = [part for text in application.settings or () for part in ("--set", text)]
    if application.config is not None:
        options += ["--config", str(application.config)]
    program = UsersProgram.copied(chosen.topology, target.load(), config, chosen.records, options)
    console.print(f"{program.total} records copied; starting a run without faults …", highlight=False)
    with tempfile.TemporaryDirectory(prefix="streams-drill-reference-", dir=folder) as scratch:
        program.run_undisturbed(Path(scratch))
    return program


def _row(one: DrillResult) -> tuple[str, ...]:
    colour = _COLOURS[one.outcome.value]
    recovery = "-" if one.recovery_s is None else f"{one.recovery_s:.1f} s"
    what = one.wrong[0] if one.wrong else f"{len(one.evidence)} proofs"
    if one.folder is not None:
        what = f"{what} (logs and state: {one.folder})"
    return one.drill.id, one.drill.title, f"[{colour}]{one.outcome.value}[/]", f"{one.seconds:.0f}", recovery, what


app = group(
    "Fault drills: a fault is injected into a running application on a scratch broker, and the results are verified.",
    {"list": list_drills, "run": run},
)
