"""The command `streams`. Modules of sub-commands are imported only when called, so that `streams --help` is fast.

A new command is one more entry in `COMMANDS`.
"""

import importlib
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

from streams.cli.command import PlainCommand, PlainGroup
from streams.suggest import did_you_mean

if TYPE_CHECKING:
    # Typer's own copy of click; its classes are only needed as types here.
    from typer._click import Command, Context


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """The location of a sub-command, and its line in `streams --help`.

    Attributes:
        module: The module to import when the command is called.
        attribute: The name in the module: a `typer.Typer` with sub-commands, or one function.
        help: One line.
    """

    module: str
    attribute: str
    help: str


COMMANDS = {
    "init": LazyCommand("streams.cli.init", "init", "Create a project: a topology, its test, settings and a README."),
    "run": LazyCommand("streams.cli.run", "run", "Run a topology on Spark, exactly once."),
    "status": LazyCommand("streams.cli.status", "status", "Show an application's lag, rates and last commits."),
    "check": LazyCommand("streams.cli.check", "check", "Check a topology for problems that would show up later."),
    "describe": LazyCommand("streams.cli.describe", "describe", "Print a topology as text, as a chart or as JSON."),
    "diff": LazyCommand("streams.cli.diff", "diff", "Show what a changed topology does to an application's state."),
    "acls": LazyCommand("streams.cli.acls", "acls", "Print or grant the rights that an application needs."),
    "config": LazyCommand("streams.cli.config", "config", "Print all settings, or those in force, as TOML or JSON."),
    "state": LazyCommand("streams.cli.state", "state", "Print or count the rows of a store."),
    "pause": LazyCommand(
        "streams.cli.pause.commands", "pause", "Pause a running application, or one of its sub-topologies."
    ),
    "resume": LazyCommand("streams.cli.pause.commands", "resume", "Resume an application after a pause."),
    "dlq": LazyCommand("streams.cli.dlq", "app", "Dead letters: list, show, replay, purge."),
    "restore": LazyCommand("streams.cli.restore", "restore", "Rebuild an application's stores from its changelogs."),
    "snapshots": LazyCommand(
        "streams.cli.stores.snapshots", "snapshots", "List the snapshots of an application's stores."
    ),
    "replica": LazyCommand("streams.cli.stores.replica", "replica", "Keep warm copies of an application's stores."),
    "adopt": LazyCommand("streams.cli.adopt", "adopt", "Create a new checkpoint from an application's commits."),
    "rescale": LazyCommand(
        "streams.cli.rescaling.command", "rescale", "Move an application's state to more or fewer tasks."
    ),
    "doctor": LazyCommand(
        "streams.cli.operations.doctor", "doctor", "Find what is wrong with an application, and what mends it."
    ),
    "transactions": LazyCommand(
        "streams.cli.operations.transactions",
        "transactions",
        "List open transactions, and end hanging ones on request.",
    ),
    "replay": LazyCommand(
        "streams.cli.operations.replay", "replay", "Process past input again, beside the running application."
    ),
    "reset": LazyCommand("streams.cli.reset", "reset", "Delete an application's state and internal topics."),
    "topic": LazyCommand(
        "streams.cli.topic", "app", "Topics of any cluster: create, list, describe, send, read, delete."
    ),
    "drill": LazyCommand("streams.cli.drill", "app", "Fault drills on a scratch broker: list, run."),
    "broker": LazyCommand("streams.cli.broker", "app", "A real Kafka on this machine: fetch, start, stop, status."),
}
"""All sub-commands, in the order in which the help lists them."""

HELP = "\n\n".join(
    (
        "Kafka Streams for Spark, in Python.",
        "A TARGET is a topology: a file (app.py), a module (package.module), or a name in one (app.py:build).",
        "Settings come from a TOML file (--config FILE), the environment (STREAMS_TASKS=4) and options; later ones win. "
        "--set NAME=VALUE sets any of them, -X KEY=VALUE (--property) one of the Kafka client's properties, and "
        "--properties-file FILE reads those as Java does. Of `streams broker start` alone, --set is a setting of the broker. "
        "`streams config` lists all settings, with --explain those in force. Local state and checkpoint are below --base-dir "
        "(var), the embedded broker's data is in --data-dir (.kafka).",
        "Exit codes: 0 done; 1 it failed, or a check found something; 2 the command line is wrong; 3 the answer is no: not "
        "running (broker status), nothing committed yet (status), not safe (diff), warnings (doctor).",
    )
)


class LazyGroup(PlainGroup):
    """Lists the commands without importing them, and imports the one that is called."""

    def list_commands(self, ctx: "Context") -> list[str]:
        """Returns the names of the commands for the help."""
        return list(COMMANDS)

    def get_command(self, ctx: "Context", cmd_name: str) -> "Command | None":
        """Returns a command with its name and help line only."""
        known = COMMANDS.get(cmd_name)
        return None if known is None else TyperCommand(cmd_name, help=known.help)

    def resolve_command(self, ctx: "Context", args: list[str]) -> "tuple[str | None, Command | None, list[str]]":
        """Returns the called command and its arguments."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}.{did_you_mean(args[0], COMMANDS)}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, _load(name) if name in COMMANDS else command, rest


def _load(name: str) -> "Command":
    known = COMMANDS[name]
    target = getattr(importlib.import_module(known.module), known.attribute)
    if not isinstance(target, typer.Typer):
        function = target
        target = typer.Typer(add_completion=False)
        target.command(name, cls=PlainCommand)(function)
    command = typer.main.get_command(target)
    command.name = name
    return command


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, pretty_exceptions_show_locals=False, help=HELP)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"streams-on-spark {version('streams-on-spark')}")
        raise typer.Exit


@app.callback(help=HELP)
def streams(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Does nothing itself; the group's help is `HELP`."""
