"""`streams reset`: deletes an application's state and internal topics, or moves the positions at which it reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from state.changelog import commits_topic
from state.commit.live import LiveKafka
from state.kafka.admin import KafkaAdmin
from state.kafka.connection import RightsProbe
from state.kafka.topics import partitions_of
from streams.application.adopt import carry_out, plan_moves
from streams.application.instances import while_stopped
from streams.application.owned_topics import commits_topics_of
from streams.application.rescale.plan import check_no_rescale
from streams.application.reset import (
    ResetPlan,
    Wanted,
    check_no_reset,
    drop_sink,
    parse_offsets,
    plan_drop,
    plan_reset,
    running_signs,
    start_positions,
)
from streams.application.reset import reset as reset_application
from streams.application.rights import check_reset_rights, check_topic_deletion
from streams.checkpoint.files import LocalFiles
from streams.cli.command import OptionGroup, argument, command, option
from streams.cli.options import (
    ApplicationOptions,
    AsJson,
    DryRun,
    Yes,
    check_no_question,
    duration_ms,
    live,
    reachable,
    to_timestamp,
)
from streams.cli.output import print_json
from streams.config import StreamsConfig
from streams.engine.source.offsets import FirstBatch
from streams.errors import ConfigError

Topics = Annotated[
    str | None,
    option(
        "Also delete these internal topics, even though nothing proves that they belong to the application.",
        metavar="NAME,NAME",
    ),
]
DroppedSink = Annotated[
    str | None,
    option(
        "Delete only the rows that wait for this sink (to_delta or foreach_batch), and its checkpoint. All other state stays.",
        "--drop-sink",
        metavar="NAME",
    ),
]


@dataclass(frozen=True)
class PositionOptions(OptionGroup, panel="Where the next start reads from"):
    """Where the next start begins to read; the names are those of `kafka-consumer-groups.sh --reset-offsets`."""

    to_datetime: Annotated[
        str | None,
        option(
            "From the first records at or after this time: ISO 8601, UTC unless it names a zone, or ms since 1970.",
            metavar="TIME",
        ),
    ] = None
    by_duration: Annotated[
        str | None, option("From the records of this long ago: 90m, 2h, 7d.", metavar="DURATION")
    ] = None
    to_offsets: Annotated[
        Path | None, option("From the offsets in a file of topic,partition,offset.", metavar="FILE")
    ] = None
    keep_state: Annotated[
        bool,
        option(
            "Keep stores, changelogs and commits, and only move the positions. Records that are read again are counted again; "
            "skipped ones never are."
        ),
    ] = False
    execute: Annotated[bool, option("Carry it out, without asking.")] = False

    def __bool__(self) -> bool:
        """Whether a position is asked for."""
        return any(each is not None for each in (self.to_datetime, self.by_duration, self.to_offsets))

    def wanted(self) -> Wanted | None:
        """The positions that the options ask for, or None."""
        given = [each for each in (self.to_datetime, self.by_duration, self.to_offsets) if each is not None]
        if len(given) > 1:
            raise ConfigError("--to-datetime, --by-duration and --to-offsets are mutually exclusive: give one of them")
        if self.to_datetime is not None:
            return Wanted(to_timestamp(self.to_datetime))
        if self.by_duration is not None:
            return Wanted(int(time.time() * 1000) - duration_ms("--by-duration", self.by_duration))
        if self.to_offsets is not None:
            return Wanted(offsets=parse_offsets(self.to_offsets.read_text(encoding="utf-8").splitlines()))
        return None


@command
def reset(
    name: Annotated[str | None, argument("The application id, instead of --application-id.", metavar="ID")] = None,
    *,
    application: ApplicationOptions,
    topics: Topics = None,
    positions: PositionOptions,
    dropped: DroppedSink = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete an application's internal topics, group offsets, local state and checkpoint. Its input and output topics are kept.

    The topology.json of the checkpoint and the commit markers prove which topics belong to the application; the
    beginning of a name never does. Stop the application first. Run it again to finish an interrupted reset.

    With --to-datetime, --by-duration or --to-offsets the next start reads from there, with empty stores. That is a dry run unless
    --execute is given, and is refused while the application runs. With --drop-sink only that sink's waiting rows are deleted.
    """
    settings = reachable(_named(application, name).load(None))
    check_no_question(as_json, yes or dry_run or bool(positions), "add --dry-run, or --yes to delete")
    log = live(settings)
    if dropped is not None:
        if positions or positions.keep_state or topics:
            raise ConfigError("--drop-sink keeps all other state: give it without --topics, --keep-state and positions")
        _drop_sink(settings, dropped, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    named = [name.strip() for name in (topics or "").split(",") if name.strip()]
    say: Callable[[str], None] = (lambda _: None) if as_json else typer.echo
    with KafkaAdmin(settings.client) as admin:
        wanted = positions.wanted()
        start = start_positions(settings, admin, log, wanted) if wanted else {}
        if positions.keep_state:
            moved = move_positions(settings, admin, log, start, positions.execute and not dry_run)
            result = {"application_id": settings.application_id, "moved": moved, "start": as_offsets(start)}
        else:
            plan = plan_reset(settings, admin, log, named, start)
            for line in plan.lines():
                say(line)
            done = _carry_out(plan, admin, positions, dry_run, yes or as_json, say)
            result = as_dict(plan, deleted=done)
    if as_json:
        print_json(result)


def _drop_sink(config: StreamsConfig, sink: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Drops the rows that wait for one sink, after confirmation."""
    say: Callable[[str], None] = (lambda _: None) if as_json else typer.echo
    with KafkaAdmin(config.client) as admin:
        plan = plan_drop(config, sink, admin)
        for line in plan.lines():
            say(line)
        if not dry_run:
            _check_stopped(config.application_id, plan.warnings, "deleted")
            if not yes:
                typer.confirm("Delete all of this?", abort=True)
            check_topic_deletion(config.application_id, [plan.topic], RightsProbe(config.client), config.client)
            drop_sink(plan, admin, say)
    if as_json:
        found = {"sink": sink, "topic": plan.topic, "waiting": plan.waiting, "deleted": not dry_run}
        print_json({"application_id": config.application_id, **found})
    elif dry_run:
        say("nothing was deleted")


def _carry_out(
    plan: ResetPlan, admin: KafkaAdmin, positions: PositionOptions, dry_run: bool, yes: bool, say: Callable[[str], None]
) -> bool:
    """Carries the plan out, after confirmation; False: it was only shown."""
    only_shown = bool(positions) and not positions.execute
    if dry_run or only_shown:
        say(f"nothing was deleted{': --execute carries this out' if only_shown and not dry_run else ''}")
        return False
    asks = not (yes or positions.execute)
    if asks:
        typer.confirm("Delete all of this?", abort=True)
    client = plan.config.client
    check_reset_rights(plan.config.application_id, plan.topics.keys(), RightsProbe(client), client)
    with while_stopped(plan.config, admin, commits_topics_of(plan.config.application_id, plan.topics)):
        if not asks:
            # With --yes or --execute, nobody has read the warnings.
            _check_stopped(plan.config.application_id, plan.warnings, "deleted")
        reset_application(plan, admin, say)
    return True


def _check_stopped(application_id: str, signs: Iterable[str], done: str) -> None:
    """Raises `ConfigError` if there is a sign that the application runs."""
    for sign in signs:
        raise ConfigError(
            f"{application_id} may still be running: {sign}. Nothing was {done}. If it has ended, try again a "
            "minute after its last commit."
        )


def as_dict(plan: ResetPlan, *, deleted: bool) -> dict[str, Any]:
    """The plan as JSON data."""
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
    """The options, with the application's id: a reset needs it and has no default for it."""
    given = application.application_id
    if positional is not None and (":" in positional or positional.endswith(".py")):
        raise ConfigError(
            f"{positional!r} is a topology, and a reset takes the application's id, such as the application_id in its settings: "
            f"streams reset ID."
        )
    if positional is not None and given not in (None, positional):
        raise ConfigError(f"Two applications are named, {positional!r} and {given!r}: reset one at a time.")
    return replace(application, application_id=positional or given)


def move_positions(
    config: StreamsConfig, admin: KafkaAdmin, log: LiveKafka, start: Mapping[str, FirstBatch], execute: bool
) -> bool:
    """Moves the reading positions and keeps the state; False: they were only shown. Remarks are printed to standard error."""
    if not start:
        raise ConfigError(
            "--keep-state only moves positions: say where to, with --to-datetime, --by-duration or --to-offsets"
        )
    say = partial(typer.echo, err=True)
    files, app = LocalFiles(config.checkpoint_dir), config.application_id
    # A rescale continues with the positions that it has noted, and would silently undo the move.
    check_no_rescale(app, start, admin)
    check_no_reset(app, config.checkpoint_dir)
    commits = {commits_topic(app, name): name for name in start}
    found = admin.describe_topics(commits)
    moves = plan_moves(app, log, files, {commits[topic]: info.partitions for topic, info in found.items()}, start)
    for move in moves:
        say(f"{move.sub.name} continues at {move.first.start}")
    say("state: kept. Records that are read again are counted again; skipped records are missing")
    warnings = running_signs(admin, partitions_of(found))
    if not execute:
        for warning in warnings:
            say(f"warning: {warning}")
        say("nothing was written: --execute carries this out")
        return False
    _check_stopped(app, warnings, "written")
    with while_stopped(config, admin, found):
        for move in moves:
            carry_out(move, files, say)
    return True


def as_offsets(start: Mapping[str, FirstBatch]) -> dict[str, dict[str, list[int]]]:
    """Sub-topology -> topic -> the offset of each partition."""
    return {
        name: {topic: list(of.offsets) for topic, of in first.start.topics.items()} for name, first in start.items()
    }
