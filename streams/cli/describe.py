"""`streams describe`: a topology as Kafka Streams' text, as a Mermaid chart, as JSON for `streams diff`, or how it processes."""

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
    WAYS = "ways"


@command
def describe(
    target: Target,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            "-f",
            help="Kafka Streams' text, a Mermaid chart, JSON for `streams diff`, or the way in which each operator processes "
            "records: on columns, together, one by one.",
        ),
    ] = Format.TEXT,
    as_json: AsJson = False,
) -> None:
    """Print a topology: sub-topologies, operators, stores and topics."""
    topology = load_topology(target)
    if as_json or form is Format.JSON:
        typer.echo(manifest_json(topology))
        return
    texts = {Format.TEXT: topology.describe, Format.MERMAID: topology.mermaid, Format.WAYS: topology.explain}
    typer.echo(texts[form](), nl=form is not Format.WAYS)
