"""`streams restore`: rebuilds every store of an application from its changelogs into an empty folder."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from state.restore.rebuild import RebuiltTask
from state.snapshots.settings import NO_SNAPSHOTS
from streams.application.restore import StoredTask, restore_tasks, stored_tasks, verify_tasks
from streams.cli.command import command
from streams.cli.console import table_console
from streams.cli.output import print_json
from streams.cli.restore_progress import RestoreProgress
from streams.cli.settings import ApplicationOptions, Target, reachable
from streams.cli.stores.restore_folder import restore_folder
from streams.cli.stores.verify import as_dict as comparison_as_dict
from streams.cli.stores.verify import differences, print_comparison
from streams.cli.target import TopologyTarget
from streams.config import StreamsConfig
from streams.errors import ConfigError


@dataclass(frozen=True)
class Result:
    """A finished restore.

    Attributes:
        into: The folder.
        tasks: The rebuilt tasks.
        unlogged: Stores without a changelog, which cannot be restored.
        seconds: Wall-clock time of the whole restore.
    """

    into: Path
    tasks: list[RebuiltTask]
    unlogged: list[str]
    seconds: float


@command
def restore(
    target: Target,
    into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="An empty or new folder. Default: a new one below the base folder."),
    ] = None,
    *,
    application: ApplicationOptions,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the local state with what the changelogs give, row by row.")
    ] = False,
    from_snapshots: Annotated[
        bool, typer.Option("--from-snapshots", help="Begin with snapshots, if there are any (snapshot_dir).")
    ] = False,
    parallel: Annotated[int, typer.Option(min=1, help="Tasks to restore at a time.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Rebuild every store of an application from its changelogs into an empty folder.

    Each task's stores end at its last commit. Kafka is only read, and the
    state in use is left alone, so the application may run meanwhile.

    The result has the layout of a state folder: an application that is
    started with --set state_dir=DIR continues from it. A restore that was
    interrupted continues with --into DIR.

    With --verify the result is compared with the local state of this host
    and then deleted, unless --into is given. Exit code 1 if rows differ.
    """
    if verify and from_snapshots:
        raise ConfigError("--verify reads the changelogs from their start, so it does not go with --from-snapshots")
    program = TopologyTarget.parse(target)
    effective = application.load(program.application_id())
    tasks = stored_tasks(program.load(), reachable(effective))
    if verify:
        _verify(tasks, effective, into, parallel, as_json)
        return
    snapshots = effective.snapshots if from_snapshots else NO_SNAPSHOTS
    started = time.monotonic()
    with (
        restore_folder(into, effective.base_dir, effective.application_id) as folder,
        RestoreProgress() as progress,
    ):
        done = list(restore_tasks(tasks, effective, folder, progress, parallel=parallel, snapshots=snapshots))
    result = Result(folder, done, _unlogged(tasks), time.monotonic() - started)
    if as_json:
        print_json(as_dict(result))
    else:
        _print(table_console(), result)


def _verify(tasks: list[StoredTask], config: StreamsConfig, into: Path | None, parallel: int, as_json: bool) -> None:
    started = time.monotonic()
    with (
        restore_folder(into, config.base_dir, config.application_id, "verify", keep=False) as folder,
        RestoreProgress() as progress,
    ):
        done = list(verify_tasks(tasks, config, folder, progress, parallel=parallel))
    seconds = time.monotonic() - started
    if as_json:
        print_json(comparison_as_dict(done, seconds))
    else:
        print_comparison(table_console(), done, seconds)
    if differences(done):
        raise typer.Exit(1)


def as_dict(result: Result) -> dict[str, Any]:
    """The result for programs; bytes are of the keys and values read, `disk_bytes` of the files written."""
    stores: list[dict[str, Any]] = [
        {
            "sub_topology": task.place.sub_topology,
            "store": store.store,
            "task": task.place.task,
            "version": task.version,
            "records": store.records,
            "rows": store.rows,
            "bytes": store.bytes,
            "seconds": round(store.seconds, 3),
        }
        for task in result.tasks
        for store in task.report.stores
    ]
    total = {name: sum(store[name] for store in stores) for name in ("records", "rows", "bytes")}
    total["disk_bytes"] = sum(task.disk_bytes for task in result.tasks)
    return {
        "into": str(result.into),
        "stores": stores,
        "unlogged": result.unlogged,
        "total": {
            **total,
            "seconds": round(result.seconds, 3),
            "records_per_s": round(_rate(total["records"], result.seconds)),
            "mb_per_s": round(_rate(total["bytes"], result.seconds) / 1e6, 1),
        },
    }


def _unlogged(tasks: list[StoredTask]) -> list[str]:
    stores = {name: node for task in tasks for name, node in task.stores.items()}
    return sorted(name for name, node in stores.items() if not node.spec.logged)


def _rate(amount: float, seconds: float) -> float:
    return amount / max(seconds, 1e-6)


def _print(console: Console, result: Result) -> None:
    table = Table("Store", box=None, header_style="bold")
    for heading in ("Task", "Step", "Records", "Rows", "Bytes", "Seconds", "Records/s", "MB/s"):
        table.add_column(heading, justify="right")
    for task in result.tasks:
        for store in task.report.stores:
            table.add_row(
                store.store,
                str(task.place.task),
                f"{task.version:,}",
                *_numbers(store.records, store.rows, store.bytes, store.seconds),
            )
    total = as_dict(result)["total"]
    table.add_section()
    table.add_row(
        "total", "", "", *_numbers(total["records"], total["rows"], total["bytes"], result.seconds), style="bold"
    )
    console.print(table)
    if result.unlogged:
        console.print(f"Without a changelog, so not restored: {', '.join(result.unlogged)}.", highlight=False)
    console.print(
        f"Restored into {result.into} ({decimal(total['disk_bytes'])} on disk).",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _numbers(records: int, rows: int, size: int, seconds: float) -> tuple[str, ...]:
    speeds = (f"{_rate(records, seconds):,.0f}", f"{_rate(size, seconds) / 1e6:,.1f}") if records else ("-", "-")
    return f"{records:,}", f"{rows:,}", decimal(size), f"{seconds:.2f}", *speeds
