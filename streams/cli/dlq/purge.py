"""`streams dlq purge`."""

from __future__ import annotations

from typing import Annotated

import typer

from streams.cli.command import command
from streams.cli.dlq.arguments import DeadLetters, DryRun, Target, Topic, Yes, position
from streams.cli.output import print_json
from streams.cli.settings import ApplicationOptions, AsJson
from streams.cli.topic.lines import shown_time, to_timestamp
from streams.errors import ConfigError
from streams.wording import counted


@command
def purge(
    target: Target = None,
    *,
    topic: Topic = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Delete the letters written before this time.")
    ] = None,
    to_offset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTITION:OFFSET", help="Delete the partition's letters before this offset; may be repeated."
        ),
    ] = None,
    replayed: Annotated[
        bool, typer.Option("--replayed", help="Delete each partition's letters before the first that was not replayed.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Delete all letters.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
    application: ApplicationOptions,
) -> None:
    """Delete dead letters, oldest first, after showing how many go.

    Kafka deletes records of a partition from its beginning: the first letter that stays keeps all after it.
    """
    from state.kafka.admin import KafkaAdmin
    from streams.application.dead_letters import Until, plan_purge
    from streams.application.dead_letters import purge as purge_letters

    if as_json and not (yes or dry_run):
        raise ConfigError("--json cannot ask: add --dry-run, or --yes to delete")
    limits = bool(until or to_offset or replayed)
    if limits == everything:
        raise ConfigError(
            "how far? Name --until TIME, --to-offset PARTITION:OFFSET or --replayed (together: the least), or --all"
        )
    letters = DeadLetters.of(target, topic, application)
    bounds = Until(
        time_ms=None if until is None else to_timestamp(until),
        offsets=None if to_offset is None else dict(map(position, to_offset)),
        replayed=replayed,
    )
    plan = plan_purge(letters.log(), letters.only, bounds)
    what = counted(plan.letters, "letter")
    if not as_json and plan.first_ms is not None and plan.last_ms is not None:
        typer.echo(f"{what}, written from {shown_time(plan.first_ms)} to {shown_time(plan.last_ms)}")
        typer.echo(f"{counted(plan.not_replayed, 'letter')} of them never replayed")
    if plan.letters and not (dry_run or yes):
        typer.confirm(f"Delete {what}? They cannot be brought back.", abort=True)
    if not dry_run:
        with KafkaAdmin(letters.config.client) as admin:
            purge_letters(plan, admin.delete_records)
    if as_json:
        before = {str(partition): offset for (_, partition), offset in plan.before.items()}
        print_json(
            {"letters": plan.letters, "not_replayed": plan.not_replayed, "before": before, "deleted": not dry_run}
        )
        return
    typer.echo("nothing was deleted" if dry_run or not plan.letters else f"{what} deleted")
