"""`streams dlq list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.cli.command import command
from streams.cli.dlq.arguments import ChoiceOptions, DeadLetters, Target, Topic
from streams.cli.output import print_json, visible
from streams.cli.settings import ApplicationOptions, AsJson
from streams.cli.topic.lines import shown_time

if TYPE_CHECKING:
    from state.commit.live import LiveKafka
    from streams.application.dead_letters import Choice, Letter


@command
def list_letters(
    target: Target = None,
    *,
    topic: Topic = None,
    each: Annotated[bool, typer.Option("--each", help="A line for each letter instead of counts.")] = False,
    as_json: AsJson = False,
    choice: ChoiceOptions,
    application: ApplicationOptions,
) -> None:
    """Count dead letters by error and by the topic of the records that failed.

    The columns Position and Origin are those of one letter, the last of its kind: where it is, for `streams dlq show`, and where
    the record that failed was read. Replayed counts the letters that `streams dlq replay` has sent.
    """
    letters = DeadLetters.of(target, topic, application)
    log = letters.log()
    there = log.admin.describe_topics(letters.topics)
    for one in letters.topics:
        if one not in there:
            typer.echo(
                f"There is no topic {one} (streams topic list shows those that exist): no letters in it.", err=True
            )
    rows = [row for one in letters.topics if one in there for row in _rows(log, one, choice.choice(), each)]
    if as_json:
        print_json(rows)
        return
    _print(rows)


def _rows(log: LiveKafka, topic: str, choice: Choice, each: bool) -> list[dict[str, Any]]:
    """A row for each kind of letters, or for each letter."""
    from streams.application.dead_letters import letters_of, places_of, read_replayed

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


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from streams.cli.console import table_console

    if not rows:
        typer.echo("no dead letters")
        return
    table = Table(box=None, header_style="bold")
    for heading in ("Topic", "Error", "Message", "Stage", "Origin"):
        table.add_column(heading, overflow="fold")
    for heading in ("Letters", "Replayed", "Last", "Position"):
        table.add_column(heading, justify="right")
    for row in rows:
        texts = (row["topic"], row["error"], row["message"], row["stage"], row["origin"] or "-")
        numbers = (f"{row['letters']:,}", f"{row['replayed']:,}", shown_time(row["last"]), row["position"])
        table.add_row(*(Text(visible(str(text))) for text in (*texts, *numbers)))
    table_console().print(table)
