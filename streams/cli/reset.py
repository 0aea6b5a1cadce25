"""`streams reset`: deletes an application's state and internal topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import typer

from state.commit.live import LiveKafka
from state.kafka.admin import KafkaAdmin
from state.kafka.rights import RightsProbe
from streams.application.instances import while_stopped
from streams.application.owned_topics import commits_topics_of
from streams.application.reset import ResetPlan, drop_sink, plan_drop, plan_reset, start_positions
from streams.application.reset import reset as reset_application
from streams.application.rights import check_reset_rights, check_topic_deletion
from streams.cli.command import command
from streams.cli.operations.positions import WAIT, PositionOptions, as_offsets, move_positions
from streams.cli.output import print_json
from streams.cli.settings import ApplicationOptions, AsJson, reachable
from streams.config import StreamsConfig
from streams.errors import ConfigError


@command
def reset(
    name: Annotated[
        str | None, typer.Argument(metavar="ID", help="The application; or --application-id.", show_default=False)
    ] = None,
    *,
    application: ApplicationOptions,
    topics: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help="Also delete these internal topics, although nothing proves that they belong to the application.",
        ),
    ] = None,
    positions: PositionOptions,
    dropped: Annotated[
        str | None,
        typer.Option(
            "--drop-sink",
            metavar="NAME",
            help="Delete only what waits for this sink of to_delta or foreach_batch, and its checkpoint. All other state stays.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and end.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete an application's internal topics, group offsets, local state and checkpoint. Inputs and outputs stay.

    The topology.json of the checkpoint and the commit markers prove which topics belong to the application, never the
    beginning of a name alone. Stop the application first. An interrupted reset is finished by running it again.

    With --to-datetime, --by-duration or --to-offsets the next start reads from there, with empty stores. That is a dry run unless
    --execute is given, and is refused while the application runs. With --drop-sink only that sink's waiting rows are deleted.
    """
    settings = reachable(_named(application, name).load(None))
    if as_json and not (yes or dry_run or positions):
        raise ConfigError("--json cannot ask: add --dry-run, or --yes to delete")
    log = LiveKafka(settings.client, settings.transaction_timeout_ms, bulk=settings.bulk_io)
    if dropped is not None:
        if positions or positions.keep_state or topics:
            raise ConfigError("--drop-sink keeps all other state: give it without --topics, --keep-state and positions")
        _drop_sink(settings, dropped, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    named = [name.strip() for name in (topics or "").split(",") if name.strip()]
    with KafkaAdmin(settings.client) as admin:
        wanted = positions.wanted()
        start = start_positions(settings, admin, log, wanted) if wanted else {}
        if positions.keep_state:
            moved = move_positions(settings, admin, log, start, positions.execute and not dry_run)
            if as_json:
                print_json({"application_id": settings.application_id, "moved": moved, "start": as_offsets(start)})
            return
        plan = plan_reset(settings, admin, log, named, start)
        if as_json:
            done = _carry_out(plan, admin, positions, dry_run, yes=True, say=lambda _: None)
            print_json(as_dict(plan, deleted=done))
            return
        for line in plan.lines():
            typer.echo(line)
        _carry_out(plan, admin, positions, dry_run, yes, typer.echo)


def _drop_sink(config: StreamsConfig, sink: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Gives up what waits for one sink, if it is to be given up."""
    say: Callable[[str], None] = (lambda _: None) if as_json else typer.echo
    with KafkaAdmin(config.client) as admin:
        plan = plan_drop(config, sink, admin)
        for line in plan.lines():
            say(line)
        if not dry_run:
            if plan.warnings:
                raise ConfigError(
                    f"{config.application_id} may still run: {plan.warnings[0]}. Nothing was deleted. {WAIT}"
                )
            if not yes:
                typer.confirm("Give this up?", abort=True)
            check_topic_deletion(config.application_id, [plan.topic], RightsProbe(config.client), config.client)
            drop_sink(plan, admin, say)
    if as_json:
        print_json(
            {
                "application_id": config.application_id,
                "sink": sink,
                "topic": plan.topic,
                "waiting": plan.waiting,
                "deleted": not dry_run,
            }
        )
    elif dry_run:
        say("nothing was deleted")


def _carry_out(
    plan: ResetPlan, admin: KafkaAdmin, positions: PositionOptions, dry_run: bool, yes: bool, say: Callable[[str], None]
) -> bool:
    """Carries the plan out, if it is to be; False: it was only shown."""
    only_shown = bool(positions) and not positions.execute
    if dry_run or only_shown:
        say(f"nothing was deleted{': --execute carries this out' if only_shown and not dry_run else ''}")
        return False
    if positions and plan.warnings:
        raise ConfigError(
            f"{plan.config.application_id} may still run: {plan.warnings[0]}. Nothing was deleted. {WAIT}"
        )
    if not (yes or positions.execute):
        typer.confirm("Delete all of this?", abort=True)
    client = plan.config.client
    check_reset_rights(plan.config.application_id, plan.topics.keys(), RightsProbe(client), client)
    with while_stopped(plan.config, admin, commits_topics_of(plan.config.application_id, plan.topics)):
        reset_application(plan, admin, say)
    return True


def as_dict(plan: ResetPlan, *, deleted: bool) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "application_id": plan.config.application_id,
        "deleted": deleted,
        "topics": {
            name: {"records": plan.records.get(name, 0), "known_from": proof} for name, proof in plan.topics.items()
        },
        "other_applications": dict(plan.others.foreign),
        "unproven": [name for name in plan.others.unproven if name not in plan.topics],
        "local_tasks": plan.tasks,
        "checkpoint": plan.config.checkpoint_dir,
        "queries": list(plan.queries),
        "warnings": list(plan.warnings),
        "start": as_offsets(plan.start),
    }


def _named(application: ApplicationOptions, positional: str | None) -> ApplicationOptions:
    """The options with the application's id, for which a reset has no default.

    Raises:
        ConfigError: Two different ids are given, or a topology in place of an id.
    """
    option = application.application_id
    if positional is not None and (":" in positional or positional.endswith(".py")):
        raise ConfigError(
            f"{positional!r} is a topology, and a reset takes the application's id, such as the application_id in its settings: "
            f"streams reset ID."
        )
    if positional is not None and option not in (None, positional):
        raise ConfigError(f"Two applications are named, {positional!r} and {option!r}: reset one at a time.")
    return replace(application, application_id=positional or option)
