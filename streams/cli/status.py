"""`streams status`: lag, rates and last commits of an application, from Kafka, and `streams ui`: the same as a page.

`streams pause` and `resume`: hold it. `streams execution`: switches it.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from state.kafka.admin import KafkaAdmin
from state.kafka.placement import Placement
from streams.application.pausing import Pausing
from streams.cli.command import NOT_SAFE, argument, command, option
from streams.cli.options import ApplicationOptions, AsJson, ClusterOptions, Target, duration_ms, reachable
from streams.cli.output import print_json, print_json_line, shown_time, table, table_console
from streams.cli.target import TopologyTarget
from streams.config import Execution, StreamsConfig
from streams.config.settings import Address, age_in_words
from streams.driver.stopping import stopped_by_signals
from streams.engine.source.log import CommandLog
from streams.engine.source.pauses import WHOLE, Pauses, read_pauses

if TYPE_CHECKING:
    # Commands that need no topology, such as `streams pause`, do not wait for these imports.
    from rich.table import Table

    from streams.application.status import SinkStatus, Status, SubStatus
    from streams.topology.topology import Topology

_SIGNALS_S = 0.2
_UI_PORT = "8080"


@command
def status(
    target: Target,
    *,
    watch: Annotated[bool, option("Repeat until Ctrl-C.", "-w")] = False,
    interval: Annotated[
        str, option("Time between two measurements. Rates are computed from both.", metavar="DURATION")
    ] = "2s",
    as_json: AsJson = False,
    application: ApplicationOptions,
) -> None:
    """Show how far an application is behind, how fast it is, and when each task last committed.

    Kafka is only read; the application may run anywhere, or not at all. The lag of a lake sink is what waits in its internal topic.
    Exit code 3 if the application has never committed anything. With --watch --json, each measurement is a line.
    """
    topology, config = application.of(target)
    looks = _looks(topology, config, duration_ms("--interval", interval) / 1000)
    first = next(looks)
    if watch:
        _watch(first, looks, as_json)
        return
    second = next(looks)
    if as_json:
        print_json(as_dict(first, second))
    else:
        table_console().print(_table(first, second))
        for line in (*_left_live(second, target), *_unmatched(second, topology)):
            typer.echo(line)
    if not second.has_committed:
        typer.echo(f"{config.application_id} has not committed anything yet: check the application id", err=True)
        raise typer.Exit(NOT_SAFE)


def _looks(topology: Topology, config: StreamsConfig, pause_s: float) -> Iterator[Status]:
    """Yields the status of an application repeatedly, with a pause between."""
    from streams.application.prepare import plan_application
    from streams.application.status import application_status, sink_statuses

    with KafkaAdmin(config.client) as admin:
        log = CommandLog(config.client, admin)
        planned = plan_application(topology, config, admin)
        while True:
            pauses = read_pauses(log, config.application_id)
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
        from rich.live import Live

        with Live(_table(before, before), auto_refresh=False) as shown:
            for look in looks:
                shown.update(_table(before, look), refresh=True)
                before = look


def as_dict(before: Status, after: Status) -> dict[str, Any]:
    """The status as JSON data, with rates since an earlier status; times in ms since 1970, ages in ms."""
    from streams.application.status import records_per_second

    return {
        "application_id": after.application_id,
        "at": after.at_ms,
        "asked_execution": after.asked,
        "sub_topologies": [
            {
                "sub_topology": sub.name,
                "tasks": sub.tasks,
                "execution": sub.execution,
                "placement": sub.placement,
                "left_live": None if sub.left_live is None else sub.left_live._asdict(),
                "lag": sub.lag,
                "paused_since": sub.paused_since_ms,
                "records_per_s": records_per_second(before, after, sub.name),
                "since_last_commit_ms": _age(after.at_ms, sub.last_commit_ms),
                "event_time_lag_ms": _age(after.at_ms, sub.stream_time),
                "partitions": _partitions(sub),
                "joins": [
                    {"operator": one.node, "looked_up": one.number, "unmatched": dict(one.missing)} for one in sub.joins
                ],
                "committed": [one.as_json for one in sub.committed],
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


def _left_live(status: Status, target: str) -> Iterator[str]:
    """A line for each sub-topology that ran live and had to leave it."""
    for sub in status.subs:
        if (left := sub.left_live) is not None:
            age = age_in_words(status.at_ms - left.since_ms)
            command = left.command(target, status.application_id)
            yield (
                f"{sub.name} has left live execution {age} ago: {left.why}. To run it live again: stop the application, "
                f"`{command}`, and start it"
            )


def _unmatched(status: Status, topology: Topology) -> Iterator[str]:
    """A line for each join in which records found no match on the other side."""
    from streams.topology.graph import ProcessorNode

    for sub in status.subs:
        for one in sub.joins:
            if one.found_nothing:
                join = topology.nodes.get(one.node)
                yield f"{sub.name}: {one.says(join.looked_up_table if isinstance(join, ProcessorNode) else '')}"


def _partitions(of: SubStatus | SinkStatus) -> list[dict[str, Any]]:
    return [
        {"topic": place[0], "partition": place[1], "read": of.read[place], "end": end}
        for place, end in sorted(of.ends.items())
    ]


def _age(at_ms: int, since_ms: int | None) -> int | None:
    return None if since_ms is None else at_ms - since_ms


def _table(before: Status, after: Status) -> Table:
    headings = ("Sub-topology", ">Lag", ">Records/s", ">Task", ">Step", ">Last commit", ">Event time", ">Behind now")
    asked = "" if after.asked is None else f", asked to run with execution={after.asked}"
    shown = table(headings, title=f"{after.application_id}{asked}", title_justify="left")
    for sub in after.subs:
        runs = sub.execution if after.asked is not None or sub.execution == "live" else None
        placed = None if sub.placement == Placement.MURMUR2 else sub.placement
        remark = ", ".join(filter(None, (runs, placed and f"keys by {placed}")))
        head = _head(before, after, sub, f"{sub.lag:,}", f"\n{remark}" if remark else "")
        if not sub.committed:
            shown.add_row(*head, f"-/{sub.tasks}", "", "never", "", "")
        for index, one in enumerate(sub.committed):
            seen = one.stream_time >= 0
            shown.add_row(
                *(head if index == 0 else ("", "", "")),
                f"{one.task}/{sub.tasks}",
                f"{one.version:,}",
                f"{age_in_words(after.at_ms - one.committed_ms)} ago",
                shown_time(one.stream_time) if seen else "",
                age_in_words(after.at_ms - one.stream_time) if seen else "",
            )
    for sink in after.sinks:
        shown.add_row(*_head(before, after, sink, f"{'≤ ' if sink.at_most and sink.lag else ''}{sink.lag:,}"), "sink")
    return shown


def _head(
    before: Status, after: Status, of: SubStatus | SinkStatus, lag: str, remark: str = ""
) -> tuple[str, str, str]:
    """The name, the lag and the speed of a part of the application."""
    from streams.application.status import records_per_second

    rate, since_ms = records_per_second(before, after, of.name), of.paused_since_ms
    paused = "" if since_ms is None else f"\npaused {age_in_words(after.at_ms - since_ms)} ago"
    return f"{of.name}{remark}{paused}", lag, "" if rate is None else f"{rate:,.0f}"


@command
def ui(
    target: Annotated[
        str | None,
        argument("The topology. With it, the dashboard shows its graph and the doctor's findings.", metavar="[TARGET]"),
    ] = None,
    *,
    address: Annotated[
        str | None, option("Where to serve the dashboard. Default: 8080 on this host.", "--ui", metavar="HOST:PORT")
    ] = None,
    application: ApplicationOptions,
) -> None:
    """Serve the dashboard of an application, and its figures as JSON, until Ctrl-C.

    The application may run anywhere, or not at all: all figures come from Kafka, which is only read. Only the
    driver knows how long the parts of a step take, the counts of operators and the running restores: `streams run --ui` shows
    them, too. Other hosts
    need a token (the setting ui_token).
    """
    from streams.serve.http.servers import check_installed
    from streams.ui.running import page_address, page_from_kafka

    check_installed("the dashboard")
    program = None if target is None else TopologyTarget.parse(target)
    default_id = None if program is None else program.application_id()
    config = reachable(application.load(default_id, {"ui": address}))
    listens = config.ui_address or Address.parse(_UI_PORT)
    topology = None if program is None else program.load()
    asked = threading.Event()
    with page_from_kafka(config, listens, topology, target or "TARGET") as server:
        typer.echo(f"dashboard: {page_address(server.address)}", err=True)
        with stopped_by_signals(asked.set, again=signal.default_int_handler):
            # A wait without a limit would keep Python from handling signals.
            while not asked.wait(_SIGNALS_S):
                pass


Application = Annotated[str, argument("The application's id.", metavar="APP")]
Sub = Annotated[str | None, option("Only this sub-topology, or source outside Kafka.", "-s", metavar="NAME")]


@command
def pause(
    application: Application, *, sub_topology: Sub = None, as_json: AsJson = False, cluster: ClusterOptions
) -> None:
    """Pause an application: its queries stay alive, but start no more micro-batches.

    The pause is recorded in the cluster. It takes effect about a second after the running micro-batch, wherever the
    application runs, and lasts across restarts, until `streams resume`. A source outside Kafka (`from_delta`,
    `from_dataframe`) holds back the batch that it would write next.
    """
    _print_pauses(application, Pausing(application, cluster.client()).pause(sub_topology), as_json)


@command
def resume(
    application: Application, *, sub_topology: Sub = None, as_json: AsJson = False, cluster: ClusterOptions
) -> None:
    """Resume an application, or one sub-topology or source outside Kafka, after `streams pause`."""
    pausing = Pausing(application, cluster.client())
    before = pausing.pauses()
    after = pausing.resume(sub_topology)
    if not as_json:
        for name in sorted(before.since_ms.keys() - after.since_ms.keys()):
            typer.echo(f"{_named(application, name)} is resumed")
        if before.since_ms and not after.since_ms:
            return
    _print_pauses(application, after, as_json)


class AskedExecution(str, Enum):
    """The choices of `streams execution`."""

    AUTO = "auto"
    MICRO_BATCH = "micro-batch"
    AS_SET = "as-set"


@command
def execution(
    application: Application,
    how: Annotated[AskedExecution, argument("`as-set`: as the application's settings say.", metavar="HOW")],
    *,
    as_json: AsJson = False,
    cluster: ClusterOptions,
) -> None:
    """Switch an application to live execution (`auto`) or to micro-batches, while it runs.

    Its queries restart, which takes a few seconds. Nothing is lost, and the stores are kept. The choice is recorded in the cluster
    and overrides the setting `execution`, even after restarts, until you call `streams execution APP as-set`. With `auto`, the
    parts of the application that cannot run live stay in micro-batches.
    """
    asked = None if how is AskedExecution.AS_SET else Execution(how.value)
    Pausing(application, cluster.client()).execute(asked)
    if as_json:
        print_json({"application_id": application, "execution": how.value})
    else:
        said = "as its settings say" if asked is None else f"with execution={how.value}"
        typer.echo(f"{application} runs {said} from now on")


def _print_pauses(application: str, pauses: Pauses, as_json: bool) -> None:
    if as_json:
        print_json({"application_id": application, "paused_since": dict(pauses.since_ms)})
        return
    for name, since in pauses.since_ms.items():
        typer.echo(f"{_named(application, name)} has been paused since {shown_time(since)}")
    if not pauses.since_ms:
        typer.echo(f"nothing of {application} is paused")


def _named(application: str, part: str) -> str:
    return application if part == WHOLE else f"{application}: {part}"
