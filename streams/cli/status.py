"""`streams status`: lag, rates and last commits of an application, from Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from state.commit.live import LiveKafka
from state.kafka.admin import KafkaAdmin
from streams.application.prepare import plan_application
from streams.application.status import (
    SinkStatus,
    Status,
    SubStatus,
    application_status,
    records_per_second,
    sink_statuses,
)
from streams.cli.command import NOT_SAFE, command
from streams.cli.console import table_console
from streams.cli.output import print_json, print_json_line
from streams.cli.settings import ApplicationOptions, AsJson, Target, reachable
from streams.cli.target import TopologyTarget
from streams.cli.topic.lines import shown_time
from streams.config import StreamsConfig
from streams.config.settings import age_in_words, to_milliseconds
from streams.errors import ConfigError
from streams.source.log import LiveLog
from streams.source.pauses import read_pauses
from streams.topology.topology import Topology


@command
def status(
    target: Target,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[
        str, typer.Option(metavar="DURATION", help="Time between two measurements, which rates are computed from.")
    ] = "2s",
    as_json: AsJson = False,
    application: ApplicationOptions,
) -> None:
    """Show how far an application is behind, how fast it is, and when each task last committed.

    Kafka is only read; the application may run anywhere, or not at all. The lag of a lake sink is what waits in its internal topic.
    Exit code 3 if the application has never committed anything. With --watch --json, each measurement is a line.
    """
    program = TopologyTarget.parse(target)
    config = reachable(application.load(program.application_id()))
    looks = _looks(program.load(), config, _seconds(interval))
    first = next(looks)
    if watch:
        _watch(first, looks, as_json)
        return
    second = next(looks)
    print_json(as_dict(first, second)) if as_json else table_console().print(_table(first, second))
    if not second.has_committed:
        typer.echo(f"{config.application_id} has not committed anything yet: check the application id", err=True)
        raise typer.Exit(NOT_SAFE)


def _looks(topology: Topology, config: StreamsConfig, pause_s: float) -> Iterator[Status]:
    """Yields the status of an application repeatedly, with a pause between."""
    log = LiveKafka(config.client, config.transaction_timeout_ms, bulk=config.bulk_io)
    with KafkaAdmin(config.client) as admin:
        planned = plan_application(topology, config, admin)
        while True:
            pauses = read_pauses(LiveLog(config.client, admin), config.application_id)
            sinks = sink_statuses(planned, admin, pauses)
            yield application_status(planned, admin, log, int(time.time() * 1000), pauses, sinks)
            time.sleep(pause_s)


def _watch(before: Status, looks: Iterator[Status], as_json: bool) -> None:
    with suppress(KeyboardInterrupt):
        if as_json:
            for look in looks:
                print_json_line(as_dict(before, look))
                before = look
            return
        with Live(_table(before, before), auto_refresh=False) as live:
            for look in looks:
                live.update(_table(before, look), refresh=True)
                before = look


def as_dict(before: Status, after: Status) -> dict[str, Any]:
    """The status for programs, with rates since an earlier one; times in ms since 1970, ages in ms."""
    return {
        "application_id": after.application_id,
        "at": after.at_ms,
        "sub_topologies": [
            {
                "sub_topology": sub.name,
                "tasks": sub.tasks,
                "lag": sub.lag,
                "paused_since": sub.paused_since_ms,
                "records_per_s": records_per_second(before, after, sub.name),
                "since_last_commit_ms": _age(after.at_ms, sub.last_commit_ms),
                "event_time_lag_ms": _age(after.at_ms, sub.stream_time),
                "partitions": _partitions(sub),
                "committed": [
                    {
                        "task": one.task,
                        "step": one.version,
                        "at": one.committed_ms,
                        "stream_time": None if one.stream_time < 0 else one.stream_time,
                        "records_out": one.records_out,
                    }
                    for one in sub.committed
                ],
            }
            for sub in after.subs
        ],
        "lake_sinks": [
            {
                "sink": sink.name,
                "target": sink.target,
                "lag": sink.lag,
                "lag_at_most": sink.at_most,
                "paused_since": sink.paused_since_ms,
                "records_per_s": records_per_second(before, after, sink.name),
                "partitions": _partitions(sink),
            }
            for sink in after.sinks
        ],
    }


def _partitions(of: SubStatus | SinkStatus) -> list[dict[str, Any]]:
    return [
        {"topic": place[0], "partition": place[1], "read": of.read[place], "end": end}
        for place, end in sorted(of.ends.items())
    ]


def _table(before: Status, after: Status) -> Table:
    table = Table("Sub-topology", box=None, header_style="bold", title=after.application_id, title_justify="left")
    for heading in ("Lag", "Records/s", "Task", "Step", "Last commit", "Event time", "Behind now"):
        table.add_column(heading, justify="right")
    for sub in after.subs:
        head = _head(before, after, sub, f"{sub.lag:,}")
        if not sub.committed:
            table.add_row(*head, f"-/{sub.tasks}", "", "never", "", "")
        for index, one in enumerate(sub.committed):
            seen = one.stream_time >= 0
            table.add_row(
                *(head if index == 0 else ("", "", "")),
                f"{one.task}/{sub.tasks}",
                f"{one.version:,}",
                f"{age_in_words(after.at_ms - one.committed_ms)} ago",
                shown_time(one.stream_time) if seen else "",
                age_in_words(after.at_ms - one.stream_time) if seen else "",
            )
    for sink in after.sinks:
        table.add_row(*_head(before, after, sink, f"{'≤ ' if sink.at_most and sink.lag else ''}{sink.lag:,}"), "sink")
    return table


def _head(before: Status, after: Status, of: SubStatus | SinkStatus, lag: str) -> tuple[str, str, str]:
    """The name, the lag and the speed of a part of the application."""
    rate, since_ms = records_per_second(before, after, of.name), of.paused_since_ms
    paused = "" if since_ms is None else f"\npaused {age_in_words(after.at_ms - since_ms)} ago"
    return f"{of.name}{paused}", lag, "" if rate is None else f"{rate:,.0f}"


def _age(at_ms: int, since_ms: int | None) -> int | None:
    return None if since_ms is None else at_ms - since_ms


def _seconds(text: str) -> float:
    try:
        return int(to_milliseconds(text)) / 1000
    except ValueError as error:
        raise ConfigError(f"--interval: {error}") from None
