"""`streams dlq replay`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from streams.cli.command import command
from streams.cli.dlq.arguments import ChoiceOptions, DeadLetters, DryRun, Target, Topic, Yes
from streams.cli.output import print_json
from streams.cli.settings import ApplicationOptions, AsJson
from streams.errors import ConfigError
from streams.wording import counted


@command
def replay(
    target: Target = None,
    *,
    topic: Topic = None,
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Send all letters to this topic, instead of each to its own.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
    choice: ChoiceOptions,
    application: ApplicationOptions,
) -> None:
    """Send the records of dead letters once more, each once.

    A letter of an operator with a Retry goes through the operator's first retry topic, any other to the topic that the record came
    from; key, value, headers and timestamp are those of the record. Which letters were sent is remembered in the same transactions,
    in the topic TOPIC-replays: a replay that is repeated, or that was killed and is run again, sends none twice.
    """
    from state.changelog.topics import ensure_replays
    from state.kafka.admin import KafkaAdmin
    from state.kafka.rights import RightsProbe
    from streams.application.dead_letters import plan_replay, replays_topic, summary
    from streams.application.dead_letters import replay as replay_letters
    from streams.application.rights import check_replay_rights

    if as_json and not (yes or dry_run):
        raise ConfigError("--json cannot ask: add --dry-run, or --yes to replay")
    letters = DeadLetters.of(target, topic, application)
    log = letters.log()
    plan = plan_replay(log, letters.only, choice.choice(), to)
    if not as_json:
        for where, count in sorted(plan.targets.items()):
            typer.echo(f"{counted(count, 'letter')} to {where}")
        for why, count in sorted(plan.left_out.items()):
            typer.echo(f"{counted(count, 'letter')} cannot be replayed: {why}")
        typer.echo(f"{counted(plan.done, 'letter')} replayed before")
    if plan.letters and not dry_run:
        client = letters.config.client
        check_replay_rights(plan.topic, plan.targets, RightsProbe(client), client)
    if plan.letters and not (dry_run or yes):
        typer.confirm(f"Replay {counted(plan.letters, 'letter')}?", abort=True)
    sent = 0
    if plan.letters and not dry_run:
        with KafkaAdmin(letters.config.client) as admin:
            ensure_replays(admin, replays_topic(plan.topic), letters.config.replication_factor)
        sent = replay_letters(log, plan, lambda: int(time.time() * 1000), to)
    if as_json:
        print_json({**summary(plan), "sent": sent})
        return
    typer.echo("nothing was sent" if dry_run else f"{counted(sent, 'letter')} replayed")
