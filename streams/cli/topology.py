"""`streams check`, `describe` and `diff`: commands that look at a topology without running it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from streams.cli.command import NOT_SAFE, argument, command, option
from streams.cli.options import AsJson, Target
from streams.cli.output import print_finding, print_json
from streams.cli.target import load_topology
from streams.config import Execution, StreamsConfig
from streams.errors import ConfigError
from streams.topology.diff import REFUSED, StateEffect, TopologyChange, compare, worst
from streams.topology.lint import Level, lint
from streams.topology.manifest import manifest_json
from streams.topology.plan import with_added_topics
from streams.wording import counted

_COLOURS = {Level.PROBLEM: "red", Level.NOTE: "yellow"}
_SEVERITY_COLOURS = {StateEffect.SAFE: "green", StateEffect.NEEDS_MIGRATION: "yellow", StateEffect.LOSES_STATE: "red"}


@command
def check(target: Target, as_json: AsJson = False) -> None:
    """Check a topology for problems that would show up later, without running it. Exit code 1 if there is a problem.

    Problems: state under generated names, cycles through topics, streams without output, keys made from the clock or from
    random numbers. Notes: keys of unknown type, other functions whose results differ between attempts, functions that keep
    an aggregate of fields from running on columns.
    """
    found = lint(load_topology(target))
    problems = sum(one.level is Level.PROBLEM for one in found)
    if as_json:
        print_json(
            [{"rule": one.rule, "level": one.level.value, "where": one.where, "says": one.says} for one in found]
        )
    else:
        for one in found:
            print_finding(one.level.value, _COLOURS[one.level], f"{one.rule}: {one.where}: {one.says}.")
        counts = f"{counted(problems, 'problem')}, {counted(len(found) - problems, 'note')}"
        Console().print(counts if found else "nothing was found", highlight=False)
    if problems:
        raise typer.Exit(1)


class DescriptionFormat(str, Enum):
    """Formats of a description."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"
    WAYS = "ways"


@command
def describe(
    target: Target,
    form: Annotated[
        DescriptionFormat,
        option(
            "Kafka Streams' text, a Mermaid chart, JSON for `streams diff`, or the way in which each operator processes "
            "records: on columns, together, one by one.",
            *("--format", "-f"),
        ),
    ] = DescriptionFormat.TEXT,
    as_json: AsJson = False,
    execution: Annotated[
        Execution,
        option(
            "Plan for an application that first starts with this execution. All but micro-batch add repartition topics where a "
            "function makes keys.",
            "--execution",
        ),
    ] = StreamsConfig.model_fields["execution"].default,
) -> None:
    """Print a topology: sub-topologies, operators, stores and topics."""
    topology = load_topology(target)
    if execution is not Execution.MICRO_BATCH:
        topology = with_added_topics(topology, {})
    if as_json or form is DescriptionFormat.JSON:
        typer.echo(manifest_json(topology))
        return
    texts = {
        DescriptionFormat.TEXT: topology.describe,
        DescriptionFormat.MERMAID: topology.mermaid,
        DescriptionFormat.WAYS: topology.explain,
    }
    typer.echo(texts[form](), nl=form is not DescriptionFormat.WAYS)


@command
def diff(
    old: Annotated[
        Path,
        argument(
            "The old program: topology.json from the application's checkpoint folder, or what "
            "`streams describe --format json` printed for it.",
            metavar="OLD.json",
        ),
    ],
    target: Target,
    as_json: AsJson = False,
) -> None:
    """Compare a topology with the one that wrote the state: safe, needs migration, or loses state.

    Shows what the engine would do when the new program starts. A start makes the same comparison before it writes anything.
    Exit code 0 if all is safe, 3 if not. Functions are not compared.
    """
    changes = compare(_read(old), load_topology(target))
    verdict = worst(changes)
    if as_json:
        print_json(
            {"verdict": verdict.value, "engine": _engine(changes), "changes": [_as_dict(one) for one in changes]}
        )
    else:
        _print_changes(changes, verdict)
    if verdict is not StateEffect.SAFE:
        raise typer.Exit(NOT_SAFE)


def _print_changes(changes: Sequence[TopologyChange], verdict: StateEffect) -> None:
    for change in changes:
        # A refusal means the same for all changes, so its explanation comes once, at the end.
        text = f"{change.where}: {change.what} {change.says.removesuffix(f'. {REFUSED}')}."
        print_finding(change.severity.value, _SEVERITY_COLOURS[change.severity], text, width=15)
    console = Console()
    if any(change.refused and not change.depends for change in changes):
        console.print(f"{REFUSED}.", highlight=False, soft_wrap=True)
    count = counted(len(changes), "change") if changes else "no changes"
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
    """The engine's decision about the new program, as a sentence."""
    refused = [change for change in changes if change.refused]
    if not refused:
        return "the engine starts, and continues with the state"
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
