"""A reader's processing of a topic-partition's records: operators, rows for the tasks, and records that operators hold back.

The results of a held-back record come after later records' results, but have its position. Rows are sorted by position at the end
of the piece, so their order does not depend on how records were gathered.

Invariant: an operator's results for a record may differ between attempts, but the set of tasks that may get them must not. A
task that has committed an attempt must be called again in the next one to notice the commit. Otherwise its next step would find a
commit that it cannot explain. So every task that a record could reach is `touched`, and a dead letter goes to the task that the
result would have gone to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import RecordColumns
from streams.engine.graph.event_time import UNKNOWN_NOW
from streams.engine.graph.handlers import DeadLetter, Origin
from streams.engine.graph.rows import DEAD_LETTER_ENTRY, RoutingDigests, RowBatch
from streams.engine.graph.settings import Counters, TaskSettings
from streams.engine.graph.step_context import SourceRows, StepContext
from streams.engine.reader.column_reader import compact_keys
from streams.engine.reader.head import Head, Ways
from streams.engine.reader.source_reader import NoteTimes, SourceReader
from streams.engine.reader.task_inputs import (
    Piece,
    RowColumns,
    RowsOut,
    TaskInputRunner,
    numbered,
    split_by_task,
    tasks_of,
    too_many,
)
from streams.model.record import STAGE, Record
from streams.topology.graph import ProcessorNode
from streams.topology.plan import SubTopology
from streams.topology.planning.task_input import TaskInput


@dataclass(frozen=True, slots=True)
class Held:
    """A record that is held back.

    Attributes:
        cursor: Its source rows, and its index in them.
        position: Its position in the piece.
        route: The key that decides the task of its results.
    """

    cursor: tuple[SourceRows, int]
    position: int
    route: bytes | None


class Current:
    """The piece that is being processed; None between two pieces, so that no reference cycle keeps its rows in memory."""

    def __init__(self) -> None:
        self.read: Piece | None = None

    @property
    def piece(self) -> Piece:
        assert self.read is not None, "see ReaderPipeline.run"
        return self.read

    def place(self, number: int) -> tuple[SourceRows, int]:
        """The source record with a number in the piece."""
        return self.piece.rows, number


class ReaderContext(StepContext):
    """The context of a reader's pass. Dead letters are sent to a task as rows, so that they are part of its transaction.

    Attributes:
        dead_letters: The dead letters of the piece so far.
        letter_routes: For each dead letter, the key that decides its task.
        behind: For each node that holds records back, the entries reachable from it.
        current: The piece that is being processed.
        touched: Keys whose tasks must be called, even if they get no rows.
        letters_by_partition: Whether rows leave the head by their source partition, and so dead letters do, too.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.dead_letters = RowColumns()
        self.letter_routes: list[bytes | None] = []
        self._letter_stages: list[bytes | None] = []
        self.behind: Mapping[str, Sequence[TaskInputRunner]] = {}
        self.current = Current()
        self.touched: set[bytes | None] = set()
        self.letters_by_partition = False
        self._held_keys: dict[int, RowColumns] = {}
        self._resumed: Held | None = None

    def send_dead_letter(self, letter: DeadLetter, origin: Origin) -> None:
        self.dead_letters.add_dead_letter(letter, origin, -1 if self.cursor is None else self.position)
        # A null key goes to the task of its source partition.
        route = None if self.letters_by_partition else self._route_of(letter, origin)
        self.letter_routes.append(route if self._resumed is None else self._resumed.route)
        self._letter_stages.append(dict(letter.headers)[STAGE] if self._resumed is None else None)

    def _route_of(self, letter: DeadLetter, origin: Origin) -> bytes | None:
        """The key that would send the record's results to their task. The dead letter may have the key in another notation."""
        piece = self.current.read
        if piece is None or piece.keys is piece.columns.keys or origin.topic is None:
            return letter.key
        row = int(np.searchsorted(piece.columns.offsets, origin.offset))
        return piece.rows.route(row) if row < len(piece.columns) else letter.key

    def take_dead_letters(self) -> tuple[RowColumns, list[int], list[bytes | None], pa.RecordBatch]:
        """Returns and forgets the dead letters: rows, order, the keys that decide their tasks, and rows for the routing digest.

        The digest covers their offsets and stages. A dead letter of a record that was held back has no stage: between attempts, it
        may differ whether there is an answer, but not the task.
        """
        rows, routes, stages = self.dead_letters, self.letter_routes, self._letter_stages
        self.dead_letters, self.letter_routes, self._letter_stages = RowColumns(), [], []
        order = sorted(range(len(routes)), key=lambda row: (rows.offsets[row], rows.seqs[row]))
        rows.seqs = list(range(len(routes)))
        digested = {"offset": rows.offsets, "seq": [0] * len(routes), "key": pa.array(stages, pa.binary())}
        return rows, order, routes, pa.RecordBatch.from_pydict(digested)

    def hold(self, node: str, record: Record) -> Held:
        """Notes the place of the current record, and the tasks that it can reach."""
        assert self.cursor is not None, "head operators run only while a record is in process"
        source, row = self.cursor
        keys = [self._key_behind(runner, record) for runner in self.behind[node]] or [source.route(row)]
        self.touched.update(keys)
        return Held(self.cursor, self.position, keys[0])

    def _key_behind(self, runner: TaskInputRunner, record: Record) -> bytes | None:
        """The key that will decide the task of a record's results at an entry."""
        assert self.cursor is not None, "see hold"
        source, row = self.cursor
        if runner.entry.by_partition:
            return None
        if runner.keeps_keys:
            return source.route(row)
        key = runner.key_of(record, source.topic)
        if runner.entry.keyed_by:
            self._held_keys.setdefault(runner.entry.index, RowColumns()).add_key(source.offsets[row], key)
        return key

    def take_held_keys(self) -> dict[int, RowColumns]:
        """Returns and forgets the new keys of held-back records: entry -> the keys that operators of the head have made."""
        keys, self._held_keys = self._held_keys, {}
        return keys

    @contextmanager
    def resume(self, held: Any) -> Iterator[None]:
        """Within the context, makes a record the current one: a record that was held back, or the record of a cursor."""
        before = self.cursor, self.position, self._resumed
        if isinstance(held, Held):
            self.cursor, self.position, self._resumed = held.cursor, held.position, held
        else:
            self.cursor = held
        try:
            yield
        finally:
            self.cursor, self.position, self._resumed = before


# --- The head: a reader's processing of a topic-partition's records before they are shuffled to the tasks.
#
# Stateless operators run here (`streams.engine.reader.head`), and their results leave as object entries. Raw entries never become
# Python objects: their bytes are split by task and sent. Columns entries have only the fields that an aggregate declared.
#
# Invariants: rows of a batch are in (offset, seq) order; the same records always give the same rows, whatever the sizes
# of the pieces they come in; no clock is read (`NOW` represents the step's, `ReaderPipeline.now_ms` is logged).


_OBJECT_BYTES = 8 << 20
"""About how many bytes of values are turned into objects at a time. The objects take several times as much memory."""


class ReaderPipeline:
    """The head of one sub-topology in one reader. It processes one piece of records after the other.

    Args:
        tasks: The number of tasks.
        settings: Policies.
        note_times: Called with the records of each part of a piece and their event times, which are `DROPPED` for rejected records.

    Attributes:
        counters: Counts since the start.
        partition_times: (topic, partition) -> largest timestamp so far, for `UsePartitionTimeOnInvalidTimestamp` and
            custom extractors. Set it before `run` to continue where an earlier reader ended.
        touched: Tasks that must be called even without rows: they had records, but an operator that is not repeatable gave no
            results this time.
        now_ms: When the micro-batch was planned, as logged with its offsets. Timestamps too far ahead of it are refused.
            `UNKNOWN_NOW`: only timestamps that no clock can show are refused.
    """

    def __init__(
        self, sub: SubTopology, tasks: int, settings: TaskSettings, note_times: NoteTimes | None = None
    ) -> None:
        self.partition_times: dict[tuple[str, int], int] = {}
        self.touched: set[int] = set()
        self._tasks = tasks
        self._run = ReaderContext(
            settings, f"{sub.index}_reader", now_ms=UNKNOWN_NOW, counted_by=sub.counted_by, retry_topics=sub.delays
        )
        self._ways = Ways(sub)
        current = self._current = self._run.current
        self._entries = {
            (entry.from_node, entry.node): TaskInputRunner(entry, self._run, self._ways, lambda: current.piece)
            for entry in sub.entries
            if entry.transport == "object"
        }
        self._keyed = {
            entry.index
            for entry in sub.entries
            if entry.transport in ("columns", "written") and entry.keyed_by and not entry.by_partition
        }
        self._routings = RoutingDigests()
        self._run.letters_by_partition = bool(self._entries) and all(
            entry.entry.by_partition for entry in self._entries.values()
        )
        self._digests_letters = any(
            entry.keyed_by or entry.key_serde != source.key_serde
            for source in sub.sources
            for entry in sub.entries
            if entry.transport == "object" and entry.from_node in _at_or_below(sub, source.name)
        )
        outside = {edge: entry.receive for edge, entry in self._entries.items()}
        self._head = Head(sub, self._run, self._ways, outside, current.place)
        self._run.behind = {
            name: [entry for edge, entry in self._entries.items() if edge[0] in _at_or_below(sub, name)]
            for name in self._head.nodes
            if not _node(sub, name).spec.repeatable
        }
        self._sources = [
            SourceReader(
                sub, source, bool(self._head.sources[source.name]), self._run, self.partition_times, note_times
            )
            for source in sub.sources
        ]

    @property
    def counters(self) -> Counters:
        for node in self._head.nodes.values():
            node.count()
        return self._run.counters

    def event_time(self, topic: str, partition: int) -> int | None:
        """The largest event time of the topic-partition's records so far, ms; None if there is none."""
        found = (source.event_times.get((topic, partition)) for source in self._sources)
        return max((time for time in found if time is not None), default=None)

    def routings(self) -> dict[int, str]:
        """Task -> digest of the keys that head operators gave the task's records (`streams.engine.graph.rows`)."""
        return self._routings.by_task()

    @property
    def now_ms(self) -> int:
        return self._run.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._run.now_ms = now_ms

    def run(self, columns: RecordColumns) -> Iterator[tuple[int, RowBatch]]:
        """Processes a piece of a topic-partition, and yields the rows for each task.

        Raises:
            RecordFailedError: A record cannot be handled and its policy is `fail`.
        """
        found = chain.from_iterable(map(self._process, self._parts(columns)))
        return self._timed(columns.topic, found) if self._run.settings.times_operators else found

    def _timed(self, topic: str, found: Iterator[tuple[int, RowBatch]]) -> Iterator[tuple[int, RowBatch]]:
        """Counts the CPU time for the source that reads the topic. The caller's time with each of the rows is not counted."""
        node = next((source.name for source in self._sources if topic in source.topics), topic)
        self._run.begin_laps()
        for one in found:
            self._run.lap(node)
            yield one
            self._run.begin_laps()
        self._run.lap(node)

    def _parts(self, columns: RecordColumns) -> Iterator[RecordColumns]:
        """Divides the piece so that the objects of operators fit into memory."""
        objects = any(columns.topic in source.topics and source.has_operators for source in self._sources)
        count = max(1, -(-columns.values.nbytes // _OBJECT_BYTES)) if objects else 1
        size = min(-(-len(columns) // count), self._ways.most_records if objects else len(columns))
        return (columns.part(first, first + size) for first in range(0, len(columns), size))

    def _process(self, columns: RecordColumns) -> Iterator[tuple[int, RowBatch]]:
        try:
            for source in self._sources:
                if columns.topic in source.topics:
                    self._current.read = source.piece(columns)
                    yield from self._of_source(source, columns)
            if self._current.read is not None:
                yield from self._gathered(columns.topic, columns.partition)
        finally:
            self._current.read = None
            self._run.handlers.end_piece()

    def _of_source(self, source: SourceReader, columns: RecordColumns) -> Iterator[tuple[int, RowBatch]]:
        """Yields the rows of records that need no operator, and gives the others to the head."""
        read = source.read(self._current.piece, self._tasks)
        for entry, rows, routes in read.rows:
            for task, part in split_by_task(rows, routes):
                if entry in self._keyed:
                    self._routings.add(task, entry, part)
                # If the part has all rows, it needs all keys.
                own = part if part.num_rows == len(columns) else compact_keys(part)
                yield task, RowBatch(columns.topic, columns.partition, entry, own)
        if read.records is not None:
            self._head.process(source.name, read.records)
        read.refuse_unreadable()

    def close(self) -> None:
        """Closes the operators, and discards the rows of a failed run."""
        self._head.close()
        self._discard()

    def rewind(self, counters: Mapping[str, int], times: Mapping[tuple[str, int], int]) -> None:
        """Forgets a failed run: its rows, and what it has added to the counters and the partition times."""
        self._discard()
        self._run.counters.clear()
        self._run.counters.update(counters)
        self.partition_times.clear()
        self.partition_times.update(times)

    def begin_step(self) -> None:
        """Makes the first error of each kind be logged again."""
        self._run.handlers.begin_step()

    def _discard(self) -> None:
        self._head.discard()
        for entry in self._entries.values():
            entry.take()
        self._run.take_dead_letters()
        self._run.touched.clear()

    def _gathered(self, topic: str, partition: int) -> Iterator[tuple[int, RowBatch]]:
        gathered = [(one.entry, out) for one in self._entries.values() if (out := one.take()) is not None]
        if self._run.touched:
            self.touched.update(self._routes(_keys(self._run.touched), partition).tolist())
            self._run.touched.clear()
            self._digest_held(partition)
        for entry, rows in self._numbered(gathered):
            yield from self._routed(topic, partition, entry, rows)
        if not self._run.letter_routes:
            return
        letters, order, keys, digested = self._run.take_dead_letters()
        tasks = self._routes(_keys(keys[row] for row in order), partition)
        if self._digests_letters:
            # If a function fails in only one attempt, the record goes to another task in the next one.
            for task, rows in split_by_task(digested.take(pa.array(order)), tasks):
                self._routings.add(task, DEAD_LETTER_ENTRY, rows.filter(rows["key"].is_valid()))
        for task, rows in split_by_task(letters.to_batch().take(pa.array(order)), tasks):
            yield task, RowBatch(topic, partition, DEAD_LETTER_ENTRY, compact_keys(rows))

    def _numbered(self, gathered: Sequence[tuple[TaskInput, RowsOut]]) -> Iterator[tuple[TaskInput, pa.RecordBatch]]:
        if not gathered:
            return
        for (entry, out), seqs in zip(gathered, numbered([out for _, out in gathered], self._ways), strict=True):
            rows = out.rows.add_column(1, "seq", pa.array(seqs))
            if len(over := np.flatnonzero(seqs < 0)):
                for number in np.unique(out.positions[over] >> self._ways.bits).tolist():
                    origin = self._current.piece.rows.origin(number)
                    self._run.handlers.handle("processing", entry.node, origin, too_many())
                rows = rows.filter(pa.array(seqs >= 0))
            yield entry, rows

    def _routed(
        self, topic: str, partition: int, entry: TaskInput, batch: pa.RecordBatch
    ) -> Iterator[tuple[int, RowBatch]]:
        if entry.by_partition:
            yield partition % self._tasks, RowBatch(topic, partition, entry.index, compact_keys(batch))
            return
        for task, rows in split_by_task(batch, self._routes(batch.column("key"), partition)):
            if entry.keyed_by and entry.repeatable:
                self._routings.add(task, entry.index, rows)
            yield task, RowBatch(topic, partition, entry.index, compact_keys(rows))

    def _digest_held(self, partition: int) -> None:
        """Adds the keys of held-back records to the digests: their results may differ between attempts, but not their tasks."""
        for index, rows in self._run.take_held_keys().items():
            batch = rows.to_batch()
            for task, part in split_by_task(batch, self._routes(batch.column("key"), partition)):
                self._routings.add(task, index, part)

    def _routes(self, keys: pa.BinaryArray, partition: int) -> npt.NDArray[np.int32]:
        return tasks_of(keys, partition, self._tasks, self._run.settings.placement)


def _keys(keys: Iterable[bytes | None]) -> pa.BinaryArray:
    return pa.array(list(keys), pa.binary())


def _node(sub: SubTopology, name: str) -> ProcessorNode:
    node = sub.nodes[name]
    assert isinstance(node, ProcessorNode), "the head is made of processors"
    return node


def _at_or_below(sub: SubTopology, name: str) -> set[str]:
    """The node, and all nodes of the head below it."""
    found = {name}
    for node in sub.nodes.values():
        if node.name in sub.head and not found.isdisjoint(node.parents):
            found.add(node.name)
    return found
