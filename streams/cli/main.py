"""The command `streams`. A sub-command's module is imported only when it is called, so that `streams --help` is quick.

A new command is one more row of `COMMANDS`.
"""

import importlib
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    # Typer's own copy of click; its classes are only needed as types here.
    from typer._click import Command, Context


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a sub-command is, and what `streams --help` says about it.

    Attributes:
        module: the module to import when the command is called.
        attribute: what the module calls it: a `typer.Typer` with sub-commands of its own, or one function.
        help: one line.
    """

    module: str
    attribute: str
    help: str


COMMANDS = {
    "run": LazyCommand("streams.cli.run", "run", "Run a topology on Spark, exactly once."),
    "describe": LazyCommand("streams.cli.describe", "describe", "Print a topology as text, as a chart or as JSON."),
    "diff": LazyCommand("streams.cli.diff", "diff", "Say what a changed topology does to an application's state."),
    "restore": LazyCommand("streams.cli.restore", "restore", "Rebuild an application's stores from its changelogs."),
    "state": LazyCommand("streams.cli.state", "state", "Print or count the rows of a store."),
    "adopt": LazyCommand("streams.cli.adopt", "adopt", "Make a new checkpoint from an application's commits."),
    "reset": LazyCommand("streams.cli.reset", "reset", "Delete an application's state and internal topics."),
    "broker": LazyCommand(
        "streams.cli.broker",
        "app",
        "A real Kafka on this machine: fetch, start, stop, status; topics, create, send, read.",
    ),
}
"""All sub-commands, in the order in which the help lists them."""


class LazyGroup(TyperGroup):
    """Lists the commands without importing them, and imports the one that is called."""

    def list_commands(self, ctx: "Context") -> list[str]:
        """Returns the names for the help."""
        return list(COMMANDS)

    def get_command(self, ctx: "Context", cmd_name: str) -> "Command | None":
        """Returns what the help needs to know of a command: its name and one line."""
        known = COMMANDS.get(cmd_name)
        return None if known is None else TyperCommand(cmd_name, help=known.help)

    def resolve_command(self, ctx: "Context", args: list[str]) -> "tuple[str | None, Command | None, list[str]]":
        """Returns the command that is called, and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, _load(name) if name in COMMANDS else command, rest


def _load(name: str) -> "Command":
    known = COMMANDS[name]
    target = getattr(importlib.import_module(known.module), known.attribute)
    if not isinstance(target, typer.Typer):
        function = target
        target = typer.Typer(add_completion=False)
        target.command(name)(function)
    command = typer.main.get_command(target)
    command.name = name
    return command


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, pretty_exceptions_show_locals=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"streams-on-spark {version('streams-on-spark')}")
        raise typer.Exit


@app.callback()
def streams(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Kafka Streams for Spark, in Python."""
