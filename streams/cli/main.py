"""The command `streams`. Modules of sub-commands are imported only when called, so that `streams --help` is fast.

A new command is one more entry in `COMMANDS`.
"""

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from typer.core import TyperCommand

from streams.cli.command import PlainCommand, PlainGroup, option
from streams.wording import did_you_mean

if TYPE_CHECKING:
    # Typer's own copy of click; its classes are only needed as types here.
    from typer._click import Command, Context


class LazyCommand(NamedTuple):
    """A sub-command, or a group of them.

    Attributes:
        module: The module of `streams.cli` to import when it is called. It has a function of the command's name, or a group `app`.
        help: Its line in `streams --help`.
    """

    module: str
    help: str


COMMANDS = {
    "init": LazyCommand("project", "Create a project: a topology, its test, settings and a README."),
    "run": LazyCommand("run", "Run a topology on Spark, exactly once."),
    "status": LazyCommand("status", "Show an application's lag, rates and last commits."),
    "ui": LazyCommand("status", "Serve a page that shows an application, from Kafka alone."),
    "check": LazyCommand("topology", "Check a topology for problems that would show up later."),
    "describe": LazyCommand("topology", "Print a topology as text, as a chart or as JSON."),
    "diff": LazyCommand("topology", "Show what a changed topology would do to an application's state."),
    "acls": LazyCommand("acls", "Print or grant the rights that an application needs."),
    "package": LazyCommand("project", "Pack this environment for a cluster, and try a program with it."),
    "config": LazyCommand("config", "Print all settings, or their effective values, as TOML or JSON."),
    "state": LazyCommand("state", "Print or count the rows of a store."),
    "pause": LazyCommand("status", "Pause a running application, or one of its sub-topologies."),
    "resume": LazyCommand("status", "Resume an application after a pause."),
    "execution": LazyCommand("status", "Switch a running application to live execution, or to micro-batches."),
    "dlq": LazyCommand("dlq", "Dead letters: list, show, replay, purge."),
    "restore": LazyCommand("restore", "Rebuild an application's stores from its changelogs."),
    "snapshots": LazyCommand("snapshots", "List the snapshots of an application's stores."),
    "replica": LazyCommand("replica", "Keep warm copies of an application's stores."),
    "serve": LazyCommand("replica", "Serve reads of an application's stores over HTTP."),
    "adopt": LazyCommand("rescale", "Create a new checkpoint from an application's commits."),
    "import-app": LazyCommand("migration.java", "Take over a Kafka Streams application from Java."),
    "export-app": LazyCommand("migration.java", "Hand an application's state to Kafka Streams in Java."),
    "rescale": LazyCommand("rescale", "Move an application's state to more or fewer tasks."),
    "doctor": LazyCommand("inspection.doctor", "Find what is wrong with an application, and which command fixes it."),
    "errors": LazyCommand("inspection.errors", "Print what an error means, what to do, and whether something is lost."),
    "transactions": LazyCommand("inspection.transactions", "List open transactions, and end hanging ones on request."),
    "replay": LazyCommand("replay", "Process past input again, alongside the running application."),
    "reset": LazyCommand("reset", "Delete an application's state and internal topics."),
    "topic": LazyCommand("topic", "Topics of any cluster: create, list, describe, send, read, delete."),
    "drill": LazyCommand("drill", "Fault drills on a scratch broker: list, run."),
    "broker": LazyCommand("broker", "A real Kafka on this machine: fetch, start, stop, status."),
}
"""All sub-commands, in the order in which the help lists them."""

HELP = "\n\n".join(
    (
        "Kafka Streams for Spark, in Python.",
        "A TARGET is a topology: a file (app.py), a module (package.module), or a name in one (app.py:build).",
        "Settings come from a TOML file (--config FILE), the environment (STREAMS_TASKS=4) and options; later ones win. "
        "--set NAME=VALUE sets any of them, -X KEY=VALUE (--property) one of the Kafka client's properties, and "
        "--properties-file FILE reads those as Java does. Only in `streams broker start`, --set is a setting of the broker. "
        "`streams config` lists all settings; with --explain, the effective values. Local state and checkpoint are in --base-dir "
        "(var), the embedded broker's data is in --data-dir (.kafka).",
        "Exit codes: 0 success; 1 failure, or a check found a problem; 2 the command line is wrong; 3 the answer is no: not "
        "running (broker status), nothing committed yet (status), not safe (diff), warnings (doctor).",
    )
)


class LazyGroup(PlainGroup):
    """Lists the commands without importing them, and imports the one that is called."""

    def list_commands(self, ctx: "Context") -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: "Context", cmd_name: str) -> "Command | None":
        """A command with its name and help line only."""
        known = COMMANDS.get(cmd_name)
        return None if known is None else TyperCommand(cmd_name, help=known.help)

    def resolve_command(self, ctx: "Context", args: list[str]) -> "tuple[str | None, Command | None, list[str]]":
        """The called command and its arguments."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}.{did_you_mean(args[0], COMMANDS)}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, _load(name) if name in COMMANDS else command, rest


def _load(name: str) -> "Command":
    module = importlib.import_module(f"streams.cli.{COMMANDS[name].module}")
    group = getattr(module, "app", None)
    if group is None:
        group = typer.Typer(add_completion=False)
        group.command(name, cls=PlainCommand)(getattr(module, name.replace("-", "_")))
    command = typer.main.get_command(group)
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
        bool, option("Print the version and exit.", "--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Does nothing; the group's help is `HELP`."""
