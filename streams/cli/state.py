"""`streams state`: prints the stores of an application, from this disk or from its changelogs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.filesize import decimal
from rich.table import Table

from state.restore.directory import StateDirectory, TaskDirectory
from state.stores.read_only import read_task_store
from state.stores.task_store import TaskStore
from streams.application.restore import restore_tasks, stateful_subs, stored_tasks
from streams.application.store_rows import StoreReader, StoreRow, plain, view_of, window_size_ms
from streams.cli.command import command
from streams.cli.console import table_console
from streams.cli.output import print_json_line, visible
from streams.cli.restore_progress import RestoreProgress
from streams.cli.settings import ApplicationOptions, Target, reachable
from streams.cli.target import TopologyTarget
from streams.config import StreamsConfig
from streams.errors import ConfigError
from streams.suggest import did_you_mean
from streams.topology.plan import SubTopology
from streams.topology.topology import Topology

_SHOWN_ROWS = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Place:
    """A task's folder, and the sub-topology whose stores it contains."""

    sub: SubTopology
    directory: TaskDirectory


@command
def state(
    target: Target,
    store: Annotated[
        str | None,
        typer.Argument(metavar="STORE", help="The store. Default: the sizes of all stores.", show_default=False),
    ] = None,
    task: Annotated[int | None, typer.Option(metavar="N", min=0, help="Only this task.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only this key, as text or as JSON.")] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Most rows to print. Default: 50, all with --json.")
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Only the number of rows.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each row; times in ms.")] = False,
    from_changelog: Annotated[
        bool, typer.Option("--from-changelog", help="Read the changelogs: restore into a temporary folder first.")
    ] = False,
    *,
    application: ApplicationOptions,
) -> None:
    """Print or count the rows of a store, or the size of each store.

    Reads this machine's disk without changing a file, so the application may
    run meanwhile. The rows are those of its last commit here.
    """
    program = TopologyTarget.parse(target)
    effective = application.load(program.application_id(), needs_cluster=from_changelog)
    topology = program.load()
    if store is not None and store not in topology.stores:
        known = ", ".join(sorted(topology.stores)) or "none"
        raise ConfigError(f"{target} has no store {store!r}; it has: {known}.{did_you_mean(store, topology.stores)}")
    with _places(topology, effective, store, task, from_changelog) as places:
        if store is None:
            _print_sizes(list(_sizes(places)), as_json)
            return
        sub = places[0].sub
        reader = StoreReader(
            sub.stores[store], effective.application_id, window_size_ms(sub, store), view_of(sub, store)
        )
        keys = None if key is None else reader.key_bytes(key)
        if count:
            _print_count(sum(_counts(places, store, reader, keys)), as_json)
        elif as_json:
            for row in islice(_rows(places, store, reader, keys), limit):
                print_json_line(_as_dict(row))
        else:
            _print_rows(_rows(places, store, reader, keys), limit or _SHOWN_ROWS)


@contextmanager
def _places(
    topology: Topology, config: StreamsConfig, store: str | None, task: int | None, from_changelog: bool
) -> Iterator[list[Place]]:
    """The existing task folders to read.

    Raises:
        ConfigError: No folder exists.
    """
    with ExitStack() as cleanup:
        root = config.state_dir
        if from_changelog:
            root = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="streams-state-")))
            _restore(topology, config, root, store, task)
        directories = list(StateDirectory(root).tasks(config.application_id))
        stateful = stateful_subs(
            topology, config.application_id, sorted({directory.sub_topology for directory in directories})
        )
        subs = {sub.name: sub for sub in stateful if store is None or store in sub.stores}
        places = [
            Place(subs[directory.sub_topology], directory)
            for directory in directories
            if directory.sub_topology in subs and task in (None, directory.task)
        ]
        if not places:
            raise _no_state(config, root, task, from_changelog)
        yield sorted(places, key=lambda place: (place.sub.index, place.directory.task))


def _no_state(config: StreamsConfig, root: Path, task: int | None, from_changelog: bool) -> ConfigError:
    which = "" if task is None else f"of task {task} "
    says = f"there is no state of {config.application_id} {which}"
    if from_changelog:
        return ConfigError(f"{says}in the changelogs: check the application id (--application-id, --config)")
    others = sorted({one.application_id for one in StateDirectory(root).tasks()} - {config.application_id})
    known = f" {root} has the state of: {', '.join(others)}." if others else ""
    return ConfigError(
        f"{says}in {root}: check the application id (--application-id, --config) and the folder (--base-dir), or read the "
        f"changelogs with --from-changelog.{known}"
    )


def _restore(topology: Topology, config: StreamsConfig, root: Path, store: str | None, task: int | None) -> None:
    wanted = [
        one
        for one in stored_tasks(topology, reachable(config))
        if (store is None or store in one.stores) and task in (None, one.place.task)
    ]
    with RestoreProgress() as progress:
        list(restore_tasks(wanted, config, root, progress, keep=lambda name: store in (None, name), parallel=2))


@contextmanager
def _opened(place: Place) -> Iterator[TaskStore]:
    with read_task_store(place.directory.path, [node.spec for node in place.sub.stores.values()]) as opened:
        yield opened


def _rows(
    places: Iterable[Place], store: str, reader: StoreReader, keys: frozenset[bytes] | None
) -> Iterator[StoreRow]:
    for place in places:
        with _opened(place) as opened:
            if store in opened.specs:
                yield from reader.rows(opened, place.directory.task, keys)


def _counts(places: Iterable[Place], store: str, reader: StoreReader, keys: frozenset[bytes] | None) -> Iterator[int]:
    for place in places:
        with _opened(place) as opened:
            if store in opened.specs:
                found = opened.rows(store) if keys is None else reader.rows(opened, place.directory.task, keys)
                yield sum(1 for _ in found)


def _sizes(places: Iterable[Place]) -> Iterator[dict[str, Any]]:
    """Rows and bytes of each store in each task; bytes are those of keys and values."""
    for place in places:
        with _opened(place) as opened:
            position = opened.position
            for name in opened.specs:
                rows = size = 0
                for row_key, value in opened.rows(name):
                    rows += 1
                    size += len(row_key) + len(value)
                yield {
                    "sub_topology": place.sub.name,
                    "task": place.directory.task,
                    "store": name,
                    "kind": opened.specs[name].kind.value,
                    "version": position.version if position else 0,
                    "rows": rows,
                    "bytes": size,
                    "disk_bytes": place.directory.size_bytes,
                }


def _print_sizes(sizes: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for size in sizes:
            print_json_line(size)
        return
    table = Table("Sub-topology", box=None, header_style="bold")
    table.add_column("Task", justify="right")
    table.add_column("Step", justify="right")
    table.add_column("Store")
    table.add_column("Kind")
    for heading in ("Rows", "Bytes", "Task on disk"):
        table.add_column(heading, justify="right")
    shown: set[tuple[str, int]] = set()
    for size in sizes:
        task = (size["sub_topology"], size["task"])
        first = task not in shown
        shown.add(task)
        table.add_row(
            size["sub_topology"],
            str(size["task"]),
            f"{size['version']:,}",
            size["store"],
            size["kind"],
            f"{size['rows']:,}",
            decimal(size["bytes"]),
            decimal(size["disk_bytes"]) if first else "",
        )
    table_console().print(table)


def _print_count(rows: int, as_json: bool) -> None:
    typer.echo(orjson.dumps({"rows": rows}) if as_json else str(rows))


def _print_rows(rows: Iterator[StoreRow], limit: int) -> None:
    found = list(islice(rows, limit + 1))
    windowed = any(row.window_start is not None for row in found)
    timed = any(row.timestamp is not None for row in found)
    headings = ["Task", "Key", *(["Start", "End"] if windowed else []), *(["Timestamp"] if timed else []), "Value"]
    table = Table(box=None, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in found[:limit]:
        window = [_time(row.window_start), _time(row.window_end)] if windowed else []
        stamp = [_time(row.timestamp)] if timed else []
        table.add_row(*map(_escaped, [str(row.task), _text(row.key), *window, *stamp, _text(row.value)]))
    console = table_console()
    console.print(table)
    if len(found) > limit:
        console.print(f"There are more than {limit} rows: --limit N prints more, --json all.", highlight=False)
    elif not found:
        console.print("No rows.")


def _as_dict(row: StoreRow) -> dict[str, Any]:
    found = {"task": row.task, "key": plain(row.key)}
    times = {"window_start": row.window_start, "window_end": row.window_end, "timestamp": row.timestamp}
    return {**found, **{name: at for name, at in times.items() if at is not None}, "value": plain(row.value)}


def _text(value: Any) -> str:
    found = plain(value)
    return visible(found if isinstance(found, str) else orjson.dumps(found).decode())


def _time(at: int | None) -> str:
    """UTC to the millisecond; beyond the range of the calendar, the number itself."""
    if at is None:
        return ""
    try:
        return (_EPOCH + timedelta(milliseconds=at)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(at)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
