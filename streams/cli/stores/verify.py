"""What `streams restore --verify` prints."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from state.restore.verify import Difference, VerifiedStore, VerifiedTask
from streams.cli.output import visible_bytes

_SHOWN_BYTES = 60


def as_dict(tasks: list[VerifiedTask], seconds: float) -> dict[str, Any]:
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
        "differences": differences(tasks),
        "seconds": round(seconds, 3),
    }


def differences(tasks: list[VerifiedTask]) -> int:
    return sum(store.differences for task in tasks for store in task.stores)


def print_comparison(console: Console, tasks: list[VerifiedTask], seconds: float) -> None:
    """Prints a row for each store, and the first differences."""
    table = Table("Store", box=None, header_style="bold")
    for heading in ("Task", "Step", "Rows"):
        table.add_column(heading, justify="right")
    table.add_column("Local state")
    for task in tasks:
        for store in task.stores:
            table.add_row(store.store, str(task.place.task), f"{task.version:,}", f"{store.rows:,}", _verdict(store))
    console.print(table)
    for task in tasks:
        for store in task.stores:
            for one in store.first:
                console.print(_line(task, store, one), highlight=False, markup=False, soft_wrap=True)
    elsewhere = [str(task.place) for task in tasks if not task.here]
    if elsewhere:
        console.print(f"Not on this host, so only restored: {', '.join(elsewhere)}.", highlight=False, soft_wrap=True)
    records = sum(task.report.records for task in tasks)
    console.print(f"{records:,} changelog records were read, in {seconds:.1f} s.", highlight=False)


def _verdict(store: VerifiedStore) -> str:
    if store.distrust:
        return f"not trusted, will be restored: {store.distrust}"
    return f"{store.differences:,} keys differ" if store.differences else "equal"


def _line(task: VerifiedTask, store: VerifiedStore, one: Difference) -> str:
    where = "no changelog record" if one.offset is None else f"last changelog record at offset {one.offset}"
    return (
        f"{store.store} task {task.place.task}, key {visible_bytes(one.key)}: local {_shown(one.local)}, "
        f"changelog {_shown(one.rebuilt)} ({where})"
    )


def _shown(value: bytes | None) -> str:
    if value is None:
        return "has no row"
    text = visible_bytes(value[:_SHOWN_BYTES])
    return f"{text}…" if len(value) > _SHOWN_BYTES else text


def _difference(one: Difference) -> dict[str, Any]:
    return {
        "key": visible_bytes(one.key),
        "local": None if one.local is None else visible_bytes(one.local),
        "rebuilt": None if one.rebuilt is None else visible_bytes(one.rebuilt),
        "offset": one.offset,
    }
