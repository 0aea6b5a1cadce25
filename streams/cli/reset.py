"""`streams reset`: start an application anew."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from state.commit.live import LiveKafka
from state.kafka.admin import KafkaAdmin
from streams.application.reset import plan_reset
from streams.application.reset import reset as reset_application
from streams.cli.connection import Bootstrap, PropertiesFile, Property
from streams.cli.errors import readable_errors
from streams.cli.settings import BaseDir, ConfigFile, client_options, load_settings, reachable


@readable_errors
def reset(
    application_id: Annotated[str, typer.Argument(help="The application.")],
    bootstrap_servers: Bootstrap = None,
    properties: Property = None,
    properties_file: PropertiesFile = None,
    config: ConfigFile = None,
    base_dir: BaseDir = None,
    topics: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help="Also delete these internal topics, although nothing proves that they are its own.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and end.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete an application's internal topics, group offsets, local state and checkpoint. Inputs and outputs stay.

    What is its own is told by the topology.json of its checkpoint and by its commit markers, never by the beginning of a name
    alone. Stop the application first. A reset that was cut short is finished by another one.
    """
    options: dict[str, Any] = {"application_id": application_id, "base_dir": base_dir}
    options |= client_options(bootstrap_servers, properties, properties_file)
    settings = reachable(load_settings(application_id, config, options))
    log = LiveKafka(settings.client, settings.transaction_timeout_ms, bulk=settings.bulk_io)
    named = [name.strip() for name in (topics or "").split(",") if name.strip()]
    with KafkaAdmin(settings.client) as admin:
        plan = plan_reset(settings, admin, log, named)
        for line in plan.lines():
            typer.echo(line)
        if dry_run:
            typer.echo("nothing was deleted")
            return
        if not yes:
            typer.confirm("Delete all of this?", abort=True)
        reset_application(plan, admin, typer.echo)
