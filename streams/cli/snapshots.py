"""`streams snapshots`: the snapshots of an application's stores."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from state.errors import SnapshotError
from state.restore.snapshot_location import open_location
from state.restore.snapshots import TaskSnapshots
from streams.application.stored_tasks import StoredTask, stored_tasks
from streams.cli.command import command, option
from streams.cli.options import ApplicationOptions, AsJson, Target
from streams.cli.output import print_json, print_table
from streams.config.settings import age_in_words


@dataclass(frozen=True)
class Found:
    """One snapshot.

    Attributes:
        step: The number of its step; 0 if the manifest is damaged.
        taken_at: When it was taken, ms; 0 if the manifest is damaged.
        bytes: Size of its files, which other snapshots may share.
        fault: What is wrong with it; empty: the checks found nothing.
    """

    sub_topology: str
    task: int
    step: int
    taken_at: int
    bytes: int
    fault: str


@command
def snapshots(
    target: Target,
    *,
    verify: Annotated[bool, option("Read every file and compare its checksum.")] = False,
    as_json: AsJson = False,
    application: ApplicationOptions,
) -> None:
    """List the snapshots of an application's stores, the newest first.

    Exit code 1 if one is damaged. A damaged snapshot does no harm: a restore
    uses the one before it or, failing that, the changelogs.
    """
    topology, config = application.of(target)
    found = []
    if config.snapshot_dir:
        found = list(_snapshots(stored_tasks(topology, config), config.snapshot_dir, verify))
    if as_json:
        print_json([asdict(one) for one in found])
    elif not config.snapshot_dir:
        typer.echo(
            f"{config.application_id} takes no snapshots: snapshot_dir is not set (--set snapshot_dir=DIR, or in the TOML file)."
        )
    elif not found:
        typer.echo(f"There are no snapshots in {config.snapshot_dir} yet.")
    else:
        print_table(("Sub-topology", ">Task", ">Step", ">Taken", ">Size", ""), map(_snapshot_row, found))
    if any(one.fault for one in found):
        raise typer.Exit(1)


def _snapshots(tasks: list[StoredTask], location: str, verify: bool) -> Iterator[Found]:
    opened = open_location(location)
    for task in tasks:
        place = task.place
        stored = TaskSnapshots(opened, place.application_id, place.sub_topology, place.task)
        for name in stored.names():
            try:
                one = stored.read(name)
            except SnapshotError as error:
                yield Found(place.sub_topology, place.task, 0, 0, 0, str(error))
                continue
            fault = ""
            if verify:
                with tempfile.TemporaryDirectory(prefix="streams-snapshot-") as scratch:
                    try:
                        stored.fetch(one, Path(scratch))
                    except SnapshotError as error:
                        fault = str(error)
            yield Found(place.sub_topology, place.task, one.version, one.taken_ms, one.size_bytes, fault)


def _snapshot_row(one: Found) -> tuple[str, ...]:
    age = f"{age_in_words(max(0, time.time_ns() // 1_000_000 - one.taken_at))} ago" if one.taken_at else ""
    return one.sub_topology, str(one.task), str(one.step or ""), age, decimal(one.bytes), one.fault
