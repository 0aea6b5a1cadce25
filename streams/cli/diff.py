"""`streams diff`: what a changed topology would do to the state of a running application."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from streams.cli.command import NOT_SAFE, command
from streams.cli.output import print_json
from streams.cli.settings import AsJson, Target
from streams.cli.target import load_topology
from streams.errors import ConfigError
from streams.topology.change import REFUSED
from streams.topology.diff import Severity, TopologyChange, compare, worst
from streams.wording import counted

_COLOURS = {Severity.SAFE: "green", Severity.NEEDS_MIGRATION: "yellow", Severity.LOSES_STATE: "red"}

Old = Annotated[
    Path,
    typer.Argument(
        metavar="OLD.json",
        help="The old program: topology.json from the application's checkpoint folder, or what "
        "`streams describe --format json` printed for it.",
        show_default=False,
    ),
]


@command
def diff(old: Old, target: Target, as_json: AsJson = False) -> None:
    """Compare a topology with the one that wrote the state: safe, needs migration, or loses state.

    Shows what the engine would do at a start of the new program, which makes the same comparison before it writes anything.
    Exit code 0 if all is safe, 3 if not. Functions are not compared.
    """
    changes = compare(_read(old), load_topology(target))
    verdict = worst(changes)
    if as_json:
        print_json(
            {"verdict": verdict.value, "engine": _engine(changes), "changes": [_as_dict(one) for one in changes]}
        )
    else:
        _print(changes, verdict)
    if verdict is not Severity.SAFE:
        raise typer.Exit(NOT_SAFE)


def _print(changes: Sequence[TopologyChange], verdict: Severity) -> None:
    console = Console()
    for change in changes:
        console.print(f"[{_COLOURS[change.severity]}]{change.severity.value:>15}[/]  ", end="")
        # What a refusal means is the same for all changes, and comes once, at the end.
        text = f"{change.where}: {change.what} {change.says.removesuffix(f'. {REFUSED}')}."
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    count = counted(len(changes), "change") if changes else "no changes"
    if any(change.refused and not change.depends for change in changes):
        console.print(f"{REFUSED}.", highlight=False, soft_wrap=True)
    console.print(f"{count}: {verdict.value}; {_engine(changes)}", highlight=False)


def _as_dict(change: TopologyChange) -> dict[str, Any]:
    return {
        "severity": change.severity.value,
        "where": change.where,
        "what": change.what,
        "says": change.says,
        "refused": change.refused,
        "depends_on_topics": change.depends,
    }


def _engine(changes: Sequence[TopologyChange]) -> str:
    """The engine's decision about the new program, in words."""
    refused = [change for change in changes if change.refused]
    if not refused:
        return "the engine starts, and goes on with the state"
    if all(change.depends for change in refused):
        return "whether the engine starts depends on the topics named above"
    return "the engine refuses to start"


def _read(path: Path) -> dict[str, Any]:
    try:
        found = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"The description {path} cannot be read: {error.strerror}.") from error
    except orjson.JSONDecodeError as error:
        raise ConfigError(
            f"The old program {path} is not JSON ({error}): give what `streams describe --format json` printed for it, or "
            f"topology.json from the application's checkpoint folder."
        ) from error
    return found if isinstance(found, dict) else {}
