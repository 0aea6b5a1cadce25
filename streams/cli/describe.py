"""`streams describe`: a topology as Kafka Streams' text, as a Mermaid chart, or as what `streams diff` compares."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from streams.cli.errors import readable_errors
from streams.cli.run import load_topology
from streams.cli.settings import Target
from streams.topology.manifest import manifest_json


class Format(str, Enum):
    """Forms of a description."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"


@readable_errors
def describe(
    target: Target,
    form: Annotated[
        Format, typer.Option("--format", "-f", help="Kafka Streams' text, a Mermaid chart, or JSON for `streams diff`.")
    ] = Format.TEXT,
) -> None:
    """Print a topology: sub-topologies, operators, stores and topics."""
    topology = load_topology(target)
    if form is Format.JSON:
        typer.echo(manifest_json(topology))
        return
    typer.echo(topology.describe() if form is Format.TEXT else topology.mermaid(), nl=False)
    typer.echo()
