"""`streams reset`: start an application anew."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from state.kafka.admin import KafkaAdmin
from streams.application.reset import internal_topics
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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete an application's internal topics, group offsets, local state and checkpoint. Inputs and outputs stay."""
    options: dict[str, Any] = {"application_id": application_id, "base_dir": base_dir}
    options |= client_options(bootstrap_servers, properties, properties_file)
    settings = reachable(load_settings(application_id, config, options))
    admin = KafkaAdmin(settings.client)
    try:
        topics = internal_topics(application_id, admin)
        state = settings.state_dir / application_id
        typer.echo(f"topics: {', '.join(topics) or 'none'}\nstate: {state}\ncheckpoint: {settings.checkpoint_dir}")
        if not yes:
            typer.confirm("Delete all of this?", abort=True)
        reset_application(settings, admin, typer.echo)
    finally:
        admin.close()
