"""Arguments and options that the commands about dead letters share: which topics, and which letters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from streams.cli.command import OptionGroup
from streams.cli.settings import ApplicationOptions
from streams.cli.target import TopologyTarget
from streams.cli.topic.lines import to_timestamp
from streams.errors import ConfigError
from streams.topology.graph import Failed

if TYPE_CHECKING:
    from state.commit.live import LiveKafka
    from streams.application.dead_letters import Choice
    from streams.config import StreamsConfig

Target = Annotated[
    str | None,
    typer.Argument(metavar="TARGET", help="The topology, for its topics of dead letters.", show_default=False),
]
Topic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="The topic of dead letters.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and end.")]

_PANEL = "Which letters (default: all)"


@dataclass(frozen=True)
class ChoiceOptions(OptionGroup):
    """Options that choose among dead letters; a letter must satisfy all of them."""

    error: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="The exception, such as ValueError, or a part of its message.", rich_help_panel=_PANEL
        ),
    ] = None
    key: Annotated[str | None, typer.Option(metavar="TEXT", help="The record's key.", rich_help_panel=_PANEL)] = None
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Written at this time or later.", rich_help_panel=_PANEL)
    ] = None
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Written before this time.", rich_help_panel=_PANEL)
    ] = None
    from_topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Of records of this topic.", rich_help_panel=_PANEL)
    ] = None
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTITION:OFFSET", help="At this position; may be repeated.", rich_help_panel=_PANEL),
    ] = None

    def choice(self) -> Choice:
        """The letters that the options choose.

        Raises:
            ConfigError: A time or a position cannot be read.
        """
        from streams.application.dead_letters import Choice

        return Choice(
            error=self.error,
            key=self.key,
            since_ms=None if self.since is None else to_timestamp(self.since),
            until_ms=None if self.until is None else to_timestamp(self.until),
            origin=self.from_topic,
            positions=None if self.at is None else frozenset(map(position, self.at)),
        )


def position(text: str) -> tuple[int, int]:
    """Partition and offset.

    Raises:
        ConfigError: The text is something else.
    """
    if not re.fullmatch(r"\d+:\d+", text):
        raise ConfigError(
            f"{text!r} is no position: write PARTITION:OFFSET, such as 0:17, as `streams dlq list` shows it"
        )
    partition, _, offset = text.partition(":")
    return int(partition), int(offset)


@dataclass(frozen=True)
class DeadLetters:
    """The topics of dead letters that a command is about.

    Attributes:
        config: The settings, with the cluster.
        topics: The topics.
    """

    config: StreamsConfig
    topics: tuple[str, ...]

    @classmethod
    def of(cls, target: str | None, topic: str | None, application: ApplicationOptions) -> DeadLetters:
        """The topics of a topology, or the one that is named.

        Raises:
            ConfigError: Neither is given, or the topology has no dead letters.
        """
        from streams.cli.settings import reachable

        if target is None:
            if topic is None:
                raise ConfigError(
                    "which dead letters? Name a topology, as in `streams dlq list app.py`, or a topic with --topic"
                )
            return cls(reachable(application.load("dlq")), (topic,))
        program = TopologyTarget.parse(target)
        config, topology = reachable(application.load(program.application_id())), program.load()
        named = [str(sink.topic) for sink in topology.sinks() if sink.failed == Failed()]
        found = [topic] if topic is not None else [config.dead_letter_topic, *named]
        topics = tuple(dict.fromkeys(one for one in found if one is not None))
        if not topics:
            raise ConfigError(
                f"{target} has no dead letters: neither a Retry nor the setting dead_letter_topic names a topic (--config FILE has "
                f"the settings, if they are in a file). Name the topic with --topic"
            )
        return cls(config, topics)

    @property
    def only(self) -> str:
        """The one topic.

        Raises:
            ConfigError: There are several.
        """
        if len(self.topics) > 1:
            raise ConfigError(f"which topic? Choose with --topic: {', '.join(self.topics)}")
        return self.topics[0]

    def log(self) -> LiveKafka:
        from state.commit.live import LiveKafka

        return LiveKafka(self.config.client, self.config.transaction_timeout_ms, bulk=self.config.bulk_io)
