"""`streams acls`: the rights (ACLs) that an application needs, as a table, as commands, as JSON, or granted."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import typer
from rich.table import Table

from streams.application.rights import NeededRights, Right, needed_rights, operating_rights, principal_of
from streams.application.rights import command as kafka_acls
from streams.cli.command import command
from streams.cli.console import table_console
from streams.cli.output import print_json
from streams.cli.settings import ApplicationOptions, Target
from streams.cli.target import TopologyTarget
from streams.errors import ConfigError


class Format(str, Enum):
    """Formats of rights."""

    TABLE = "table"
    COMMANDS = "commands"
    JSON = "json"


@command
def acls(
    target: Target,
    *,
    application: ApplicationOptions,
    principal: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE:NAME", help="Who shall have the rights, such as User:alice. Default: sasl.username."
        ),
    ] = None,
    operate: Annotated[
        bool, typer.Option("--operate", help="Also what reset, dlq and replica need, for those who operate it.")
    ] = False,
    form: Annotated[
        Format, typer.Option("--format", "-f", help="A table, commands of kafka-acls, or JSON.")
    ] = Format.TABLE,
    grant: Annotated[
        bool,
        typer.Option("--grant", help="Grant them to --principal, with the given connection: that of somebody who may."),
    ] = False,
) -> None:
    """Print the rights that an application needs in a cluster with ACLs; --grant grants them."""
    if principal is not None and not all(principal.partition(":")):
        raise ConfigError(f"--principal {principal}: TYPE:NAME is needed, such as User:alice.")
    program = TopologyTarget.parse(target)
    config = application.load(program.application_id(), needs_cluster=grant)
    needed = needed_rights(program.load(), config)
    rights = [*needed.rights, *(operating_rights(needed) if operate else ())]
    if grant:
        if principal is None:
            raise ConfigError("--grant needs --principal: who shall have the rights, such as User:alice.")
        from state.kafka.rights import grant_rights

        count = grant_rights(
            config.client, principal, [(one.resource.value, one.name, one.prefixed, one.operations) for one in rights]
        )
        typer.echo(f"{principal} has the rights of {needed.application_id} ({count} ACLs).")
        return
    shown = principal or principal_of(config.kafka)
    if form is Format.JSON:
        print_json({"principal": shown, "rights": [_as_dict(right) for right in rights]})
    elif form is Format.COMMANDS:
        for right in rights:
            typer.echo(kafka_acls(right, shown, config.bootstrap_servers))
    else:
        _print_table(needed, rights)


def _as_dict(right: Right) -> dict[str, Any]:
    return {
        "resource": right.resource.value,
        "name": right.name,
        "pattern": "prefixed" if right.prefixed else "literal",
        "operations": list(right.operations),
        "for": right.why,
    }


def _print_table(needed: NeededRights, rights: list[Right]) -> None:
    console = table_console()
    table = Table("Resource", "Name", "Pattern", "Operations", "For", box=None, header_style="bold")
    for right in rights:
        pattern = "prefixed" if right.prefixed else "literal"
        table.add_row(right.resource.value, right.name, pattern, ", ".join(right.operations), right.why)
    console.print(table)
    if needed.chosen:
        console.print("Records choose their topics (to() with a function): grant Write on each of those, too.")
