"""`streams import-app` takes over a Kafka Streams application in Java, `streams export-app` hands one back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated

import typer

from state.changelog import commits_topic
from state.commit.live import LiveKafka
from state.kafka.admin import KafkaAdmin
from streams.application.adopt import GivenPositions
from streams.application.instances import while_stopped
from streams.application.java.export_app import Exporter
from streams.application.java.import_app import Importer
from streams.application.prepare import plan_application
from streams.application.start import Preflight
from streams.cli.command import command, option
from streams.cli.options import ApplicationOptions, DryRun, Target, Yes, live, open_checkpoint
from streams.cli.rescale import Positions
from streams.errors import ConfigError


@command
def import_app(
    target: Target,
    *,
    application: ApplicationOptions,
    store: Annotated[
        list[str] | None,
        option("A store that has another name in Java; its changelog is copied.", metavar="OURS=THEIRS"),
    ] = None,
    position: Positions = None,
    at_least_once: Annotated[
        bool,
        option(
            "Confirm that Confirm that Java ran without exactly_once_v2, and was stopped cleanly.", "--at-least-once"
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Take over the state of a stopped Kafka Streams application in Java.

    The application id is its application.id. Refused while its group has members or records wait in its repartition topics.
    """
    given, stores = GivenPositions.parse(position or ()), _names(store or ())
    with _planned(application, target) as (preflight, kafka):
        importer = Importer(preflight, kafka, stores, given, at_least_once)
        found = importer.survey()
        for one in found:
            typer.echo(f"{one.prepared.sub.name}: {one.prepared.tasks} tasks, keys by {one.placement.value}")
            _say(one.lines())
        if dry_run or not _confirmed("The Java application must not be running. Take over its state?", yes):
            return
        with _stopped(preflight):
            importer.run(found)
        typer.echo("done: start the application with `streams run`; local state is rebuilt from the changelogs")


@command
def export_app(
    target: Target,
    *,
    application: ApplicationOptions,
    leave: Annotated[bool, option("Leave behind the state that no Java program can continue from.", "--leave")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Hand the state of a stopped application to Kafka Streams in Java.

    Java needs the same application.id, topology and store names, and processing.guarantee=exactly_once_v2.
    """
    with _planned(application, target) as (preflight, kafka):
        exporter = Exporter(preflight, kafka, leave)
        found = exporter.survey()
        for one in found:
            typer.echo(f"{one.prepared.sub.name}: {one.prepared.tasks} tasks")
            _say(one.lines())
        if dry_run or not _confirmed("The application must not be running. Hand its state to Java?", yes):
            return
        with _stopped(preflight):
            exporter.run(found)
        typer.echo("done: start the Java application, with processing.guarantee=exactly_once_v2")


@contextmanager
def _planned(application: ApplicationOptions, target: str) -> Iterator[tuple[Preflight, LiveKafka]]:
    """Plans the application as a start would, and yields the plan and its logs."""
    topology, config = application.of(target)
    with KafkaAdmin(config.client) as admin, open_checkpoint(config) as files:
        kafka = live(config)
        yield Preflight(plan_application(topology, config, admin, kafka), files, admin, typer.echo, kafka), kafka


def _names(texts: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        ours, _, theirs = text.partition("=")
        if not (ours and theirs):
            raise ConfigError(f"--store {text}: write OURS=THEIRS, the names of a store here and in Java")
        found[ours] = theirs
    return found


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


def _confirmed(question: str, yes: bool) -> bool:
    return yes or typer.confirm(question, abort=True)


def _stopped(preflight: Preflight) -> AbstractContextManager[None]:
    """Within the block, the application does not run here."""
    config, subs = preflight.application.config, preflight.application.subs
    commits = [commits_topic(config.application_id, prepared.sub.name) for prepared in subs]
    return while_stopped(config, preflight.admin, commits)
