"""`streams describe`: a topology as Kafka Streams' text, as a Mermaid chart, or as JSON for `streams diff`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from streams.cli.command import command
from streams.cli.settings import AsJson, Target
from streams.cli.target import load_topology
from streams.topology.manifest import manifest_json


class Format(str, Enum):
    """Formats of a description."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"


@command
def describe(
    target: Target,
    form: Annotated[
        Format, typer.Option("--format", "-f", help="Kafka Streams' text, a Mermaid chart, or JSON for `streams diff`.")
    ] = Format.TEXT,
    as_json: AsJson = False,
) -> None:
    """Print a topology: sub-topologies, operators, stores and topics."""
    topology = load_topology(target)
    if as_json or form is Format.JSON:
        typer.echo(manifest_json(topology))
        return
    typer.echo(topology.describe() if form is Format.TEXT else topology.mermaid(), nl=False)
    typer.echo()
