"""`streams drill run`: holds drills one after the other, prints their results, and writes the page of results."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from streams.cli.command import NOT_SAFE, command
from streams.cli.console import table_console
from streams.cli.output import print_json
from streams.cli.settings import ApplicationOptions, AsJson, reachable
from streams.cli.target import TopologyTarget
from streams.errors import ConfigError
from streams.suggest import did_you_mean

if TYPE_CHECKING:
    from streams.drills.drill import Drill
    from streams.drills.runner import DrillResult
    from streams.drills.subject import Subject

_COLOURS = {"passed": "green", "failed": "red", "skipped": "yellow", "spoiled": "yellow"}


@command
def run(
    drills: Annotated[
        list[str], typer.Argument(metavar="DRILL", help="Numbers such as D03; `quick` or `all`.", show_default=False)
    ],
    *,
    topology: Annotated[
        str | None, typer.Option(metavar="TARGET", help="A program of your own; its input is copied from its cluster.")
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="With --topology: records to copy of each partition.")] = 2_000,
    application: ApplicationOptions,
    seed: Annotated[int, typer.Option(help="The seed of the input and of random faults.")] = 1,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="How long the random faults of D30 fall.")] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page of the results in Markdown.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where scratch folders are made. Default: the system's.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Hold drills; exit code 0 only if none has failed.

    Each drill has a scratch broker, state and checkpoint of its own, in a
    folder that is deleted afterwards, unless the drill has failed.

    Exit code 3: a known defect of the broker has spoiled every attempt of a
    drill, so it proves nothing; use another seed.
    """
    from streams.drills.catalogue import DRILLS
    from streams.drills.report import page
    from streams.drills.runner import Outcome, run_drill

    chosen = _chosen(drills, topology is not None)
    if minutes is not None:
        chosen = [replace(one, conditions=replace(one.conditions, soak_s=minutes * 60)) for one in chosen]
    console = Console(stderr=True, soft_wrap=True)
    # So that everything that was started ends with this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    subject = _subject(topology, application, records, console, folder)
    results: list[DrillResult] = []
    for drill in chosen:
        console.print(f"{drill.id} {drill.title}: {drill.injects}", highlight=False, markup=False)
        began = time.monotonic()

        def say(text: str, began: float = began) -> None:
            console.print(f"{time.monotonic() - began:7.1f} s  {text}", highlight=False, markup=False)

        results.append(run_drill(drill, subject, say, seed=seed, folder=folder))
        why = "".join(f": {wrong.strip().splitlines()[0][:300]}" for wrong in results[-1].wrong[:1] if wrong.strip())
        say(f"{drill.id} {results[-1].outcome.value}{why}")
        if report is not None:
            # After each, so that a run which is ended before its end has told what it found.
            report.write_text(page(results, DRILLS), encoding="utf-8")
    if as_json:
        print_json([one.as_dict() for one in results])
    else:
        _print(results)
    outcomes = {one.outcome for one in results}
    if Outcome.FAILED in outcomes:
        raise typer.Exit(1)
    if Outcome.SPOILED in outcomes:
        raise typer.Exit(NOT_SAFE)


def _chosen(names: Sequence[str], own_program: bool) -> list[Drill]:
    """The drills for numbers, `quick` and `all`; for a user's program, only those that can be held with any."""
    from streams.drills.catalogue import DRILLS

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
                f"{found.id} cannot be held with a program of your own: its fault lies in its own program"
            )
        chosen.append(found)
    return chosen


def _subject(
    topology: str | None, application: ApplicationOptions, records: int, console: Console, folder: Path | None
) -> Subject:
    if topology is None:
        from streams.drills.program.subject import OwnProgram

        return OwnProgram()
    from streams.drills.users_program import UsersProgram

    target = TopologyTarget.parse(topology)
    config = reachable(application.load(target.application_id()))
    target.share_with_workers()
    options = [part for text in application.settings or () for part in ("--set", text)]
    if application.config is not None:
        options += ["--config", str(application.config)]
    program = UsersProgram.copied(topology, target.load(), config, records, options)
    console.print(f"{program.total} records copied; a run without faults …", highlight=False)
    with tempfile.TemporaryDirectory(prefix="streams-drill-reference-", dir=folder) as scratch:
        program.run_undisturbed(Path(scratch))
    return program


def _print(results: Sequence[DrillResult]) -> None:
    table = Table("Drill", "Title", "Result", "Seconds", "Recovery", "", box=None, header_style="bold")
    for one in results:
        colour = _COLOURS[one.outcome.value]
        recovery = "-" if one.recovery_s is None else f"{one.recovery_s:.1f} s"
        what: Any = one.wrong[0] if one.wrong else f"{len(one.evidence)} proofs"
        if one.folder is not None:
            what = f"{what} (logs and state: {one.folder})"
        table.add_row(
            one.drill.id, one.drill.title, f"[{colour}]{one.outcome.value}[/]", f"{one.seconds:.0f}", recovery, what
        )
    table_console().print(table)
