"""The default program with lake sinks: each order as a row and the last order of each key, or a function that keeps each batch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from streams.drills.program.topology import ORDERS, program
from streams.drills.reader import Read
from streams.topology.topology import Topology

FOLDER = "STREAMS_DRILL_LAKE"
"""The variable with the folder of the tables."""
EACH, LATEST, ARCHIVE = "each-order", "latest-order", "archive"
_SCHEMA = {"id": str}


def build() -> Topology:
    """The topology; the folder of the tables comes from the environment."""
    builder = program()
    folder = Path(os.environ[FOLDER])
    orders = builder.stream(ORDERS)
    orders.to_delta(folder / EACH, schema=_SCHEMA)
    orders.to_delta(folder / LATEST, "upsert", schema=_SCHEMA)
    return builder.build()


def build_archive() -> Topology:
    """The topology with a function of `foreach_batch` that keeps the rows of each call."""
    builder = program()
    builder.stream(ORDERS).foreach_batch(_keep, ARCHIVE, schema=_SCHEMA)
    return builder.build()


def _keep(frame: Any, batch_id: int) -> None:
    folder = Path(os.environ[FOLDER]) / str(batch_id)
    folder.mkdir(parents=True, exist_ok=True)
    rows = sorted([row._partition, row._offset, row.id] for row in frame.collect())
    written = folder.parent / "unfinished"
    written.write_bytes(orjson.dumps(rows))
    written.rename(folder / str(len(list(folder.iterdir()))))


def calls_of(folder: Path) -> dict[int, list[Any]]:
    """The rows of each call by now, by batch."""
    batches = sorted(int(each.name) for each in folder.iterdir() if each.is_dir()) if folder.exists() else []
    return {
        batch: [orjson.loads(call.read_bytes()) for call in sorted((folder / str(batch)).iterdir())]
        for batch in batches
    }


def wrong_calls(orders: Iterable[Read], calls: Mapping[int, list[Any]]) -> list[str]:
    """What differs between the calls of the function and the input; empty: nothing."""
    found = [f"batch {batch} had other rows when it ran again" for batch, of in calls.items() if of[1:] != of[:-1]]
    if [*calls] != [*range(len(calls))]:
        found.append(f"the batches are {', '.join(map(str, calls))}")
    given = [row[2] for of in calls.values() for row in of[0]] if all(calls.values()) else []
    wanted = [str(orjson.loads(one.value or b"{}")["id"]) for one in orders]
    if sorted(given) != sorted(wanted):
        doubled, missing = len(given) - len(set(given)), len(set(wanted) - set(given))
        found.append(f"{len(given)} rows for {len(wanted)} orders; {doubled} doubled, {missing} missing")
    return found


def wrong_rows(
    orders: Iterable[Read], each: Iterable[Mapping[str, Any]], latest: Iterable[Mapping[str, Any]]
) -> list[str]:
    """What differs between the tables and the input; empty: nothing."""
    sent = [(str((one.key or b"").decode()), str(orjson.loads(one.value or b"{}")["id"])) for one in orders]
    rows = [(row["key"], row["id"]) for row in each]
    doubled, missing = len(rows) - len(set(rows)), set(sent) - set(rows)
    found = []
    if doubled or missing or len(rows) != len(sent):
        found.append(f"{EACH}: {len(rows)} rows for {len(sent)} orders; {doubled} doubled, {len(missing)} missing")
    last = {row["key"]: row["id"] for row in latest}
    if last != dict(sent):
        differ = sorted(key for key in {*last, *dict(sent)} if last.get(key) != dict(sent).get(key))
        found.append(f"{LATEST}: other rows than the last orders of the keys {', '.join(differ[:5])}")
    return found
