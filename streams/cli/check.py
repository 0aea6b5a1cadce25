"""`streams check`: problems in a topology that would show up later."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.console import Console

from streams.cli.command import command
from streams.cli.output import print_json
from streams.cli.settings import AsJson, Target
from streams.cli.target import load_topology
from streams.topology.lint import Level, LintFinding, lint

_COLOURS = {Level.PROBLEM: "red", Level.NOTE: "yellow"}


@command
def check(target: Target, as_json: AsJson = False) -> None:
    """Check a topology for problems that would show up later, without running it. Exit code 1 if there is a problem.

    Problems: state under generated names, cycles through topics, streams without output, keys made from the clock or from
    random numbers. Notes: keys of unknown type, other functions whose results differ from attempt to attempt, functions that keep
    an aggregate of fields from columns.
    """
    found = lint(load_topology(target))
    problems = sum(one.level is Level.PROBLEM for one in found)
    if as_json:
        print_json(
            [{"rule": one.rule, "level": one.level.value, "where": one.where, "says": one.says} for one in found]
        )
    else:
        _print(found, problems)
    if problems:
        raise typer.Exit(1)


def _print(found: Sequence[LintFinding], problems: int) -> None:
    console = Console()
    for one in found:
        console.print(f"[{_COLOURS[one.level]}]{one.level.value:>7}[/]  ", end="")
        console.print(f"{one.rule}: {one.where}: {one.says}.", markup=False, highlight=False, soft_wrap=True)
    notes = len(found) - problems
    counts = f"{_counted(problems, 'problem')}, {_counted(notes, 'note')}"
    console.print(counts if found else "nothing was found", highlight=False)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
