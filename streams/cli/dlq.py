"""`streams dlq`: dead letters, listed, shown, replayed and deleted."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from state.changelog import ensure_replays
from state.kafka.admin import KafkaAdmin
from state.kafka.connection import RightsProbe
from streams.application.dead_letters import (
    Choice,
    Letter,
    ReplayPlan,
    Until,
    dead_letter_topics,
    letter_as_dict,
    letters_of,
    places_of,
    plan_purge,
    plan_replay,
    read_replayed,
    replays_topic,
    summary,
)
from streams.application.dead_letters import purge as purge_letters
from streams.application.dead_letters import replay as replay_letters
from streams.application.rights import check_replay_rights
from streams.cli.command import OptionGroup, argument, command, option
from streams.cli.command import application as group
from streams.cli.options import (
    ApplicationOptions,
    AsJson,
    DryRun,
    Yes,
    check_no_question,
    complete_topics,
    live,
    reachable,
    to_timestamp,
)
from streams.cli.output import print_json, print_table, shown_time, visible, visible_bytes
from streams.config import StreamsConfig
from streams.errors import ConfigError
from streams.wording import counted

if TYPE_CHECKING:
    from state.commit.live import LiveKafka

Target = Annotated[str | None, argument("The topology whose dead letters to use.", metavar="TARGET")]
Topic = Annotated[
    str | None, option("The dead-letter topic.", "--topic", metavar="TOPIC", autocompletion=complete_topics)
]


@dataclass(frozen=True)
class ChoiceOptions(OptionGroup, panel="Which dead letters (default: all)"):
    """Options that choose among dead letters; a letter must satisfy all of them."""

    error: Annotated[
        str | None, option("With this exception, such as ValueError, or this text in its message.", metavar="TEXT")
    ] = None
    key: Annotated[str | None, option("With this record key.", metavar="TEXT")] = None
    since: Annotated[str | None, option("Written at this time or later.", metavar="TIME")] = None
    until: Annotated[str | None, option("Written before this time.", metavar="TIME")] = None
    from_topic: Annotated[str | None, option("From records of this topic.", metavar="TOPIC")] = None
    at: Annotated[list[str] | None, option("At this position; may be repeated.", metavar="PARTITION:OFFSET")] = None

    def choice(self) -> Choice:
        """The letters that the options choose."""
        return Choice(
            error=self.error,
            key=self.key,
            since_ms=None if self.since is None else to_timestamp(self.since),
            until_ms=None if self.until is None else to_timestamp(self.until),
            origin=self.from_topic,
            positions=None if self.at is None else frozenset(map(position, self.at)),
        )


def position(text: str) -> tuple[int, int]:
    """Parses a partition and an offset that were typed."""
    if not re.fullmatch(r"\d+:\d+", text):
        raise ConfigError(
            f"{text!r} is not a position: write PARTITION:OFFSET, such as 0:17, as `streams dlq list` shows it"
        )
    partition, _, offset = text.partition(":")
    return int(partition), int(offset)


@dataclass(frozen=True)
class DeadLetters:
    """The topics of dead letters that a command is about.

    Attributes:
        config: The settings, with the cluster.
    """

    config: StreamsConfig
    topics: tuple[str, ...]

    @classmethod
    def of(cls, target: str | None, topic: str | None, application: ApplicationOptions) -> DeadLetters:
        """The topics of a topology, or the one topic that is named."""
        if target is None:
            if topic is None:
                raise ConfigError(
                    "which dead letters? Name a topology, as in `streams dlq list app.py`, or a topic with --topic"
                )
            return cls(reachable(application.load("dlq")), (topic,))
        topology, config = application.of(target)
        topics = dead_letter_topics(topology, config.dead_letter_topic) if topic is None else (topic,)
        if not topics:
            raise ConfigError(
                f"{target} has no dead letters: neither a Retry nor the setting dead_letter_topic names a topic. If the "
                f"settings are in a file, add --config FILE. Otherwise name the topic with --topic"
            )
        return cls(config, topics)

    @property
    def only(self) -> str:
        """The topic, for a command that allows only one."""
        if len(self.topics) > 1:
            raise ConfigError(f"which topic? Choose with --topic: {', '.join(self.topics)}")
        return self.topics[0]

    def log(self) -> LiveKafka:
        return live(self.config)


@command
def list_letters(
    target: Target = None,
    *,
    topic: Topic = None,
    each: Annotated[bool, option("Print a line for each dead letter instead of counts.")] = False,
    as_json: AsJson = False,
    choice: ChoiceOptions,
    application: ApplicationOptions,
) -> None:
    """Count dead letters by error and by the topic of the failed records.

    Position and Origin belong to the newest dead letter of each line. Position is what `streams dlq show` needs; Origin is where
    the failed record was read. Replayed counts the dead letters that `streams dlq replay` has sent.
    """
    letters = DeadLetters.of(target, topic, application)
    log = letters.log()
    there = log.admin.describe_topics(letters.topics)
    for one in letters.topics:
        if one not in there:
            typer.echo(
                f"The topic {one} does not exist (`streams topic list` shows all topics), so it has no dead letters.",
                err=True,
            )
    rows = [row for one in letters.topics if one in there for row in _rows(log, one, choice.choice(), each)]
    if as_json:
        print_json(rows)
    elif not rows:
        typer.echo("no dead letters")
    else:
        headings = ("Topic", "Error", "Message", "Stage", "Origin", ">Letters", ">Replayed", ">Last", ">Position")
        print_table(headings, map(_cells, rows))


def _rows(log: LiveKafka, topic: str, choice: Choice, each: bool) -> list[dict[str, Any]]:
    """A row for each kind of letters, or for each letter."""
    places = places_of(log, topic)
    replayed = read_replayed(log, topic)
    rows: dict[object, dict[str, Any]] = {}
    for place in places:
        for letter in letters_of(log, place):
            if not choice.has(letter):
                continue
            kind = (letter.error("exception"), letter.error("topic") or letter.origin, letter.error("stage"))
            row = rows.setdefault((place, letter.offset) if each else kind, _row(letter))
            row["letters"] += 1
            row["replayed"] += replayed.has(place[1], letter.offset)
            row["first"], row["last"] = min(row["first"], letter.timestamp), max(row["last"], letter.timestamp)
            row["position"], row["origin"] = f"{place[1]}:{letter.offset}", letter.origin
    return list(rows.values())


def _row(letter: Letter) -> dict[str, Any]:
    return {
        "topic": letter.place[0],
        "error": letter.error("exception"),
        "message": letter.error("message"),
        "stage": letter.error("stage"),
        "from": letter.error("topic"),
        "letters": 0,
        "replayed": 0,
        "first": letter.timestamp,
        "last": letter.timestamp,
    }


def _cells(row: dict[str, Any]) -> tuple[Text, ...]:
    texts = (row["topic"], row["error"], row["message"], row["stage"], row["origin"] or "-")
    numbers = (f"{row['letters']:,}", f"{row['replayed']:,}", shown_time(row["last"]), row["position"])
    return tuple(Text(visible(str(text))) for text in (*texts, *numbers))


@command
def show(
    at: Annotated[str, argument("The position of the dead letter.", metavar="PARTITION:OFFSET")],
    target: Target = None,
    *,
    topic: Topic = None,
    as_json: AsJson = False,
    application: ApplicationOptions,
) -> None:
    """Print one dead letter: the failed record, the error, where it came from, and where a replay would send it."""
    letters = DeadLetters.of(target, topic, application)
    name, (partition, offset), log = letters.only, position(at), letters.log()
    exists = partition < log.partition_count(name)
    found = next(letters_of(log, (name, partition), offset, offset + 1), None) if exists else None
    if found is None:
        raise ConfigError(
            f"{name!r} has no dead letter at {at}: `streams dlq list --each --topic {name}` shows the position of each"
        )
    shown = letter_as_dict(found, read_replayed(log, name).has(partition, offset), visible_bytes)
    if as_json:
        print_json(shown)
        return
    stack = shown.pop("stacktrace")
    headers = shown.pop("headers")
    for what, value in shown.items():
        text = shown_time(value) if what in ("written", "event_time") else "-" if value in ("", None) else str(value)
        typer.echo(f"{what.replace('_', ' ') + ':':14} {visible(text)}")
    for header, value in headers:
        typer.echo(f"{'header:':14} {visible(header)}={visible(value or 'null')}")
    if stack:
        typer.echo("\n" + visible(stack, keep="\n\t"))


@command
def replay(
    target: Target = None,
    *,
    topic: Topic = None,
    to: Annotated[
        str | None, option("Send all records to this topic, instead of each to its own.", metavar="TOPIC")
    ] = None,
    again: Annotated[
        bool, option("Also send records that the state already contains. They are then counted twice.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
    choice: ChoiceOptions,
    application: ApplicationOptions,
) -> None:
    """Send the records of dead letters again, each exactly once.

    If the operator has a Retry, the record goes through its first retry topic; otherwise to the topic that it came from. Key,
    value, headers and timestamp stay as they were. The same transactions record in the topic TOPIC-replays which dead letters were
    sent, so a replay that you repeat, or that was killed, sends none twice.

    A record that failed after a count, or in another branch than the count, is already in the count. It is left out, with the
    reason.
    """
    check_no_question(as_json, yes or dry_run, "add --dry-run, or --yes to replay")
    letters = DeadLetters.of(target, topic, application)
    log = letters.log()
    plan = plan_replay(log, letters.only, choice.choice(), to, again)
    for line in () if as_json else _lines(plan):
        typer.echo(line)
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
    typer.echo("nothing was sent" if dry_run else f"{counted(sent, 'dead letter')} replayed")


def _lines(plan: ReplayPlan) -> Iterator[str]:
    for where, count in sorted(plan.targets.items()):
        yield f"{counted(count, 'dead letter')} to {where}"
    for why, count in sorted(plan.left_out.items()):
        yield f"{counted(count, 'dead letter')} cannot be replayed: {why}"
    yield f"{counted(plan.done, 'dead letter')} already replayed"


@dataclass(frozen=True)
class UntilOptions(OptionGroup):
    """How many of the oldest dead letters are deleted."""

    until: Annotated[str | None, option("Delete the dead letters written before this time.", metavar="TIME")] = None
    to_offset: Annotated[
        list[str] | None,
        option(
            "Delete the dead letters of this partition before this offset; may be repeated.", metavar="PARTITION:OFFSET"
        ),
    ] = None
    replayed: Annotated[
        bool, option("In each partition, delete the dead letters before the first one that has not been replayed.")
    ] = False
    everything: Annotated[bool, option("Delete all dead letters.", "--all")] = False

    def bounds(self) -> Until:
        """Reads the options.

        Raises:
            ConfigError: No option is given, or both all letters and a bound.
        """
        if bool(self.until or self.to_offset or self.replayed) == self.everything:
            raise ConfigError(
                "how far? Name --until TIME, --to-offset PARTITION:OFFSET or --replayed (the lowest bound counts), or --all"
            )
        return Until(
            time_ms=None if self.until is None else to_timestamp(self.until),
            offsets=None if self.to_offset is None else dict(map(position, self.to_offset)),
            replayed=self.replayed,
        )


@command
def purge(
    target: Target = None,
    *,
    topic: Topic = None,
    until: UntilOptions,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
    application: ApplicationOptions,
) -> None:
    """Delete dead letters, oldest first, after showing how many.

    Kafka deletes the records of a partition from its beginning, so the first dead letter that stays keeps all later ones.
    """
    check_no_question(as_json, yes or dry_run, "add --dry-run, or --yes to delete")
    bounds = until.bounds()
    letters = DeadLetters.of(target, topic, application)
    plan = plan_purge(letters.log(), letters.only, bounds)
    what = counted(plan.letters, "letter")
    if not as_json and plan.first_ms is not None and plan.last_ms is not None:
        typer.echo(f"{what}, written from {shown_time(plan.first_ms)} to {shown_time(plan.last_ms)}")
        typer.echo(f"{plan.not_replayed} of them were never replayed")
    if plan.letters and not (dry_run or yes):
        typer.confirm(f"Delete {what}? They cannot be recovered.", abort=True)
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


app = group(
    "Dead letters: the records that an application has set aside. Choose them by topology (TARGET) or by --topic.",
    {"list": list_letters, "show": show, "replay": replay, "purge": purge},
)
