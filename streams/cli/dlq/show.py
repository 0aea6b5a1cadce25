"""`streams dlq show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.cli.command import command
from streams.cli.dlq.arguments import DeadLetters, Topic, position
from streams.cli.output import print_json, visible, visible_bytes
from streams.cli.settings import ApplicationOptions, AsJson
from streams.cli.topic.lines import shown_time
from streams.errors import ConfigError

if TYPE_CHECKING:
    from streams.application.dead_letters import Letter


@command
def show(
    at: Annotated[
        str, typer.Argument(metavar="PARTITION:OFFSET", help="The position of the letter.", show_default=False)
    ],
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="The topology, for its topic of dead letters.", show_default=False),
    ] = None,
    *,
    topic: Topic = None,
    as_json: AsJson = False,
    application: ApplicationOptions,
) -> None:
    """Print one dead letter: the record that failed, why, where it came from, and where a replay would send it."""
    from streams.application.dead_letters import letters_of, read_replayed

    letters = DeadLetters.of(target, topic, application)
    name, (partition, offset), log = letters.only, position(at), letters.log()
    exists = partition < log.partition_count(name)
    found = next(letters_of(log, (name, partition), offset, offset + 1), None) if exists else None
    if found is None:
        raise ConfigError(
            f"{name!r} has no letter at {at}: `streams dlq list --each --topic {name}` shows the position of each"
        )
    said = as_dict(found, read_replayed(log, name).has(partition, offset))
    if as_json:
        print_json(said)
        return
    stack = said.pop("stacktrace")
    headers = said.pop("headers")
    for what, value in said.items():
        shown = shown_time(value) if what in ("written", "event_time") else "-" if value in ("", None) else str(value)
        typer.echo(f"{what.replace('_', ' ') + ':':14} {visible(shown)}")
    for header, value in headers:
        typer.echo(f"{'header:':14} {visible(header)}={visible(value or 'null')}")
    if stack:
        typer.echo("\n" + visible(stack, keep="\n\t"))


def as_dict(letter: Letter, replayed: bool) -> dict[str, Any]:
    """A letter for programs; keys, values and headers as text."""
    return {
        "position": f"{letter.place[0]}-{letter.place[1]}@{letter.offset}",
        "written": letter.timestamp,
        "error": letter.error("exception"),
        "message": letter.error("message"),
        "stage": letter.error("stage"),
        "attempts": letter.attempts,
        "origin": letter.origin,
        "event_time": letter.event_time,
        "key": _text(letter.key),
        "value": _text(letter.value),
        "missing": letter.cut,
        "replayed": replayed,
        "replay_goes_to": letter.target,
        "left_out": letter.left_out,
        "headers": [[name, _text(value)] for name, value in letter.own_headers],
        "stacktrace": letter.error("stacktrace"),
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else visible_bytes(data)
