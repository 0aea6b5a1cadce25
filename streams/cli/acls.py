"""`streams acls`: the rights (ACLs) that an application needs, as a table, as commands, as JSON, or granted."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import typer

from streams.application.rights import Right, needed_rights, operating_rights, principal_of
from streams.application.rights import command as kafka_acls
from streams.cli.command import command, option
from streams.cli.options import ApplicationOptions, Target
from streams.cli.output import print_json, print_line, print_table
from streams.cli.target import TopologyTarget
from streams.errors import ConfigError


class RightsFormat(str, Enum):
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
        option("The principal that gets the rights, such as User:alice. Default: sasl.username.", metavar="TYPE:NAME"),
    ] = None,
    operate: Annotated[bool, option("Also the rights that reset, dlq and replica need.")] = False,
    form: Annotated[
        RightsFormat, option("A table, kafka-acls commands, or JSON.", "--format", "-f")
    ] = RightsFormat.TABLE,
    grant: Annotated[bool, option("Grant them to --principal. Your connection needs the right to do so.")] = False,
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
            raise ConfigError("--grant needs --principal: who gets the rights, such as User:alice.")
        from state.kafka.connection import grant_rights

        count = grant_rights(
            config.client, principal, [(one.resource.value, one.name, one.prefixed, one.operations) for one in rights]
        )
        typer.echo(f"{principal} has the rights of {needed.application_id} ({count} ACLs).")
        return
    shown = principal or principal_of(config.kafka)
    if form is RightsFormat.JSON:
        print_json({"principal": shown, "rights": [_as_dict(right) for right in rights]})
    elif form is RightsFormat.COMMANDS:
        for right in rights:
            typer.echo(kafka_acls(right, shown, config.bootstrap_servers))
    else:
        rows = [tuple({**_as_dict(right), "operations": ", ".join(right.operations)}.values()) for right in rights]
        print_table(("Resource", "Name", "Pattern", "Operations", "For"), rows)
        if needed.chosen:
            print_line("A function chooses the topics of records (to()): grant Write on each of these topics, too.")


def _as_dict(right: Right) -> dict[str, Any]:
    return {
        "resource": right.resource.value,
        "name": right.name,
        "pattern": "prefixed" if right.prefixed else "literal",
        "operations": list(right.operations),
        "for": right.why,
    }
