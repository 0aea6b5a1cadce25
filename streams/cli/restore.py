"""`streams restore`: rebuilds every store of an application from its changelogs into an empty folder, or compares them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from state.restore.snapshots import NO_SNAPSHOTS
from state.restore.verify import RebuiltTask, RowDifference, VerifiedStore, VerifiedTask
from state.tables.files import make_private, write_private
from streams.application.restore import restore_tasks, verify_tasks
from streams.application.stored_tasks import StoredTask, stored_tasks
from streams.cli.command import command, option
from streams.cli.options import ApplicationOptions, AsJson, Target
from streams.cli.output import print_json, print_line, print_table, table, table_console, visible_bytes
from streams.cli.progress import RestoreProgress
from streams.config import StreamsConfig
from streams.errors import ConfigError

INCOMPLETE = "restore.incomplete"
"""The name of a file with the application's id, which exists while the folder's state is incomplete."""
_SHOWN_BYTES = 60


@dataclass(frozen=True)
class Result:
    """A finished restore.

    Attributes:
        into: The folder.
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
        Path | None, option("An empty or new folder. Default: a new one in the base folder.", metavar="DIR")
    ] = None,
    *,
    application: ApplicationOptions,
    verify: Annotated[bool, option("Compare the local state with what the changelogs give, row by row.")] = False,
    from_snapshots: Annotated[bool, option("Begin with snapshots, if there are any (snapshot_dir).")] = False,
    parallel: Annotated[int, option("Tasks to restore at a time.", min=1)] = 2,
    as_json: AsJson = False,
) -> None:
    """Rebuild every store of an application from its changelogs into an empty folder.

    Each task's stores end at its last commit. Kafka is only read, and the
    state in use is left alone, so the application may keep running.

    The result has the layout of a state folder: an application that is
    started with --set state_dir=DIR continues from it. A restore that was
    interrupted continues with --into DIR.

    With --verify the result is compared with the local state of this host
    and then deleted, unless --into is given. Exit code 1 if rows differ.
    """
    if verify and from_snapshots:
        raise ConfigError(
            "--verify reads the changelogs from their start, so it cannot be combined with --from-snapshots"
        )
    topology, config = application.of(target)
    tasks = stored_tasks(topology, config)
    if verify:
        _verify(tasks, config, into, parallel, as_json)
        return
    snapshots = config.snapshots if from_snapshots else NO_SNAPSHOTS
    started = time.monotonic()
    with restore_folder(into, config.base_dir, config.application_id) as folder, RestoreProgress() as progress:
        done = list(restore_tasks(tasks, config, folder, progress, parallel=parallel, snapshots=snapshots))
    stores = {name: node for task in tasks for name, node in task.stores.items()}
    unlogged = sorted(name for name, node in stores.items() if not node.spec.logged)
    result = Result(folder, done, unlogged, time.monotonic() - started)
    print_json(as_dict(result)) if as_json else _print(result)


def as_dict(result: Result) -> dict[str, Any]:
    """The result as JSON data; bytes are those of the keys and values read, `disk_bytes` those of the files written."""
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
    return {
        "into": str(result.into),
        "stores": stores,
        "unlogged": result.unlogged,
        "total": {
            **total,
            "disk_bytes": sum(task.disk_bytes for task in result.tasks),
            "seconds": round(result.seconds, 3),
            "records_per_s": round(_rate(total["records"], result.seconds)),
            "mb_per_s": round(_rate(total["bytes"], result.seconds) / 1e6, 1),
        },
    }


def _rate(amount: float, seconds: float) -> float:
    return amount / max(seconds, 1e-6)


def _print(result: Result) -> None:
    headings = ("Store", ">Task", ">Step", ">Records", ">Rows", ">Bytes", ">Seconds", ">Records/s", ">MB/s")
    shown = table(headings)
    for task in result.tasks:
        for one in task.report.stores:
            numbers = _numbers(one.records, one.rows, one.bytes, one.seconds)
            shown.add_row(one.store, str(task.place.task), f"{task.version:,}", *numbers)
    total = as_dict(result)["total"]
    shown.add_section()
    numbers = _numbers(total["records"], total["rows"], total["bytes"], result.seconds)
    shown.add_row("total", "", "", *numbers, style="bold")
    table_console().print(shown)
    if result.unlogged:
        print_line(f"Without a changelog, so not restored: {', '.join(result.unlogged)}.")
    print_line(f"Restored into {result.into} ({decimal(total['disk_bytes'])} on disk).")


def _numbers(records: int, rows: int, size: int, seconds: float) -> tuple[str, ...]:
    speeds = (f"{_rate(records, seconds):,.0f}", f"{_rate(size, seconds) / 1e6:,.1f}") if records else ("-", "-")
    return f"{records:,}", f"{rows:,}", decimal(size), f"{seconds:.2f}", *speeds


# The folder: new or empty, or one that a restore of the same application has left in part.


@contextmanager
def restore_folder(
    given: Path | None, base_dir: Path, application_id: str, word: str = "restored", keep: bool = True
) -> Iterator[Path]:
    """The folder, marked as incomplete within the context. After an error the mark stays, and another restore can continue."""
    folder = _next_name(base_dir.absolute(), word, application_id) if given is None else given.absolute()
    note = folder / INCOMPLETE
    if folder.exists():
        begun = note.exists() and note.read_text(encoding="utf-8") == application_id
        if not folder.is_dir() or (any(folder.iterdir()) and not begun):
            raise ConfigError(f"{given} is not an empty folder; a restore does not mix with what is there")
    make_private(folder)
    write_private(note, application_id.encode())
    try:
        yield folder
    except BaseException:
        typer.echo(f"Not complete. The same command with --into {folder} continues from here.", err=True)
        raise
    note.unlink()
    if given is None and not keep:
        shutil.rmtree(folder)


def _next_name(base_dir: Path, word: str, application_id: str) -> Path:
    number = 1
    while (folder := base_dir / f"{word}-{application_id}-{number}").exists():
        number += 1
    return folder


# The comparison with the local state.


def _verify(tasks: list[StoredTask], config: StreamsConfig, into: Path | None, parallel: int, as_json: bool) -> None:
    started = time.monotonic()
    with (
        restore_folder(into, config.base_dir, config.application_id, "verify", keep=False) as folder,
        RestoreProgress() as progress,
    ):
        done = list(verify_tasks(tasks, config, folder, progress, parallel=parallel))
    seconds = time.monotonic() - started
    print_json(comparison(done, seconds)) if as_json else _print_comparison(done, seconds)
    if _differences(done):
        raise typer.Exit(1)


def comparison(tasks: list[VerifiedTask], seconds: float) -> dict[str, Any]:
    """The comparison as JSON data."""
    stores = [
        {
            "sub_topology": task.place.sub_topology,
            "task": task.place.task,
            "step": task.version,
            "store": store.store,
            "rows": store.rows,
            "differences": store.differences,
            "distrust": store.distrust,
            "first": [_difference(one) for one in store.first],
        }
        for task in tasks
        for store in task.stores
    ]
    return {
        "stores": stores,
        "elsewhere": [f"{task.place.sub_topology}/{task.place.task}" for task in tasks if not task.here],
        "records": sum(task.report.records for task in tasks),
        "rows": sum(int(store.rows) for task in tasks for store in task.stores),
        "differences": _differences(tasks),
        "seconds": round(seconds, 3),
    }


def _differences(tasks: list[VerifiedTask]) -> int:
    return sum(store.differences for task in tasks for store in task.stores)


def _print_comparison(tasks: list[VerifiedTask], seconds: float) -> None:
    """Prints a row for each store, and the first differences."""
    both = [(task, store) for task in tasks for store in task.stores]
    print_table(
        ("Store", ">Task", ">Step", ">Rows", "Local state"),
        [(one.store, str(task.place.task), f"{task.version:,}", f"{one.rows:,}", _verdict(one)) for task, one in both],
    )
    for task, store in both:
        for one in store.first:
            print_line(_line(task, store, one))
    if elsewhere := [str(task.place) for task in tasks if not task.here]:
        print_line(f"Not on this host, so only restored: {', '.join(elsewhere)}.")
    records = sum(task.report.records for task in tasks)
    print_line(f"{records:,} changelog records were read, in {seconds:.1f} s.")


def _verdict(store: VerifiedStore) -> str:
    if store.distrust:
        return f"not trusted, will be restored: {store.distrust}"
    return f"{store.differences:,} keys differ" if store.differences else "equal"


def _line(task: VerifiedTask, store: VerifiedStore, one: RowDifference) -> str:
    where = "no changelog record" if one.offset is None else f"last changelog record at offset {one.offset}"
    return (
        f"{store.store} task {task.place.task}, key {visible_bytes(one.key)}: local {_shown(one.local)}, "
        f"changelog {_shown(one.rebuilt)} ({where})"
    )


def _shown(value: bytes | None) -> str:
    if value is None:
        return "has no row"
    return f"{visible_bytes(value[:_SHOWN_BYTES])}{'…' if len(value) > _SHOWN_BYTES else ''}"


def _difference(one: RowDifference) -> dict[str, Any]:
    return {
        "key": visible_bytes(one.key),
        "local": None if one.local is None else visible_bytes(one.local),
        "rebuilt": None if one.rebuilt is None else visible_bytes(one.rebuilt),
        "offset": one.offset,
    }
