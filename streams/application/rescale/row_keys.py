"""Where the key of a row's record is in the row's changelog key, for each kind of store.

Records come to tasks by the bytes of their keys, and so do the rows that they make. A row's changelog key contains these bytes:
alone, in front of a window, behind a time, or as the first part of a combined key. The rule for a store follows from the operator
that owns it, from its kind, and from its key serde, whose layers (`TimeWindowedSerde` around the key's own) are taken off until the
serde is the one by which records reach the task. Where that is uncertain there is no rule, and nothing is moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from state.kafka.columns import binary_column
from state.stores.codec import SESSION_SUFFIX, WINDOW_SUFFIX
from state.stores.spec import StoreSpec
from state.tables.binary_columns import sliced
from streams.errors import RescaleError
from streams.serdes.base import Serde, serde_identity
from streams.serdes.foreign_key import CombinedKeySerde
from streams.serdes.primitives import BytesSerde
from streams.serdes.waiting import NUMBER_BYTES, WaitingKeySerde
from streams.serdes.windowed import CustomWindowedSerde, SessionWindowedSerde, TimeWindowedSerde
from streams.topology.graph import ProcessorNode, StoreNode
from streams.topology.node_kind import NodeKind
from streams.topology.plan import SubTopology
from streams.topology.specs.streams import RetryingProcessorSpec

USERS_PROCESSORS = frozenset(
    {
        NodeKind.KSTREAM_PROCESSOR,
        NodeKind.KSTREAM_PROCESSVALUES,
        NodeKind.PROCESSOR,
        NodeKind.KTABLE_TRANSFORMVALUES,
    }
)
"""The kinds of nodes in which users' code decides what is stored, and under which keys."""

_LONG = 8
_LENGTH = 4
_OPEN_WINDOW = 2 * _LONG
"""End and start, in front of a key in the index of open windows (`operators/aggregate/open_windows.py`)."""
_WAITING = _LONG + 1
"""Time and side, in front of a waiting record's key (`serdes/waiting.py`)."""


@dataclass(frozen=True, slots=True)
class RowKey:
    """Where the record key is in a changelog key.

    Attributes:
        front: Number of bytes in front of it.
        back: Number of bytes behind it.
        counted: Whether the first part behind `front` has its length (4 bytes) in front: then the record key is in that part.
    """

    front: int = 0
    back: int = 0
    counted: bool = False

    def of(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """The record keys of changelog keys."""
        if not self.counted:
            return keys if self.front == self.back == 0 else sliced(keys, self.front, self.back)
        # Cut at a place that each row says itself; only the stores of foreign keys, ranks and ids have such rows.
        start = self.front + _LENGTH
        return binary_column(
            [
                key[start : start + int.from_bytes(key[self.front : start], "big") - self.back]
                for key in keys.to_pylist()
            ]
        )


def row_keys(sub: SubTopology, by_key: frozenset[str] = frozenset()) -> dict[str, RowKey]:
    """The rule for each store of a sub-topology that has a changelog.

    Raises:
        RescaleError: It is not known to which records the rows of a store belong.
    """
    return {name: _row_key(sub, node, name in by_key) for name, node in sub.stores.items() if node.spec.logged}


def _row_key(sub: SubTopology, store: StoreNode, by_key: bool) -> RowKey:
    owners = [node for node in sub.processors if store.name in node.stores]
    own = [node for node in owners if node.kind not in USERS_PROCESSORS or _holds_lines(node, store)]
    if owners and not own and not by_key:
        raise RescaleError(
            f"the store {store.name!r} belongs to a processor ({', '.join(node.name for node in owners)}), which decides what it "
            f"stores under which key. If each row is stored under the key of the record that wrote it, say so: --by-key "
            f"{store.name}. If not, the rows cannot be moved to the tasks of their keys: keep the number of tasks"
        )
    front, counted, serde = _form(sub, own or owners, store)
    back = 0 if counted else _suffix(store.spec) + (NUMBER_BYTES if isinstance(store.key_serde, WaitingKeySerde) else 0)
    routed = _routed_by(sub, own or owners)
    for layer, outside in _layers(serde):
        if routed == {serde_identity(layer)}:
            return RowKey(front, back + outside, counted)
    if by_key:
        return RowKey(front, back, counted)
    raise RescaleError(
        f"the keys of the store {store.name!r} are written by {serde_identity(serde)}, but records come to its task by keys "
        f"written by {' and '.join(sorted(routed)) or 'nothing'}, so the bytes of the store do not tell where a row belongs. "
        f"If both write the same bytes for every key, say so: --by-key {store.name}"
    )


def _holds_lines(owner: ProcessorNode, store: StoreNode) -> bool:
    """Whether the store has the lines of a processor that retries in order: the engine writes it, by the keys of records."""
    return isinstance(owner.spec, RetryingProcessorSpec) and owner.spec.waiting == store.name


def _form(sub: SubTopology, owners: list[ProcessorNode], store: StoreNode) -> tuple[int, bool, Serde]:
    """Bytes in front of the key, whether its length is there too, and the serde that wrote it."""
    serde = store.key_serde
    for owner in owners:
        place = owner.stores.index(store.name)
        written_by = owner.input_key_serde or sub.stores[owner.stores[0]].key_serde
        if owner.kind is NodeKind.KTABLE_SUPPRESS:
            return (_LONG if place == 0 else 0), False, written_by
        if owner.kind is NodeKind.KTABLE_TOP and place == 1:
            return 0, True, written_by
        if isinstance(serde, WaitingKeySerde):
            return _WAITING, False, _key_beside(sub, owner, store) or written_by
        if isinstance(serde, BytesSerde) and place == 1 and store.name.endswith("-open"):
            return _OPEN_WINDOW, False, sub.stores[owner.stores[0]].key_serde
    if isinstance(serde, CombinedKeySerde):
        return 0, True, serde.foreign_key
    return 0, False, serde


def _key_beside(sub: SubTopology, owner: ProcessorNode, store: StoreNode) -> Serde | None:
    """The key serde of another store of the operator, which holds rows under the same keys."""
    others = (sub.stores[name].key_serde for name in owner.stores if name != store.name and name in sub.stores)
    return next((serde for serde in others if not isinstance(serde, WaitingKeySerde)), None)


def _suffix(spec: StoreSpec) -> int:
    if spec.kind.windowed:
        return WINDOW_SUFFIX
    return SESSION_SUFFIX if spec.kind.segmented else 0


def _layers(serde: Serde) -> Iterator[tuple[Serde, int]]:
    """A serde and those inside of it, each with the number of bytes that the outer ones add at the end."""
    outside = 0
    yield serde, outside
    while isinstance(serde, TimeWindowedSerde | CustomWindowedSerde | SessionWindowedSerde):
        outside += 2 * _LONG if isinstance(serde, SessionWindowedSerde) else _LONG
        serde = serde.inner
        yield serde, outside


def _routed_by(sub: SubTopology, owners: list[ProcessorNode]) -> set[str]:
    """The serdes of the keys by which records come to the tasks and then to these nodes."""
    above: set[str] = set()
    waiting = [owner.name for owner in owners]
    while waiting:
        name = waiting.pop()
        if name not in above:
            above.add(name)
            waiting += sub.nodes[name].parents
    return {serde_identity(entry.key_serde) for entry in sub.entries if entry.node in above and not entry.by_partition}
