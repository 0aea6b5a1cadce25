"""The default program with a global table: each order with the row of its key at that time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import orjson

from streams.drills.program.topology import ORDERS, program
from streams.drills.reader import Read
from streams.topology.topology import Topology

ROWS, JOINED = "rows", "orders-with-rows"
History = Mapping[str, Sequence[int | None]]
"""The numbers that the row of each key has had, in order; None: there was no row."""


def build() -> Topology:
    """The topology, with the rows as a global table."""
    builder = program()
    rows = builder.global_table(ROWS)
    orders = builder.stream(ORDERS)
    orders.left_join(
        rows,
        lambda order, row: {"id": order["id"], "row": row and row["n"]},
        key_selector=lambda key, order: key,
    ).to(JOINED)
    return builder.build()


def wrong_joins(history: History, results: Iterable[Read]) -> list[str]:
    """The results whose rows their keys did not have at that time, or never: a task's view of the table only goes forward."""
    at = dict.fromkeys(history, 0)
    found = []
    for one in results:
        key, joined = (one.key or b"").decode(), orjson.loads(one.value or b"{}")
        try:
            at[key] = history[key].index(joined["row"], at[key])
        except ValueError:
            found.append(f"{joined['id']} of {key} has the row {joined['row']}, not one of {history[key][at[key] :]}")
    return found
