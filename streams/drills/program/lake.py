"""The default program with two lake sinks: each order as a row, and the last order of each key."""

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
EACH, LATEST = "each-order", "latest-order"
_SCHEMA = {"id": str}


def build() -> Topology:
    """The topology; the folder of the tables comes from the environment."""
    builder = program()
    folder = Path(os.environ[FOLDER])
    orders = builder.stream(ORDERS)
    orders.to_delta(folder / EACH, schema=_SCHEMA)
    orders.to_delta(folder / LATEST, "upsert", schema=_SCHEMA)
    return builder.build()


def wrong_rows(
    orders: Iterable[Read], each: Iterable[Mapping[str, Any]], latest: Iterable[Mapping[str, Any]]
) -> list[str]:
    """What differs between the tables and the input; empty: nothing.

    Args:
        orders: The input, by partition and offset, so that the last order of a key comes last.
        each: The rows of the first table.
        latest: The rows of the second table.
    """
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
