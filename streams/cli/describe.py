"""`streams describe`: a topology as Kafka Streams' text, or as a Mermaid chart."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from streams.cli.errors import readable_errors
from streams.cli.run import load_topology
from streams.cli.settings import Target


class Format(str, Enum):
    """Forms of a description."""

    TEXT = "text"
    MERMAID = "mermaid"


@readable_errors
def describe(
    target: Target,
    form: Annotated[
        Format, typer.Option("--format", "-f", help="Kafka Streams' text, or a Mermaid chart.")
    ] = Format.TEXT,
) -> None:
    """Print a topology: sub-topologies, operators, stores and topics."""
    topology = load_topology(target)
    typer.echo(topology.describe() if form is Format.TEXT else topology.mermaid(), nl=False)
    typer.echo()
