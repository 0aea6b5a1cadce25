"""Copies the rows of a store to the tasks of their keys.

The bytes of a record's key decide its task, and the task of the rows that come from it. `RowKey` describes where these bytes are in
a row's changelog key, `stage_partition` copies a changelog to a staging topic by them, and `LogCopy` writes the copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.changelog import check_end
from state.columns import RecordColumns, binary_column, numbers_at, one_piece, sliced
from state.commit.guards import fenced_producer
from state.commit.marker import CommitMarker
from state.commit.protocols import KafkaAccess, Producer
from state.kafka.partitioner import partition_for_keys
from state.kafka.placement import Placement
from state.kafka.topics import TopicPartition
from state.restore.restorer import RestoreListener
from state.stores.buffer_values import LENGTH
from state.stores.codec import SESSION_SUFFIX, WINDOW_SUFFIX
from state.stores.spec import RowFormat, StoreKind, StoreSpec
from streams.errors import RescaleError
from streams.serdes.base import Serde, serde_identity
from streams.serdes.exactness import always_canonical
from streams.serdes.internal import NUMBER_BYTES, BufferedKeySerde, CombinedKeySerde, UnmatchedKeySerde, WaitingKeySerde
from streams.serdes.primitives import BytesSerde
from streams.serdes.wrappers import CustomWindowedSerde, SessionWindowedSerde, TimeWindowedSerde
from streams.topology.graph import ProcessorNode, StoreNode
from streams.topology.node_kind import NodeKind
from streams.topology.plan import SubTopology
from streams.topology.specs.streams import RetryingProcessorSpec

CHUNK_BYTES = 32 * 1024 * 1024
"""The approximate bytes of keys and values in one transaction: so large that the constant cost of one does not matter."""


@dataclass
class LogCopy:
    """Writes changelog records to the partitions of a topic that nothing else writes to, in transactions of bounded size.

    Records of one source partition stay in order. Each transaction is committed only if its records are where the last one
    ended, so two rescales at a time cannot mix their records.

    Attributes:
        records: The number of records written so far.
    """

    kafka: KafkaAccess
    transactional_id: str
    topic: str
    partitions: int
    records: int = 0
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    _waiting: list[tuple[RecordColumns, npt.NDArray[np.int32]]] = field(default_factory=list)
    _bytes: int = 0

    def add(self, columns: RecordColumns, partitions: npt.NDArray[np.int32]) -> None:
        """Adds records, each with its partition; they are written once there are enough of them."""
        if not len(columns):
            return
        self._waiting.append((columns, partitions))
        self._bytes += columns.keys.nbytes + columns.values.nbytes
        if self._bytes >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes all records that were added.

        Raises:
            RescaleError: Something else has written to the topic.
        """
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if not waiting:
            return
        keys = one_piece(pa.chunked_array([columns.keys for columns, _ in waiting]))
        values = one_piece(pa.chunked_array([columns.values for columns, _ in waiting]))
        stamps = np.concatenate([columns.timestamps for columns, _ in waiting])
        headers = None
        if any(columns.headers is not None for columns, _ in waiting):
            parts = [pa.nulls(len(one), pa.binary()) if one.headers is None else one.headers for one, _ in waiting]
            headers = one_piece(pa.chunked_array(parts))
        places = np.concatenate([partitions for _, partitions in waiting])
        producer = fenced_producer(self.kafka, self.transactional_id)
        try:
            self._write(producer, places, keys, values, stamps, headers)
        finally:
            producer.close()
        self.records += len(keys)

    def _write(
        self, producer: Producer, places: npt.NDArray[np.int32], keys: Any, values: Any, stamps: Any, headers: Any
    ) -> None:
        ends, counts = self.ends(), {}
        producer.begin()
        # One partition after the other: only then does the producer know where the last record of each has landed.
        for partition in np.unique(places).tolist():
            rows = np.flatnonzero(places == partition)
            taken = pa.array(rows)
            own = None if headers is None else headers.take(taken)
            producer.send_columns(self.topic, partition, keys.take(taken), values.take(taken), stamps[rows], own)
            counts[self.topic, partition] = len(rows)
        producer.flush()
        for place, count in counts.items():
            if producer.delivered(*place) != ends[place] + count - 1:
                raise _another(self.topic)
            # The control record of the commit follows.
            self._ends[place] = ends[place] + count + 1
        producer.commit()

    def ends(self) -> dict[TopicPartition, int]:
        """Where the partitions end.

        Raises:
            RescaleError: Something else has written to the topic.
        """
        places = [(self.topic, partition) for partition in range(self.partitions)]
        found = {place: stable for place, (stable, _) in self.kafka.log_ends(places).items()}
        if any(end != self._ends.get(place, end) for place, end in found.items()):
            raise _another(self.topic)
        self._ends = found
        return dict(found)


def records_of(kafka: KafkaAccess, topic: str, partition: int, end: int | None = None) -> Iterator[RecordColumns]:
    """The committed records of a partition, up to an offset or all of them."""
    place = (topic, partition)
    yield from kafka.read(
        topic, partition, kafka.begin_offset(place), kafka.end_offsets([place])[place] if end is None else end
    )


def _another(topic: str) -> RescaleError:
    return RescaleError(
        f"something else writes to {topic}: another `streams rescale` is running. Let one of them finish"
    )


# --- Where the key of a row's record is in the row's changelog key
#
# A row's changelog key contains the bytes of the record's key: alone, before a window, after a time, or as the first part of
# a combined key. The rule for a store follows from the operator that owns it, from its kind, and from its key serde, whose layers
# (`TimeWindowedSerde` around the key's own) are taken off until the serde is the one by which records reach the task. Where that
# is uncertain there is no rule, and nothing is moved.

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
"""The length of end and start, which come before a key in the index of open windows (`operators/aggregate/open_windows.py`)."""
_WAITING = _LONG + 1
"""The length of time and side, or of 0 and time, which come before the key of a waiting record (`serdes/internal.py`)."""
_NUMBERS: Mapping[type[Serde], int] = {WaitingKeySerde: NUMBER_BYTES, BufferedKeySerde: LENGTH.size}
"""The length of the number after a waiting record's key."""
_IN_ORDER_OF_TIME = WaitingKeySerde | UnmatchedKeySerde | BufferedKeySerde


@dataclass(frozen=True, slots=True)
class RowKey:
    """The position of the record key in a changelog key.

    Attributes:
        front: The number of bytes before it.
        back: The number of bytes after it.
        counted: Whether the part after `front` begins with its length (4 bytes); the record key is then in that part.
        has_notations: Whether producers may write the record key in several ways. Before keys were canonical, versions assigned
            records to tasks by the bytes that the producer had written, so a row may be in a different task from its key.
        suppressed: Whether rows of releases before 1.0, which have no header, have a time before the key (`with_keys`).
    """

    front: int = 0
    back: int = 0
    counted: bool = False
    has_notations: bool = False
    suppressed: bool = False

    def of(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        if not self.counted:
            return keys if self.front == self.back == 0 else sliced(keys, self.front, self.back)
        # Each row has the length of its key; only the stores of foreign keys, ranks, ids and distinct values have such rows.
        start = self.front + _LENGTH
        return binary_column(
            [
                key[start : start + int.from_bytes(key[self.front : start], "big") - self.back]
                for key in keys.to_pylist()
            ]
        )


def with_keys(
    key: RowKey, columns: RecordColumns, task: int, tasks: int, placement: Placement
) -> tuple[RecordColumns, pa.BinaryArray]:
    """The records that belong to a task, with the keys that assign them to it.

    A tombstone of `suppress` does not show the format of the row that it deletes. It is copied for each format in which it belongs
    to the task, because a tombstone that deletes nothing does no harm.
    """
    if not key.suppressed:
        return columns, key.of(columns.keys)
    marks = [None] * len(columns) if columns.headers is None else columns.headers.to_pylist()
    rows, found, sure = list[int](), list[bytes](), list[bool]()
    for row, ((cell, value), mark) in enumerate(zip(columns.cells(), marks, strict=True)):
        assert cell is not None, "a restore refuses a record without a key"
        readings = [] if mark is None and value is not None else [cell]
        readings += [cell[_LONG:]] if mark is None and len(cell) >= _LONG else []
        for number, reading in enumerate(readings):
            end = len(reading) - key.back
            rows.append(row)
            found.append(reading[:end] if end > 0 else b"")
            sure.append(number == 0)
    own = partition_for_keys(binary_column(found), tasks, placement) == task
    chosen = own | np.array(sure) & ~np.isin(rows, np.array(rows)[own])
    taken = np.flatnonzero(chosen)
    return columns.take(np.array(rows)[taken]), binary_column(found).take(pa.array(taken))


def row_keys(sub: SubTopology, by_key: frozenset[str] = frozenset()) -> dict[str, RowKey]:
    """The rule for each store of a sub-topology that has a changelog.

    Raises:
        RescaleError: It is unknown which records the rows of a store belong to.
    """
    return {name: _row_key(sub, node, name in by_key) for name, node in sub.stores.items() if node.spec.logged}


def _row_key(sub: SubTopology, store: StoreNode, by_key: bool) -> RowKey:
    owners = [node for node in sub.processors if store.name in node.stores]
    own = [node for node in owners if node.kind not in USERS_PROCESSORS or _holds_lines(node, store)]
    if owners and not own and not by_key:
        raise RescaleError(
            f"the store {store.name!r} belongs to a processor ({', '.join(node.name for node in owners)}), which decides what it "
            f"stores under which key. If each row is stored under the key of the record that wrote it, add --by-key "
            f"{store.name}. If not, the rows cannot be moved to the tasks of their keys: keep the number of tasks"
        )
    front, counted, serde = _form(sub, own or owners, store)
    back = 0 if counted else _suffix(store.spec) + _NUMBERS.get(type(store.key_serde), 0)
    routed = _routed_by(sub, own or owners)
    for layer, outside in _layers(serde):
        if routed == {serde_identity(layer)}:
            suppressed = store.spec.rows is RowFormat.SUPPRESSED
            return RowKey(front, back + outside, counted, not always_canonical(layer), suppressed)
    if by_key:
        return RowKey(front, back, counted)
    raise RescaleError(
        f"the keys of the store {store.name!r} are written by {serde_identity(serde)}, but records come to its task by keys "
        f"written by {' and '.join(sorted(routed)) or 'nothing'}, so the bytes of the store do not show where a row belongs. "
        f"If both write the same bytes for every key, add --by-key {store.name}"
    )


def _holds_lines(owner: ProcessorNode, store: StoreNode) -> bool:
    """Whether the store keeps the lines of a processor that retries in order, which the engine writes under the keys of records."""
    return isinstance(owner.spec, RetryingProcessorSpec) and owner.spec.waiting == store.name


def _form(sub: SubTopology, owners: list[ProcessorNode], store: StoreNode) -> tuple[int, bool, Serde]:
    """The number of bytes before the key, whether they include its length, and the serde that wrote the key."""
    serde = store.key_serde
    for owner in owners:
        place = owner.stores.index(store.name)
        written_by = owner.input_key_serde or sub.stores[owner.stores[0]].key_serde
        if owner.kind is NodeKind.KTABLE_SUPPRESS:
            return 0, False, written_by
        if owner.kind is NodeKind.KTABLE_TOP and place == 1:
            return 0, True, written_by
        if isinstance(serde, _IN_ORDER_OF_TIME):
            return _WAITING, False, _key_beside(sub, owner, store) or written_by
        if isinstance(serde, BytesSerde) and place > 0 and store.name.endswith(("-open", "-seen")):
            opens = store.name.endswith("-open")
            return _OPEN_WINDOW if opens else 0, not opens, sub.stores[owner.stores[0]].key_serde
    if isinstance(serde, CombinedKeySerde):
        return 0, True, serde.foreign_key
    return 0, False, serde


def _key_beside(sub: SubTopology, owner: ProcessorNode, store: StoreNode) -> Serde | None:
    """The key serde of another store of the same operator that has rows under the same keys."""
    others = (sub.stores[name].key_serde for name in owner.stores if name != store.name and name in sub.stores)
    return next((serde for serde in others if not isinstance(serde, _IN_ORDER_OF_TIME)), None)


def _suffix(spec: StoreSpec) -> int:
    if spec.kind.windowed:
        return WINDOW_SUFFIX
    return SESSION_SUFFIX if spec.kind.segmented else 0


def _layers(serde: Serde) -> Iterator[tuple[Serde, int]]:
    """A serde and the serdes inside it, each with the number of bytes that the outer ones add at the end."""
    outside = 0
    yield serde, outside
    while isinstance(serde, TimeWindowedSerde | CustomWindowedSerde | SessionWindowedSerde):
        outside += 2 * _LONG if isinstance(serde, SessionWindowedSerde) else _LONG
        serde = serde.inner
        yield serde, outside


def _routed_by(sub: SubTopology, owners: list[ProcessorNode]) -> set[str]:
    """The serdes of the keys that assign records to tasks, for the records that reach these nodes."""
    above: set[str] = set()
    waiting = [owner.name for owner in owners]
    while waiting:
        name = waiting.pop()
        if name not in above:
            above.add(name)
            waiting += sub.nodes[name].parents
    return {serde_identity(entry.key_serde) for entry in sub.entries if entry.node in above and not entry.by_partition}


def records_with_progress(
    kafka: KafkaAccess, topic: str, partition: int, end: int, store: str, listener: RestoreListener | None
) -> Iterator[RecordColumns]:
    """The committed records of a partition up to an offset. The listener is notified of each run of records once it was used."""
    begin = kafka.begin_offset((topic, partition))
    left = end - begin
    if listener is not None:
        listener.on_start(store, partition, left)
    for columns in kafka.read(topic, partition, begin, end):
        yield columns
        if listener is not None:
            left = end - columns.last_offset - 1
            listener.on_batch(store, partition, len(columns), columns.keys.nbytes + columns.values.nbytes, left)
    if listener is not None and left:
        # Only control records follow the last record.
        listener.on_batch(store, partition, 0, 0, 0)


@dataclass
class Strays:
    """Hash of the changelog key -> row, for the rows of a store that are in a different task from their key.

    A key that two producers wrote in two ways has rows in two tasks, each made from a part of its records. There is no rule that
    could make one row of them.
    """

    store: str
    tasks: dict[int, int] = field(default_factory=dict)

    def add(self, keys: list[bytes], task: int) -> None:
        """Notes rows of a task.

        Raises:
            RescaleError: One of the keys also has rows in another task.
        """
        self.check(keys, task)
        self.tasks.update((hash(key), task) for key in keys)

    def check(self, keys: list[bytes], task: int) -> None:
        """Checks that no row of a task has the same key as a stray row of another task.

        Raises:
            RescaleError: There is one.
        """
        for key in keys:
            other = self.tasks.get(hash(key), task)
            if other != task:
                raise RescaleError(
                    f"the store {self.store!r} has rows of the key {key!r} in the tasks {min(task, other)} and "
                    f"{max(task, other)}, because its producers write the key in several ways and an earlier version took these "
                    f"for different keys. Each row reflects only a part of the records, and it is not known how to combine "
                    f"them: process "
                    f"the input again with `streams reset`. Nothing was replaced: `streams rescale --abort` removes the copies"
                )


def check_strays(
    kafka: KafkaAccess, topic: str, spec: StoreSpec, strays: Strays, markers: Mapping[int, CommitMarker | None]
) -> None:
    """Checks that each key of a stray row has rows in only one task. Reads nothing if there are no stray rows.

    Raises:
        RescaleError: A key has rows in two tasks.
    """
    for task, marker in markers.items() if strays.tasks else ():
        for columns in records_of(kafka, topic, task, _end_of(kafka, topic, task, spec, marker)):
            assert marker is not None, "rows without a marker are refused when they are copied"
            alive = _alive(columns, spec, marker.expired_before.get(spec.name, 0))
            strays.check(alive.keys.to_pylist(), task)


def _end_of(kafka: KafkaAccess, topic: str, task: int, spec: StoreSpec, marker: CommitMarker | None) -> int:
    """The offset up to which a changelog contains exactly the state of the last commit.

    Raises:
        RestoreError: The changelog has lost records that belong to the last commit.
    """
    place = (topic, task)
    end = kafka.end_offsets([place])[place]
    if marker is None:
        return end
    promised = marker.changelog_ends.get(spec.name, end)
    check_end(spec.name, end, marker.version, promised)
    return promised


def stage_partition(
    copy: LogCopy,
    topic: str,
    spec: StoreSpec,
    key: RowKey,
    task_of: tuple[int, int],
    placements: tuple[Placement, Placement],
    marker: CommitMarker | None,
    strays: Strays,
    listener: RestoreListener | None,
) -> None:
    """Copies the rows of one task's store, and notes the rows that only the bytes written by their producer assign to this task.

    `task_of` is the task and the current number of tasks; `placements` are the current and the new placement.

    Raises:
        RescaleError: A row is not in the task of its key.
        RestoreError: The changelog has lost records that belong to the last commit.
    """
    (task, tasks), (old, new) = task_of, placements
    end = _end_of(copy.kafka, topic, task, spec, marker)
    for columns in records_with_progress(copy.kafka, topic, task, end, spec.name, listener):
        if marker is None:
            raise RescaleError(
                f"the changelog {topic}-{task} has records, but task {task} has no commit that shows which step they belong to. "
                f"`streams run` refuses this, too, and shows what to do"
            )
        alive = _alive(columns, spec, marker.expired_before.get(spec.name, 0))
        alive, keys = with_keys(key, alive, task, tasks, old)
        if key.has_notations:
            astray = pa.array(partition_for_keys(keys, tasks, old) != task)
            strays.add(alive.keys.filter(astray).to_pylist(), task)
        else:
            _check_place(keys, alive, spec, task, partition_for_keys(keys, tasks, old))
        copy.add(alive, partition_for_keys(keys, copy.partitions, new))


def _alive(columns: RecordColumns, spec: StoreSpec, before_ms: int) -> RecordColumns:
    """The records of segments that have not expired. Expired rows would reappear in a task with an earlier stream time."""
    if not spec.kind.segmented or before_ms <= 0:
        return columns
    width = spec.segment_width_ms
    times = numbers_at(columns.keys, -(SESSION_SUFFIX if spec.kind is StoreKind.SESSION else WINDOW_SUFFIX))
    alive = times // width >= before_ms // width
    if alive.all():
        return columns
    mask = pa.array(alive)
    return RecordColumns(
        columns.topic,
        columns.partition,
        columns.offsets[alive],
        columns.timestamps[alive],
        columns.keys.filter(mask),
        columns.values.filter(mask),
    )


def _check_place(
    keys: pa.BinaryArray, columns: RecordColumns, spec: StoreSpec, task: int, found: npt.NDArray[np.int32]
) -> None:
    """Checks that each row is in the task of its key, which proves the rule for keys before anything is replaced."""
    wrong = np.flatnonzero(found != task)
    if len(wrong):
        at = int(wrong[0])
        raise RescaleError(
            f"the store {spec.name!r} of task {task} has a row (offset {columns.offsets[at]}) for the record key "
            f"{keys[at].as_py()!r}, whose records come to task {found[at]}: its rows are not stored under the keys of their "
            f"records, so they cannot be moved. Nothing was replaced: `streams rescale --abort` removes the copies"
        )
