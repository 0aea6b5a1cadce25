"""`streams replica`: keeps warm copies of an application's stores on this host."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Annotated, Any

import typer

from state.commit.live import LiveKafka
from state.errors import KafkaClientError, TopicNotFoundError
from state.kafka.group_member import GroupMember
from state.tables.private_folder import make_private
from streams.application.restore import Replica, ReplicaPosition, ReplicaTask, StoredTask, stored_tasks
from streams.cli.command import command
from streams.cli.output import print_json_line
from streams.cli.restore_progress import RestoreProgress
from streams.cli.settings import ApplicationOptions, AsJson, Target, reachable
from streams.cli.target import TopologyTarget
from streams.config import StreamsConfig
from streams.config.settings import to_milliseconds
from streams.errors import ConfigError
from streams.spark.signals import stopped_by_signals
from streams.suggest import did_you_mean

_POLL_S = 0.2


@command
def replica(
    target: Target,
    *,
    store: Annotated[
        list[str] | None, typer.Option("--store", metavar="NAME", help="Keep this store only; may be repeated.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The consumer group that shares the tasks: one copy of each task per group. Default: ID-replicas.",
        ),
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, help="Copies to bring forward at a time.")] = 2,
    interval: Annotated[str, typer.Option(metavar="DURATION", help="Time between two reports.")] = "10s",
    once: Annotated[bool, typer.Option("--once", help="End once each copy was brought to a commit.")] = False,
    as_json: AsJson = False,
    application: ApplicationOptions,
) -> None:
    """Keep warm copies of an application's stores on this host, by following their changelogs.

    Start it on every host that may have to take over tasks; the replicas of
    a group share the tasks. The application finds the copies in replica_dir.
    Kafka is only read. Ends with Ctrl-C or SIGTERM; the copies stay.
    """
    program = TopologyTarget.parse(target)
    config = reachable(application.load(program.application_id()))
    tasks = replica_tasks(stored_tasks(program.load(), config), store or [])
    seconds = _seconds(interval)
    make_private(config.replica_dir)
    kafka = LiveKafka(config.client, config.transaction_timeout_ms, bulk=config.bulk_io)
    with RestoreProgress() as progress, closing(Replica(kafka, tasks, config.replica_dir, progress, parallel)) as kept:
        group_id = group or f"{config.application_id}-replicas"
        with closing(GroupMember(config.client, group_id, kept.topics)) as member:
            asked = threading.Event()
            with stopped_by_signals(asked.set, again=signal.default_int_handler):
                _follow(kept, member, config, seconds, once, as_json, asked.is_set)
            if asked.is_set():
                typer.echo(f"Ended; the copies stay in {config.replica_dir}.", err=True)


def replica_tasks(tasks: list[StoredTask], stores: list[str]) -> list[ReplicaTask]:
    """The tasks that have some of these stores, or any that have a changelog and are on disk if none is named.

    Raises:
        ConfigError: There is no such store, or it cannot be copied.
    """
    fit = {node.name: node.spec for task in tasks for node in task.stores.values()}
    for name in stores:
        if name not in fit:
            raise ConfigError(f"there is no store {name!r}.{did_you_mean(name, fit)}")
        if not (fit[name].logged and fit[name].persistent):
            raise ConfigError(f"store {name!r} is only in memory, or has no changelog: there is nothing to follow")
    found = []
    for task in tasks:
        specs = tuple(node.spec for node in task.stores.values() if not stores or node.name in stores)
        if specs := tuple(spec for spec in specs if spec.logged and spec.persistent):
            found.append(ReplicaTask(task.place, specs))
    if not found:
        raise ConfigError("no store of this application is on disk and has a changelog: there is nothing to follow")
    return found


def _follow(
    kept: Replica,
    member: GroupMember,
    config: StreamsConfig,
    interval_s: float,
    once: bool,
    as_json: bool,
    ended: Callable[[], bool],
) -> None:
    reported = 0.0
    away = False
    while not ended():
        assigned = member.poll(_POLL_S)
        try:
            positions = kept.follow(assigned)
        except TopicNotFoundError as error:
            # As while a rescale makes the changelogs anew, or a reset deletes them: once they are there, the copies follow them.
            away = _say(f"a topic of the application is missing, trying on: {error}", away)
            continue
        except KafkaClientError as error:
            if not error.transient:
                raise
            away = _say(f"the brokers do not answer, trying on: {error}", away)
            continue
        away = False
        member.commit(kept.offsets())
        done = once and bool(positions) and all(one.warm for one in positions)
        if positions and (done or time.monotonic() - reported >= interval_s):
            reported = time.monotonic()
            _report(positions, config, as_json)
        if done:
            return


def _say(text: str, said: bool) -> bool:
    if not said:
        typer.echo(text, err=True)
    return True


def _report(positions: list[ReplicaPosition], config: StreamsConfig, as_json: bool) -> None:
    if as_json:
        print_json_line({"application_id": config.application_id, "tasks": [_as_dict(one) for one in positions]})
        return
    for one in positions:
        typer.echo(_line(one))


def _as_dict(one: ReplicaPosition) -> dict[str, Any]:
    place = one.task.place
    return {
        "sub_topology": place.sub_topology,
        "task": place.task,
        "stores": [spec.name for spec in one.task.specs],
        "step": one.version,
        "behind": one.behind,
        "warm": one.warm,
        "fault": one.fault,
    }


def _line(one: ReplicaPosition) -> str:
    place = one.task.place
    where = f"{place.sub_topology} task {place.task}"
    if one.fault:
        return f"{where}: step {one.version}, cannot follow, trying again: {one.fault}"
    if one.behind is None:
        return f"{where}: restoring"
    return f"{where}: step {one.version:,}, {f'{one.behind:,} behind' if one.behind else 'up to date'}"


def _seconds(duration: str) -> float:
    try:
        return float(to_milliseconds(duration)) / 1000
    except ValueError as error:
        raise ConfigError(f"--interval {error}") from error
