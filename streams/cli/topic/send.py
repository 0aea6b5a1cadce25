"""`streams topic send`."""

from __future__ import annotations

from typing import Annotated

import typer

from streams.cli.command import command
from streams.cli.connection import ClusterOptions
from streams.cli.topic.arguments import SerdeOptions, Topic, pairs
from streams.cli.topic.lines import LineFormat, records_of, to_timestamp, topic_serdes
from streams.wording import counted


@command
def send(
    topic: Topic,
    *,
    key_separator: Annotated[
        str, typer.Option(metavar="TEXT", help="The text between key and value.", show_default="a tab")
    ] = "\t",
    null: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The text for a null key or value (a tombstone).")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Event time of all records: ms, or 2026-01-31T12:00:00Z. Default: now."),
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Each line begins with its event time and the separator.")
    ] = False,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header of all records; may be repeated.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Write to this partition.")] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Each line is a JSON object with key, value, timestamp, headers and partition."),
    ] = False,
    serdes: SerdeOptions,
    cluster: ClusterOptions,
) -> None:
    """Write standard input to a topic, one record per line: key, tab, value, or only a value.

    With --json a line is an object, in which everything but `value` is optional: {"key": "a", "value": {"n": 1},
    "timestamp": 1700000000000, "headers": {"trace": "x"}}. The output of `streams topic read --json` has this form.
    """
    from streams.cluster.records import write_records

    form = LineFormat(
        topic=topic,
        separator=key_separator.replace("\\t", "\t"),
        null=null,
        timestamp=None if timestamp is None else to_timestamp(timestamp),
        timestamps=timestamps,
        headers=tuple((name, value.encode()) for name, value in pairs(header, "--header", "trace=7").items()),
        partition=partition,
        as_json=as_json,
        serdes=topic_serdes(serdes, topic),
    )
    client = cluster.client()
    count = write_records(client, topic, records_of(typer.get_binary_stream("stdin"), form))
    typer.echo(f"{counted(count, 'record')} written to {topic}", err=True)
