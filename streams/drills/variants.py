"""Variants of the default program: with lake sinks, with a source outside Kafka, and with a global table.

The lake sinks write each order as a row of one table, and the last order of each key to another. Or a function of `foreach_batch`
keeps each batch. The source outside Kafka reads rows from files, which go to a topic. With the global table, each order is joined
with the row that its key has at that time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from streams.drills.program import ORDERS, PARTITIONS, program
from streams.drills.topics import Read
from streams.serdes.json import JsonSerde
from streams.topology.topology import Topology

FOLDER = "STREAMS_DRILL_FOLDER"
"""The variable with the folder for the tables, the calls, or the files of rows."""
EACH, LATEST, ARCHIVE = "each-order", "latest-order", "archive"
_SCHEMA = {"id": str}
IN, HOLD = "in", "hold"
"""The folder for the files of rows. A task waits while the file `hold` exists."""
ROWS, OUT, JOINED = "rows", "ingested", "orders-with-rows"
HELD = -1
"""The number of the row at which a task is held."""
_POLL_S = 0.05
History = Mapping[str, Sequence[int | None]]
"""Key -> the numbers that its row has had, in order; None: there was no row."""


def tables() -> Topology:
    """The default program with two Delta tables."""
    builder = program()
    folder = Path(os.environ[FOLDER])
    orders = builder.stream(ORDERS)
    orders.to_delta(folder / EACH, schema=_SCHEMA)
    orders.to_delta(folder / LATEST, "upsert", schema=_SCHEMA)
    return builder.build()


def archive() -> Topology:
    """The default program with a function of `foreach_batch` that keeps the rows of each call."""
    builder = program()
    builder.stream(ORDERS).foreach_batch(_keep_rows, ARCHIVE, schema=_SCHEMA)
    return builder.build()


def _keep_rows(frame: Any, batch_id: int) -> None:
    folder = Path(os.environ[FOLDER]) / str(batch_id)
    folder.mkdir(parents=True, exist_ok=True)
    rows = sorted([row._partition, row._offset, row.id] for row in frame.collect())
    written = folder.parent / "unfinished"
    written.write_bytes(orjson.dumps(rows))
    written.rename(folder / str(len(list(folder.iterdir()))))


def calls_of(folder: Path) -> dict[int, list[Any]]:
    """The rows of all calls so far, by batch."""
    batches = sorted(int(each.name) for each in folder.iterdir() if each.is_dir()) if folder.exists() else []
    return {
        batch: [orjson.loads(call.read_bytes()) for call in sorted((folder / str(batch)).iterdir())]
        for batch in batches
    }


def wrong_calls(orders: Iterable[Read], calls: Mapping[int, list[Any]]) -> list[str]:
    """The differences between the calls of the function and the input; empty: there are none."""
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
    """The differences between the tables and the input; empty: there are none."""
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


class HoldingSerde(JsonSerde):
    """A serde that holds a task within its transaction, at a certain row, as long as a file exists."""

    def serialize(self, topic: str, value: Any, headers: Any = None, /) -> bytes | None:
        hold = Path(os.environ[FOLDER]) / HOLD
        while value["n"] == HELD and hold.exists():
            time.sleep(_POLL_S)
        return super().serialize(topic, value, headers)


def ingest() -> Topology:
    """The default program with a source outside Kafka."""
    builder = program()
    rows = builder.from_dataframe(
        lambda spark: spark.readStream.schema("k STRING, n INT").json(f"{os.environ[FOLDER]}/{IN}"),
        ROWS,
        key="k",
        value_serde=HoldingSerde(),
        partitions=PARTITIONS,
    )
    rows.to(OUT)
    return builder.build()


def add_rows(folder: Path, *numbers: int) -> None:
    """Adds a file of rows, whose keys spread them over the tasks."""
    files = folder / IN
    files.mkdir(parents=True, exist_ok=True)
    lines = [orjson.dumps({"k": f"key-{number}", "n": number}) for number in numbers]
    unfinished = folder / "unfinished"
    unfinished.write_bytes(b"\n".join(lines))
    unfinished.rename(files / f"{len(list(files.iterdir()))}.json")


def with_rows() -> Topology:
    """The default program with the rows as a global table."""
    builder = program()
    rows = builder.global_table(ROWS)
    orders = builder.stream(ORDERS)
    orders.left_join(
        rows, lambda order, row: {"id": order["id"], "row": row and row["n"]}, key_selector=lambda key, order: key
    ).to(JOINED)
    return builder.build()


def wrong_joins(history: History, results: Iterable[Read]) -> list[str]:
    """The results with a row that the key did not have at that time. A task's view of the table must only move forward."""
    at = dict.fromkeys(history, 0)
    found = []
    for one in results:
        key, joined = (one.key or b"").decode(), orjson.loads(one.value or b"{}")
        try:
            at[key] = history[key].index(joined["row"], at[key])
        except ValueError:
            found.append(f"{joined['id']} of {key} has the row {joined['row']}, not one of {history[key][at[key] :]}")
    return found
