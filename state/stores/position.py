"""A table's metadata: the step that it has reached, and the stores in it.

Both are in the table itself, under keys before all stores (store id 0), in the same atomic writes as the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from state.errors import StateFormatError

if TYPE_CHECKING:
    from state.tables.table import OrderedTable

META_KEY = b"\x00\x00meta"
STORES_KEY = b"\x00\x00stores"
FORMAT = 1
"""Fields may be added within a format. A table without them is trusted less, but not refused."""


@dataclass(frozen=True, slots=True)
class StorePosition:
    """The committed step that a task's stores hold.

    Attributes:
        query_id: Id of the Spark query that made the step, or of the query that it continues (`CommitMarker.state_of`).
        version: Number of the step, from 1.
        changelog_offsets: Store -> next offset of its changelog partition.
        written_ms: The batch time ("now") of the step, ms; determines how old a store is. 0 = unknown.
        topic_ids: Store -> Kafka's id of its changelog topic, where known.
    """

    query_id: str
    version: int
    changelog_offsets: Mapping[str, int]
    written_ms: int = 0
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def origin(self, store: str) -> StoreOrigin:
        """The origin of a store's rows if the store holds this step."""
        return StoreOrigin(self.query_id, self.topic_ids.get(store, ""), self.written_ms)


@dataclass(frozen=True, slots=True)
class StoreOrigin:
    """The origin of a store's rows, written with the first row, so that an incomplete restore is recognised.

    Attributes:
        query_id: Id of the Spark query that the state belongs to (`CommitMarker.state_of`).
        topic_id: Kafka's id of the changelog topic, "" = unknown.
        as_of_ms: The store has seen every deletion after this time up to its offset, ms; 0 = unknown.
    """

    query_id: str
    topic_id: str = ""
    as_of_ms: int = 0


@dataclass(slots=True)
class TableMetadata:
    """The table's metadata.

    Attributes:
        step: (query id, version, batch time) of the last applied step, None before the first.
        offsets: Store -> next changelog offset; may run ahead of `step` while a restore is under way.
        segments: Store -> result of `Segments.to_json`.
        origins: Store -> origin of its rows.
    """

    step: tuple[str, int, int] | None = None
    offsets: dict[str, int] = field(default_factory=dict)
    segments: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, StoreOrigin] = field(default_factory=dict)

    def changed(self, **changes: Any) -> TableMetadata:
        """A copy with other fields and its own dictionaries."""
        copied = TableMetadata(self.step, dict(self.offsets), dict(self.segments), dict(self.origins))
        return replace(copied, **changes)

    def to_bytes(self) -> bytes:
        return orjson.dumps(
            {
                "format": FORMAT,
                "step": self.step,
                "offsets": self.offsets,
                "segments": self.segments,
                "origins": {name: (o.query_id, o.topic_id, o.as_of_ms) for name, o in self.origins.items()},
            },
            option=orjson.OPT_SORT_KEYS,
        )


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A store's place in a table; a change of kind or segment width makes it another store.

    Attributes:
        store_id: First two bytes of its local keys.
        kind: `StoreKind` value.
        segment_ms: Width of its segments, 0 = none.
    """

    store_id: int
    kind: str
    segment_ms: int


def read_meta(table: OrderedTable) -> TableMetadata:
    """The metadata of a table; empty for an empty table."""
    data = table.get(META_KEY)
    if data is None:
        return TableMetadata()
    found = orjson.loads(data)
    if found["format"] != FORMAT:
        raise StateFormatError(table.location, found["format"], FORMAT)
    step = None if found["step"] is None else (found["step"][0], found["step"][1], found["step"][2])
    offsets: dict[str, int] = found["offsets"]
    if "origins" in found:
        origins = {name: StoreOrigin(*origin) for name, origin in found["origins"].items()}
    else:
        # An older version wrote this, without origins. Back then, all stores of a table with a step came from that step's query.
        origins = {} if step is None else {name: StoreOrigin(step[0], "", step[2]) for name in offsets}
    return TableMetadata(step, offsets, found["segments"], origins)


def read_stores(table: OrderedTable) -> dict[str, StoreEntry]:
    """The stores in a table, including the ones that the topology no longer has."""
    data = table.get(STORES_KEY)
    return {} if data is None else {name: StoreEntry(*entry) for name, entry in orjson.loads(data).items()}


def stores_to_bytes(stores: Mapping[str, StoreEntry]) -> bytes:
    """The registry of stores as JSON."""
    return orjson.dumps({name: (e.store_id, e.kind, e.segment_ms) for name, e in stores.items()})
