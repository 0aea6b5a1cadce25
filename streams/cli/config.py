"""`streams config`: every setting, as a commented TOML file, as a reference page, or with its effective value."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Annotated

import typer

from streams.cli.command import argument, command, option
from streams.cli.options import ApplicationOptions, AsJson, with_embedded_broker
from streams.cli.output import print_json
from streams.cli.target import TopologyTarget
from streams.config import Layer, StreamsConfig, config_of
from streams.config.loading import explained, markdown, origins, schema, toml, warn_of_open_files

DEFAULT_ID = "app"


class SettingsFormat(str, Enum):
    """Formats of the list of settings."""

    TOML = "toml"
    MARKDOWN = "markdown"
    SCHEMA = "schema"


@command
def config(
    target: Annotated[
        str | None, argument("A topology. Its name is the default application id.", metavar="[TARGET]")
    ] = None,
    *,
    application: ApplicationOptions,
    form: Annotated[
        SettingsFormat,
        option("A TOML file to start from, its JSON schema for editors, or the reference page.", "--format", "-f"),
    ] = SettingsFormat.TOML,
    explain: Annotated[bool, option("Print only the effective values, and where each comes from.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print every setting with type, default, unit and meaning, as a TOML file to start from.

    Settings from a file, the environment or an option have their values; the others are commented out. Secrets are masked.
    """
    if form is SettingsFormat.MARKDOWN:
        typer.echo(markdown(), nl=False)
        return
    if form is SettingsFormat.SCHEMA:
        print_json(schema())
        return
    default_id = DEFAULT_ID if target is None else TopologyTarget.parse(target).application_id()
    layers = with_embedded_broker(application.layers(default_id), needs_cluster=False)
    warn_of_open_files(layers)
    effective = config_of(layers)
    if explain or as_json:
        show_settings(effective, layers, as_json=as_json)
    else:
        typer.echo(toml(effective.printable(), _given(layers)), nl=False)


def show_settings(effective: StreamsConfig, layers: Sequence[Layer], *, as_json: bool) -> None:
    """Prints the effective settings, and where each comes from; secrets are masked."""
    values, given = effective.printable(), _given(layers)
    if as_json:
        print_json({name: {"value": value, "from": given.get(name, "default")} for name, value in values.items()})
        return
    for line in explained(values, given):
        typer.echo(line)


def _given(layers: Sequence[Layer]) -> dict[str, str]:
    """The origins of the settings that do not have their default."""
    return {name: origin for name, origin in origins(layers).items() if origin != "default"}
