"""What a table says about itself: up to where it has come, and which stores lie in it.

Both lie in the table, under keys in front of all stores (store id 0), in the same atomic writes as the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from state.errors import StateError
from state.stores.table import OrderedTable

META_KEY = b"\x00\x00meta"
STORES_KEY = b"\x00\x00stores"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class StorePosition:
    """The committed step that a task's stores hold.

    Attributes:
        query_id: id of the Spark query that made the step.
        version: number of the step, from 1.
        changelog_offsets: store -> next offset of its changelog partition.
        written_ms: the batch time ("now") of the step, ms; tells how old a store is. 0 = unknown.
    """

    query_id: str
    version: int
    changelog_offsets: Mapping[str, int]
    written_ms: int = 0


@dataclass(slots=True)
class TableMeta:
    """The table's own account.

    Attributes:
        step: (query id, version, batch time) of the last applied step, None before the first.
        offsets: store -> next changelog offset; may run ahead of `step` while a restore is under way.
        segments: store -> what `Segments.to_json` gave.
    """

    step: tuple[str, int, int] | None = None
    offsets: dict[str, int] = field(default_factory=dict)
    segments: dict[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """As JSON."""
        return orjson.dumps(
            {"format": FORMAT, "step": self.step, "offsets": self.offsets, "segments": self.segments},
            option=orjson.OPT_SORT_KEYS,
        )


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A store's place in a table; another kind or segment width makes it another store.

    Attributes:
        store_id: first two bytes of its local keys.
        kind: `StoreKind` value.
        segment_ms: width of its segments, 0 = none.
    """

    store_id: int
    kind: str
    segment_ms: int


def read_meta(table: OrderedTable) -> TableMeta:
    """The account of a table; that of an empty table is empty."""
    data = table.get(META_KEY)
    if data is None:
        return TableMeta()
    found = orjson.loads(data)
    if found["format"] != FORMAT:
        raise StateError(
            f"the store in {table.location} has format {found['format']}, this version knows {FORMAT}: run the version "
            f"that wrote it, or delete the folder to have it restored from the changelog"
        )
    step = found["step"]
    return TableMeta(None if step is None else (step[0], step[1], step[2]), found["offsets"], found["segments"])


def read_stores(table: OrderedTable) -> dict[str, StoreEntry]:
    """The stores that lie in a table, also those that the topology no longer has."""
    data = table.get(STORES_KEY)
    return {} if data is None else {name: StoreEntry(*entry) for name, entry in orjson.loads(data).items()}


def stores_to_bytes(stores: Mapping[str, StoreEntry]) -> bytes:
    """The registry of stores as JSON."""
    return orjson.dumps({name: (e.store_id, e.kind, e.segment_ms) for name, e in stores.items()})
