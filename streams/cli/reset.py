"""`streams reset`: deletes an application's state and internal topics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from state.changelog.topics import commits_topic
from state.commit.live import LiveKafka
from state.kafka.admin import KafkaAdmin
from streams.application.move_positions import carry_out, plan_moves
from streams.application.reset import ResetPlan, plan_reset, positions_text, running_signs
from streams.application.reset import reset as reset_application
from streams.application.reset_positions import Wanted, parse_offsets, start_positions
from streams.checkpoint.files import LocalFiles
from streams.cli.command import OptionGroup, command
from streams.cli.output import print_json
from streams.cli.settings import ApplicationOptions, AsJson, reachable
from streams.cli.topic.times import to_timestamp
from streams.config import StreamsConfig
from streams.config.durations import to_milliseconds
from streams.errors import ConfigError
from streams.source.offsets import FirstBatch, SourceOffsets

_PANEL = "Where reading begins then"


@dataclass(frozen=True)
class PositionOptions(OptionGroup):
    """Where the next start begins to read; the names are those of `kafka-consumer-groups.sh --reset-offsets`."""

    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="At the first records at or past this time: ISO 8601, UTC unless it names a zone, or ms since 1970.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    by_duration: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="At the records of this long ago: 90m, 2h, 7d.", rich_help_panel=_PANEL),
    ] = None
    to_offsets: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="At the offsets in a file of topic,partition,offset.", rich_help_panel=_PANEL
        ),
    ] = None
    keep_state: Annotated[
        bool,
        typer.Option(
            "--keep-state",
            help="Keep stores, changelogs and commits, and move the positions only: records that are read again are counted "
            "again, skipped ones are not.",
            rich_help_panel=_PANEL,
        ),
    ] = False
    execute: Annotated[
        bool, typer.Option("--execute", help="Carry it out, without asking.", rich_help_panel=_PANEL)
    ] = False

    def __bool__(self) -> bool:
        """Whether a position is asked for."""
        return any(each is not None for each in (self.to_datetime, self.by_duration, self.to_offsets))

    def wanted(self) -> Wanted | None:
        """The positions that are asked for; None: none.

        Raises:
            ConfigError: Two of them are asked for, or one cannot be read.
        """
        given = [each for each in (self.to_datetime, self.by_duration, self.to_offsets) if each is not None]
        if len(given) > 1:
            raise ConfigError("--to-datetime, --by-duration and --to-offsets exclude each other: give one of them")
        if self.to_datetime is not None:
            return Wanted(to_timestamp(self.to_datetime))
        if self.by_duration is not None:
            return Wanted(int(time.time() * 1000) - duration_ms("--by-duration", self.by_duration))
        if self.to_offsets is not None:
            return Wanted(offsets=parse_offsets(self.to_offsets.read_text(encoding="utf-8").splitlines()))
        return None


def duration_ms(option: str, text: str) -> int:
    """The milliseconds of a typed duration.

    Raises:
        ConfigError: The text is no duration.
    """
    try:
        return int(to_milliseconds(text))
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None


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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and end.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete an application's internal topics, group offsets, local state and checkpoint. Inputs and outputs stay.

    The topology.json of the checkpoint and the commit markers prove which topics belong to the application, never the
    beginning of a name alone. Stop the application first. An interrupted reset is finished by running it again.

    With --to-datetime, --by-duration or --to-offsets the next start reads from there, with empty stores. That is a dry run unless
    --execute is given, and is refused while the application runs.
    """
    settings = reachable(_named(application, name).load(None))
    if as_json and not (yes or dry_run or positions):
        raise ConfigError("--json cannot ask: add --dry-run, or --yes to delete")
    log = LiveKafka(settings.client, settings.transaction_timeout_ms, bulk=settings.bulk_io)
    named = [name.strip() for name in (topics or "").split(",") if name.strip()]
    with KafkaAdmin(settings.client) as admin:
        wanted = positions.wanted()
        start = start_positions(settings, admin, log, wanted) if wanted else {}
        if positions.keep_state:
            _move(settings, admin, log, start, positions.execute and not dry_run)
            return
        plan = plan_reset(settings, admin, log, named, start)
        for line in () if as_json else plan.lines():
            typer.echo(line)
        if dry_run or (plan.start and not positions.execute):
            hint = "" if dry_run or not plan.start else ": --execute carries this out"
            print_json(as_dict(plan, deleted=False)) if as_json else typer.echo(f"nothing was deleted{hint}")
            return
        if plan.start and plan.warnings:
            raise ConfigError(f"{settings.application_id} may still run: {plan.warnings[0]}. Nothing was deleted.")
        if not yes and not positions.execute:
            typer.confirm("Delete all of this?", abort=True)
        reset_application(plan, admin, (lambda _: None) if as_json else typer.echo)
        if as_json:
            print_json(as_dict(plan, deleted=True))


def _move(
    config: StreamsConfig, admin: KafkaAdmin, log: LiveKafka, start: Mapping[str, FirstBatch], execute: bool
) -> None:
    """Moves the reading positions, and keeps the state."""
    if not start:
        raise ConfigError(
            "--keep-state only moves positions: say where to, with --to-datetime, --by-duration or --to-offsets"
        )
    files, app = LocalFiles(config.checkpoint_dir), config.application_id
    commits = {commits_topic(app, name): name for name in start}
    found = admin.describe_topics(commits)
    moves = plan_moves(app, log, files, {commits[topic]: info.partitions for topic, info in found.items()}, start)
    for move in moves:
        typer.echo(f"{move.sub.name} reads on at {positions_text(move.first.start)}")
    typer.echo("state: kept. What is read again is counted again, what is skipped is missing from it")
    warnings = running_signs(admin, [(topic, n) for topic, info in found.items() for n in range(info.partitions)])
    if not execute:
        for warning in warnings:
            typer.echo(f"warning: {warning}")
        typer.echo("nothing was written: --execute carries this out")
        return
    for warning in warnings:
        raise ConfigError(f"{app} may still run: {warning}. Nothing was written.")
    for move in moves:
        carry_out(move, files, typer.echo)


def as_dict(plan: ResetPlan, *, deleted: bool) -> dict[str, Any]:
    """The plan for programs.

    Args:
        plan: The plan of the reset.
        deleted: Whether the plan was carried out.
    """
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
        "start": {name: topics_of(first.start) for name, first in plan.start.items()},
    }


def topics_of(at: SourceOffsets) -> dict[str, list[int]]:
    """Topic -> the offset of each partition."""
    return {topic: list(of.offsets) for topic, of in at.topics.items()}


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
