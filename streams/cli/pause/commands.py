"""`streams pause` and `streams resume`: hold an application, or one of its sub-topologies, wherever it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from streams.cli.command import command
from streams.cli.connection import ClusterOptions
from streams.cli.output import print_json
from streams.cli.settings import AsJson
from streams.cli.topic.lines import shown_time
from streams.source.pauses import WHOLE, Pauses

Application = Annotated[str, typer.Argument(metavar="APP", help="The application's id.", show_default=False)]
Sub = Annotated[
    str | None,
    typer.Option(
        "--sub-topology",
        "-s",
        metavar="NAME",
        help="Only this sub-topology, or source outside Kafka.",
    ),
]


@command
def pause(
    application: Application, *, sub_topology: Sub = None, as_json: AsJson = False, cluster: ClusterOptions
) -> None:
    """Pause an application: its queries stay alive, and begin no further micro-batch.

    The pause is recorded in the cluster. It takes effect within about a second after the running micro-batch, wherever the
    application runs, and stays in force over restarts, until `streams resume`. A source outside Kafka (`from_delta`,
    `from_dataframe`) holds the batch that it would write next.
    """
    from streams.application.pausing import Pausing

    _show(application, Pausing(application, cluster.client()).pause(sub_topology), as_json)


@command
def resume(
    application: Application, *, sub_topology: Sub = None, as_json: AsJson = False, cluster: ClusterOptions
) -> None:
    """Resume an application, or one sub-topology or source outside Kafka, after `streams pause`."""
    from streams.application.pausing import Pausing

    pausing = Pausing(application, cluster.client())
    before = pausing.pauses()
    after = pausing.resume(sub_topology)
    if not as_json:
        for name in sorted(before.since_ms.keys() - after.since_ms.keys()):
            typer.echo(f"{_named(application, name)} is resumed")
        if before.since_ms and not after.since_ms:
            return
    _show(application, after, as_json)


def _show(application: str, pauses: Pauses, as_json: bool) -> None:
    if as_json:
        print_json({"application_id": application, "paused_since": dict(pauses.since_ms)})
        return
    for name, since in pauses.since_ms.items():
        typer.echo(f"{_named(application, name)} is paused since {shown_time(since)}")
    if not pauses.since_ms:
        typer.echo(f"nothing of {application} is paused")


def _named(application: str, part: str) -> str:
    return application if part == WHOLE else f"{application}: {part}"
