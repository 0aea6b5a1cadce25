"""The options that say where an application begins to read after a reset, and the move of its positions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from state.changelog.topics import commits_topic
from state.commit.live import LiveKafka
from state.kafka.admin import KafkaAdmin
from streams.application.adopt import carry_out, plan_moves
from streams.application.instances import while_stopped
from streams.application.rescale.plan import check_no_rescale
from streams.application.reset import Wanted, check_no_reset, parse_offsets, positions_text, running_signs
from streams.checkpoint.files import LocalFiles
from streams.cli.command import OptionGroup
from streams.cli.topic.lines import to_timestamp
from streams.config import StreamsConfig
from streams.config.settings import to_milliseconds
from streams.errors import ConfigError
from streams.source.offsets import FirstBatch

WAIT = "If it has ended, try again a minute after its last commit."
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


def move_positions(
    config: StreamsConfig, admin: KafkaAdmin, log: LiveKafka, start: Mapping[str, FirstBatch], execute: bool
) -> bool:
    """Moves the reading positions, and keeps the state; False: they were only shown. Remarks go to standard error."""
    if not start:
        raise ConfigError(
            "--keep-state only moves positions: say where to, with --to-datetime, --by-duration or --to-offsets"
        )
    say = partial(typer.echo, err=True)
    files, app = LocalFiles(config.checkpoint_dir), config.application_id
    # A rescale goes on with the positions that it has noted, and would silently undo the move.
    check_no_rescale(app, start, admin)
    check_no_reset(app, config.checkpoint_dir)
    commits = {commits_topic(app, name): name for name in start}
    found = admin.describe_topics(commits)
    moves = plan_moves(app, log, files, {commits[topic]: info.partitions for topic, info in found.items()}, start)
    for move in moves:
        say(f"{move.sub.name} reads on at {positions_text(move.first.start)}")
    say("state: kept. What is read again is counted again, what is skipped is missing from it")
    warnings = running_signs(admin, [(topic, n) for topic, info in found.items() for n in range(info.partitions)])
    if not execute:
        for warning in warnings:
            say(f"warning: {warning}")
        say("nothing was written: --execute carries this out")
        return False
    for warning in warnings:
        raise ConfigError(f"{app} may still run: {warning}. Nothing was written. {WAIT}")
    with while_stopped(config, admin, found):
        for move in moves:
            carry_out(move, files, say)
    return True


def as_offsets(start: Mapping[str, FirstBatch]) -> dict[str, dict[str, list[int]]]:
    """Sub-topology -> topic -> the offset of each partition."""
    return {
        name: {topic: list(of.offsets) for topic, of in first.start.topics.items()} for name, first in start.items()
    }
