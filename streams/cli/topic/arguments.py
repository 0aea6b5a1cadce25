"""Arguments and options that commands about topics share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from streams.cli.command import OptionGroup
from streams.errors import ConfigError

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="The topics.", show_default=False)]

_PANEL = "Keys and values"


@dataclass(frozen=True)
class SerdeOptions(OptionGroup):
    """Options for the serdes of keys and values: named ones, or those that a topology has for the topic."""

    key_serde: Annotated[
        str | None,
        typer.Option(metavar="SERDE", help="Serde of keys: string, json, int64, ... or bytes.", rich_help_panel=_PANEL),
    ] = None
    value_serde: Annotated[
        str | None, typer.Option(metavar="SERDE", help="Serde of values, likewise.", rich_help_panel=_PANEL)
    ] = None
    topology: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Use the serdes that this topology has for the topic: app.py, package.module or app.py:build.",
            rich_help_panel=_PANEL,
        ),
    ] = None


def pairs(texts: list[str] | None, option: str, example: str) -> dict[str, str]:
    """The `NAME=VALUE` texts of an option as a dictionary.

    Raises:
        ConfigError: A text has no name or no `=`.
    """
    found = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ConfigError(f"{option} needs NAME=VALUE, such as {example}, not {text!r}.")
        found[name] = value
    return found
