"""`streams state`: the stores of an application, from this disk or from its changelogs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.filesize import decimal
from rich.markup import escape

from state.restore.directory import StateDirectory, TaskDirectory
from state.stores.dump import read_task_store
from state.stores.task_store import TaskStore
from streams.application.owned_topics import own_manifest
from streams.application.store_rows import StoreReader, StoreRow, view_of, window_ends
from streams.application.stored_tasks import stateful_subs, stored_tasks
from streams.cli.command import argument, command, option
from streams.cli.options import ApplicationOptions, Target, complete_stores, reachable
from streams.cli.output import print_json_line, print_table, shown_time, visible
from streams.cli.progress import RestoreProgress
from streams.cli.target import TopologyTarget
from streams.config import StreamsConfig
from streams.errors import ConfigError
from streams.serdes.json_shown import shown_json
from streams.topology.manifest import as_written
from streams.topology.plan import SubTopology
from streams.topology.topology import Topology
from streams.wording import did_you_mean

_SHOWN_ROWS = 50


@dataclass(frozen=True)
class TaskFolder:
    """A task's folder, and the sub-topology whose stores it contains."""

    sub: SubTopology
    directory: TaskDirectory


@command
def state(
    target: Target,
    store: Annotated[
        str | None,
        argument(
            "The store. Without it, print the sizes of all stores.", metavar="STORE", autocompletion=complete_stores
        ),
    ] = None,
    task: Annotated[int | None, option("Only this task.", metavar="N", min=0)] = None,
    key: Annotated[str | None, option("Only this key, as text or JSON.", metavar="KEY")] = None,
    limit: Annotated[
        int | None, option("Print at most this many rows. Default: 50, all with --json.", metavar="N", min=1)
    ] = None,
    count: Annotated[bool, option("Print only the number of rows.")] = False,
    as_json: Annotated[bool, option("Print a line of JSON for each row; times are in ms.", "--json")] = False,
    from_changelog: Annotated[bool, option("Read the changelogs: restore into a temporary folder first.")] = False,
    *,
    application: ApplicationOptions,
) -> None:
    """Print or count the rows of a store, or the size of each store.

    Reads this machine's disk and changes no files, so the application may
    keep running. You see the rows as of its last commit on this machine.
    """
    program = TopologyTarget.parse(target)
    config = application.load(program.application_id(), needs_cluster=from_changelog)
    topology = program.load()
    if store is not None and store not in topology.stores:
        known = ", ".join(sorted(topology.stores)) or "none"
        raise ConfigError(f"{target} has no store {store!r}; it has: {known}.{did_you_mean(store, topology.stores)}")
    with _places(topology, config, store, task, from_changelog) as places:
        if store is None:
            _print_sizes(list(_sizes(places)), as_json)
            return
        sub = places[0].sub
        reader = StoreReader(sub.stores[store], config.application_id, window_ends(sub, store), view_of(sub, store))
        keys = None if key is None else frozenset([reader.key_bytes(key)])
        if count:
            rows = sum(_counts(places, store, reader, keys))
            typer.echo(orjson.dumps({"rows": rows}) if as_json else str(rows))
        elif as_json:
            for row in islice(_rows(places, store, reader, keys), limit):
                print_json_line(_as_dict(row))
        else:
            _print_rows(_rows(places, store, reader, keys), limit or _SHOWN_ROWS)


@contextmanager
def _places(
    topology: Topology, config: StreamsConfig, store: str | None, task: int | None, from_changelog: bool
) -> Iterator[list[TaskFolder]]:
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
        names = sorted({directory.sub_topology for directory in directories})
        topology = as_written(topology, own_manifest(config) or {})
        stateful = stateful_subs(topology, config.application_id, names)
        subs = {sub.name: sub for sub in stateful if store is None or store in sub.stores}
        places = [
            TaskFolder(subs[directory.sub_topology], directory)
            for directory in directories
            if directory.sub_topology in subs and task in (None, directory.task)
        ]
        if not places:
            raise _no_state(config, root, task, from_changelog)
        yield sorted(places, key=lambda place: (place.sub.index, place.directory.task))


def _no_state(config: StreamsConfig, root: Path, task: int | None, from_changelog: bool) -> ConfigError:
    what = f"there is no state of {config.application_id} {'' if task is None else f'of task {task} '}"
    if from_changelog:
        return ConfigError(f"{what}in the changelogs: check the application id (--application-id, --config)")
    others = sorted({one.application_id for one in StateDirectory(root).tasks()} - {config.application_id})
    known = f" {root} has the state of: {', '.join(others)}." if others else ""
    return ConfigError(
        f"{what}in {root}: check the application id (--application-id, --config) and the folder (--base-dir), or read the "
        f"changelogs with --from-changelog.{known}"
    )


def _restore(topology: Topology, config: StreamsConfig, root: Path, store: str | None, task: int | None) -> None:
    # The imports of a restore take as long as all others of this command, so they wait until they are needed.
    from streams.application.restore import restore_tasks

    wanted = [
        one
        for one in stored_tasks(topology, reachable(config))
        if (store is None or store in one.stores) and task in (None, one.place.task)
    ]
    with RestoreProgress() as progress:
        list(restore_tasks(wanted, config, root, progress, keep=lambda name: store in (None, name), parallel=2))


def _opened(places: Iterable[TaskFolder], store: str | None = None) -> Iterator[tuple[TaskFolder, TaskStore]]:
    """Opens the stores of each task folder; if a store is named, only of the folders that have it."""
    for place in places:
        with read_task_store(place.directory.path, [node.spec for node in place.sub.stores.values()]) as opened:
            if store is None or store in opened.specs:
                yield place, opened


def _rows(
    places: Iterable[TaskFolder], store: str, reader: StoreReader, keys: frozenset[bytes] | None
) -> Iterator[StoreRow]:
    for place, opened in _opened(places, store):
        yield from reader.rows(opened, place.directory.task, keys)


def _counts(
    places: Iterable[TaskFolder], store: str, reader: StoreReader, keys: frozenset[bytes] | None
) -> Iterator[int]:
    for place, opened in _opened(places, store):
        found = opened.rows(store) if keys is None else reader.rows(opened, place.directory.task, keys)
        yield sum(1 for _ in found)


def _sizes(places: Iterable[TaskFolder]) -> Iterator[dict[str, Any]]:
    """Rows and bytes of each store in each task; bytes are those of keys and values."""
    for place, opened in _opened(places):
        position = opened.position
        for name in opened.specs:
            sizes = [len(row_key) + len(value) for row_key, value in opened.rows(name)]
            yield {
                "sub_topology": place.sub.name,
                "task": place.directory.task,
                "store": name,
                "kind": opened.specs[name].kind.value,
                "version": position.version if position else 0,
                "rows": len(sizes),
                "bytes": sum(sizes),
                "disk_bytes": place.directory.size_bytes,
            }


def _print_sizes(sizes: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for size in sizes:
            print_json_line(size)
        return
    rows, shown = [], set()
    for size in sizes:
        task = (size["sub_topology"], str(size["task"]))
        on_disk = "" if task in shown else decimal(size["disk_bytes"])
        shown.add(task)
        numbers = f"{size['rows']:,}", decimal(size["bytes"]), on_disk
        rows.append((*task, f"{size['version']:,}", size["store"], size["kind"], *numbers))
    print_table(("Sub-topology", ">Task", ">Step", "Store", "Kind", ">Rows", ">Bytes", ">Task on disk"), rows)


def _print_rows(rows: Iterator[StoreRow], limit: int) -> None:
    found = list(islice(rows, limit + 1))
    windowed = any(row.window_start is not None for row in found)
    timed = any(row.timestamp is not None for row in found)

    def cells(row: StoreRow) -> Iterator[str]:
        times = [*((row.window_start, row.window_end) if windowed else ()), *((row.timestamp,) if timed else ())]
        yield from (str(row.task), _text(row.key))
        yield from ("" if at is None else shown_time(at) for at in times)
        yield _text(row.value)

    headings = ["Task", "Key", *(["Start", "End"] if windowed else []), *(["Timestamp"] if timed else []), "Value"]
    print_table(headings, [tuple(map(escape, cells(row))) for row in found[:limit]])
    if len(found) > limit:
        typer.echo(f"There are more than {limit} rows: --limit N prints more, --json all.")
    elif not found:
        typer.echo("No rows.")


def _as_dict(row: StoreRow) -> dict[str, Any]:
    times = {"window_start": row.window_start, "window_end": row.window_end, "timestamp": row.timestamp}
    known = {name: at for name, at in times.items() if at is not None}
    return {"task": row.task, "key": row.key, **known, "value": row.value}


def _text(data: Any) -> str:
    return visible(data if isinstance(data, str) else shown_json(data).decode())
