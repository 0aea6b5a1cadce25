"""`streams topic read`."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Annotated

import typer

from streams.cli.command import command
from streams.cli.connection import ClusterOptions
from streams.cli.output import print_json_line
from streams.cli.topic.arguments import SerdeOptions, Topic
from streams.cli.topic.lines import topic_serdes
from streams.errors import ConfigError


@command
def read(
    topic: Topic,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for further records, until Ctrl-C.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Most records to print.")] = None,
    offset: Annotated[
        str, typer.Option(metavar="OFFSET", help="Where to begin: earliest, latest, an offset, or -N for the last N.")
    ] = "earliest",
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="The same as --offset earliest, the default.")
    ] = False,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Begin each line with the event time.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Print headers before the key.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each record, with all its fields.")
    ] = False,
    serdes: SerdeOptions,
    cluster: ClusterOptions,
) -> None:
    """Print the committed records of a topic, one per line: key, tab, value.

    Control characters are shown as escapes. Counts, windowed keys and other binary data become readable with --topology, or
    with --key-serde and --value-serde.
    """
    from streams.cli.topic.lines import RecordPrinter
    from streams.cluster.records import Begin, read_records

    printer = RecordPrinter(topic, topic_serdes(serdes, topic), timestamps=timestamps, headers=headers)
    begin = Begin(0 if from_beginning else _offset(offset), partition)
    found = islice(read_records(cluster.client(), topic, begin, follow=follow), limit)
    with suppress(KeyboardInterrupt):
        for record in found:
            if as_json:
                print_json_line(printer.as_dict(record))
            else:
                typer.echo(printer.line(record))
    if printer.unreadable:
        typer.echo(f"{printer.unreadable} keys or values are shown as bytes: {printer.why}", err=True)


def _offset(text: str) -> int | None:
    named = {"earliest": 0, "beginning": 0, "latest": None, "end": None}
    if text in named:
        return named[text]
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"--offset {text}: earliest, latest, a number, or -N for the last N") from None
