"""The head: a reader's processing of a topic-partition's records, and records that operators hold back for a while.

The results of a held-back record come later than those of its successors, but leave in their original place, so the order of
rows does not depend on how records were gathered: the record's place is reserved when it is held back, its results are
numbered below that place, and at the end of the piece all rows are sorted and renumbered.

Invariant: an operator's results for a record may differ from attempt to attempt, but the set of tasks concerned may not. A
task that has committed an attempt must be called again in the next one to see that; otherwise its next step would find a
commit that it cannot explain. So every task that a record could reach is `touched`, and a dead letter goes where the
result would have gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import RecordColumns
from streams.model.record import STAGE, Record
from streams.runtime.event_time import UNKNOWN_NOW
from streams.runtime.handlers import DeadLetter, Origin
from streams.runtime.node import NodeContext, NodeRunner, Punctuations, Receiver
from streams.runtime.reader import task_inputs
from streams.runtime.reader.column_reader import compact_keys
from streams.runtime.reader.source_reader import SourceReader
from streams.runtime.reader.task_inputs import BRANCH_BITS, Place, Rows, TaskInputRunner, split_by_task, tasks_of
from streams.runtime.rows import DEAD_LETTER_ENTRY, RoutingDigests, RowBatch
from streams.runtime.settings import Counters, TaskSettings
from streams.runtime.step_context import SourceRows, StepContext
from streams.topology.graph import ProcessorNode
from streams.topology.plan import SubTopology
from streams.topology.planning.task_input import TaskInput


@dataclass(frozen=True, slots=True)
class Held:
    """A record that is held back.

    Attributes:
        cursor: Its source rows, and its index in them.
        place: Its place among the results of that row.
        route: The key that routes its results to a task.
    """

    cursor: tuple[SourceRows, int]
    place: tuple[int, ...]
    route: bytes | None


class ReaderContext(StepContext):
    """The context of a reader's pass. Dead letters are sent to a task as rows, so that they are part of its transaction.

    Attributes:
        dead_letters: The dead letters of the piece so far.
        letter_routes: For each dead letter, the key that routes it to a task.
        sequence: Numbers the rows that leave the head.
        behind: For each node that holds records back, the entries reachable from it.
        touched: Keys whose tasks must be called, even if no row comes for them.
        letters_by_partition: Rows leave the head by their source partition, and so do the dead letters.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.dead_letters = Rows()
        self.letter_routes: list[bytes | None] = []
        self._letter_stages: list[bytes | None] = []
        self.sequence = task_inputs.RowNumbering()
        self.behind: Mapping[str, Sequence[TaskInputRunner]] = {}
        self.touched: set[bytes | None] = set()
        self.letters_by_partition = False
        self._held_keys: dict[int, Rows] = {}
        self._resumed: Held | None = None

    def send_dead_letter(self, letter: DeadLetter, origin: Origin) -> None:
        self.dead_letters.add_dead_letter(letter, origin, self.sequence.here)
        # A null key is routed by its source partition.
        route = None if self.letters_by_partition else letter.key
        self.letter_routes.append(route if self._resumed is None else self._resumed.route)
        self._letter_stages.append(dict(letter.headers)[STAGE] if self._resumed is None else None)

    def take_dead_letters(self) -> tuple[Rows, list[int], list[bytes | None], pa.RecordBatch]:
        """Returns the dead letters so far, their order, the keys that route them, and rows for their routing digest; forgets them.

        The digest is of their offsets and stages. Letters of records that were held back have no stage: whether an answer comes
        may differ from attempt to attempt, but not the task.
        """
        rows, routes, stages = self.dead_letters, self.letter_routes, self._letter_stages
        self.dead_letters, self.letter_routes, self._letter_stages = Rows(), [], []
        order = sorted(range(len(routes)), key=lambda row: (rows.offsets[row], rows.seqs[row]))
        rows.seqs = list(range(len(routes)))
        digested = {"offset": rows.offsets, "seq": [0] * len(routes), "key": pa.array(stages, pa.binary())}
        return rows, order, routes, pa.RecordBatch.from_pydict(digested)

    def hold(self, node: str, record: Record) -> Held:
        """Reserve the place of the current record, and note the tasks that it can reach."""
        assert self.cursor is not None, "head operators run only while a record is in process"
        source, row = self.cursor
        keys = [self._key_behind(runner, record) for runner in self.behind[node]] or [source.keys[row]]
        self.touched.update(keys)
        place = self.sequence.take()
        return Held(self.cursor, place if isinstance(place, tuple) else (place,), keys[0])

    def _key_behind(self, runner: TaskInputRunner, record: Record) -> bytes | None:
        """The key that will route a record's results at an entry."""
        assert self.cursor is not None, "see hold"
        source, row = self.cursor
        if runner.entry.by_partition:
            return None
        key = runner.key_of(record, source.topic)
        if runner.entry.keyed_by:
            self._held_keys.setdefault(runner.entry.index, Rows()).add_key(source.offsets[row], key)
        return key

    def take_held_keys(self) -> dict[int, Rows]:
        """Entry -> the keys of held-back records, where head operators made them; forgets them."""
        keys, self._held_keys = self._held_keys, {}
        return keys

    @contextmanager
    def resume(self, held: Held) -> Iterator[None]:
        """Within the context, the held-back record is the current one."""
        sequence = self.sequence
        before = self.cursor, self._resumed, sequence.next, sequence.end, sequence.above
        self.cursor, self._resumed = held.cursor, held
        sequence.go_on(held.place)
        try:
            yield
        finally:
            self.cursor, self._resumed, sequence.next, sequence.end, sequence.above = before


def number_anew(gathered: Sequence[Rows]) -> None:
    """Renumber the rows of a piece in the order of their places: by branch and depth first, as if no record had been held back.

    Raises:
        RecordError: A record became more rows than can be numbered.
    """
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    group, number = (-1, -1), 0
    for offset, place in sorted(_places(gathered)):
        branch = place[0] >> BRANCH_BITS
        if (offset, branch) != group:
            group, number = (offset, branch), branch << BRANCH_BITS
        if number >> BRANCH_BITS != branch:
            raise task_inputs.too_many()
        numbers[offset, place] = number
        number += 1
    for rows in gathered:
        rows.seqs = [numbers[place] for place in _places([rows])]


def _places(gathered: Iterable[Rows]) -> Iterator[tuple[int, tuple[int, ...]]]:
    for rows in gathered:
        for offset, seq in zip(rows.offsets, rows.seqs, strict=True):
            yield offset, _as_tuple(seq)


def _as_tuple(seq: Place) -> tuple[int, ...]:
    return seq if isinstance(seq, tuple) else (seq,)


# --- The head: a reader's processing of a topic-partition's records before they are shuffled to the tasks.
#
# Stateless operators run here, record by record, and their results leave as object entries. Raw entries never become
# Python objects: their bytes are split by task and sent. Columns entries have only the fields that an aggregate declared.
#
# Invariants: rows of a batch are in (offset, seq) order; the same records always give the same rows, whatever the sizes
# of the pieces they come in; no clock is read (`NOW` represents the step's, `ReaderPipeline.now_ms` is logged).


class ReaderPipeline:
    """The head of one sub-topology in one reader, for one piece of records after the other.

    Args:
        tasks: Number of tasks to route to.
        settings: Policies.

    Attributes:
        counters: Counts since the start.
        partition_times: (topic, partition) -> largest timestamp so far, for `UsePartitionTimeOnInvalidTimestamp` and
            custom extractors. Set before `run` to continue where an earlier reader ended.
        touched: Tasks that must be called even without rows: records were for them, but an operator that is not
            repeatable gave no results this time.
        now_ms: When the micro-batch was planned, as logged with its offsets: timestamps too far ahead of it are turned away.
            `UNKNOWN_NOW`: only timestamps that no clock can show are.
    """

    def __init__(self, sub: SubTopology, tasks: int, settings: TaskSettings) -> None:
        self.partition_times: dict[tuple[str, int], int] = {}
        self.touched: set[int] = set()
        self._tasks = tasks
        self._run = ReaderContext(settings, f"{sub.index}_reader", now_ms=UNKNOWN_NOW)
        self._entries = {
            (entry.from_node, entry.node): TaskInputRunner(entry, self._run, self._run.sequence)
            for entry in sub.entries
            if entry.transport == "object"
        }
        self._keyed = {entry.index for entry in sub.entries if entry.transport == "columns" and entry.keyed_by}
        self._routings = RoutingDigests()
        self._run.letters_by_partition = all(entry.entry.by_partition for entry in self._entries.values())
        self._nodes = _head_nodes(sub, self._run, self._entries)
        self._run.behind = {
            name: [entry for edge, entry in self._entries.items() if edge[0] in _at_or_below(sub, name)]
            for name in self._nodes
            if not _node(sub, name).spec.repeatable
        }
        self._sources = [
            SourceReader(sub, source, self._nodes, self._run.sequence, self._run, self.partition_times)
            for source in sub.sources
        ]

    @property
    def counters(self) -> Counters:
        for node in self._nodes.values():
            node.count()
        return self._run.counters

    def event_time(self, topic: str, partition: int) -> int | None:
        """The largest event time of the topic-partition's records so far, ms; None: none."""
        found = (source.event_times.get((topic, partition)) for source in self._sources)
        return max((time for time in found if time is not None), default=None)

    def routings(self) -> dict[int, str]:
        """Task -> digest of the keys that head operators gave the task's records, see `streams.runtime.rows`."""
        return self._routings.by_task()

    @property
    def now_ms(self) -> int:
        return self._run.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._run.now_ms = now_ms

    def run(self, columns: RecordColumns) -> Iterator[tuple[int, RowBatch]]:
        """Process a piece of a topic-partition.

        Raises:
            RecordFailedError: A record cannot be handled and its policy is `fail`.
        """
        found = self._process(columns)
        return self._timed(columns.topic, found) if self._run.settings.times_operators else found

    def _timed(self, topic: str, found: Iterator[tuple[int, RowBatch]]) -> Iterator[tuple[int, RowBatch]]:
        """Counts the CPU time for the source that reads the topic; not that of whoever takes the rows."""
        node = next((source.name for source in self._sources if topic in source.topics), topic)
        self._run.begin_laps()
        for one in found:
            self._run.lap(node)
            yield one
            self._run.begin_laps()
        self._run.lap(node)

    def _process(self, columns: RecordColumns) -> Iterator[tuple[int, RowBatch]]:
        for source in self._sources:
            if columns.topic in source.topics:
                for entry, rows, routes in source.read(columns, self._tasks):
                    for task, part in split_by_task(rows, routes):
                        if entry in self._keyed:
                            self._routings.add(task, entry, part)
                        yield task, RowBatch(columns.topic, columns.partition, entry, compact_keys(part))
        for node in self._nodes.values():
            node.context.attempt(node.processor.flush)
        yield from self._gathered(columns.topic, columns.partition)

    def close(self) -> None:
        """Close the operators, and discard the rows of a failed run."""
        for node in self._nodes.values():
            node.processor.close()
        for entry in self._entries.values():
            entry.take()
        self._run.take_dead_letters()
        self._run.touched.clear()

    def _gathered(self, topic: str, partition: int) -> Iterator[tuple[int, RowBatch]]:
        gathered = [(runner.entry, runner.take()) for runner in self._entries.values()]
        held = bool(self._run.touched)
        if held:
            self.touched.update(self._routes(self._run.touched, partition).tolist())
            self._run.touched.clear()
            number_anew([rows for _, rows in gathered])
            self._digest_held(partition)
        for entry, rows in gathered:
            if rows.offsets:
                batch = rows.to_batch()
                if held:
                    batch = batch.sort_by([("offset", "ascending"), ("seq", "ascending")])
                yield from self._routed(topic, partition, entry, batch)
        if not self._run.letter_routes:
            return
        letters, order, keys, digested = self._run.take_dead_letters()
        tasks = self._routes([keys[row] for row in order], partition)
        if any(entry.keyed_by for entry, _ in gathered):
            # A function that fails in one attempt alone gives the record to another task in the next one.
            for task, rows in split_by_task(digested.take(pa.array(order)), tasks):
                self._routings.add(task, DEAD_LETTER_ENTRY, rows.filter(rows["key"].is_valid()))
        for task, rows in split_by_task(letters.to_batch().take(pa.array(order)), tasks):
            yield task, RowBatch(topic, partition, DEAD_LETTER_ENTRY, compact_keys(rows))

    def _routed(
        self, topic: str, partition: int, entry: TaskInput, batch: pa.RecordBatch
    ) -> Iterator[tuple[int, RowBatch]]:
        if entry.by_partition:
            yield partition % self._tasks, RowBatch(topic, partition, entry.index, compact_keys(batch))
            return
        for task, rows in split_by_task(batch, tasks_of(batch.column("key"), partition, self._tasks)):
            if entry.keyed_by and entry.repeatable:
                self._routings.add(task, entry.index, rows)
            yield task, RowBatch(topic, partition, entry.index, compact_keys(rows))

    def _digest_held(self, partition: int) -> None:
        """Add the keys of held-back records to the digests: their results may differ between attempts, but not their routing."""
        for index, rows in self._run.take_held_keys().items():
            batch = rows.to_batch()
            for task, part in split_by_task(batch, tasks_of(batch.column("key"), partition, self._tasks)):
                self._routings.add(task, index, part)

    def _routes(self, keys: Collection[bytes | None], partition: int) -> npt.NDArray[np.int32]:
        return tasks_of(pa.array(list(keys), pa.binary()), partition, self._tasks)


def _head_nodes(
    sub: SubTopology, run: StepContext, entries: Mapping[tuple[str, str], TaskInputRunner]
) -> dict[str, NodeRunner]:
    """Build and connect the head's processors that do not work on columns."""
    nodes: dict[str, NodeRunner] = {}
    on_columns = {step.node for step in sub.columns.steps}
    punctuations = Punctuations({}, run.now_ms)
    for name, node in sub.nodes.items():
        if name in sub.head and name not in on_columns and isinstance(node, ProcessorNode):
            nodes[name] = NodeRunner.of(name, node.processor(), NodeContext(name, (), run, punctuations), run)
    for name, runner in nodes.items():
        children: dict[str, Receiver] = {
            child: nodes[child] if child in nodes else entries[(name, child)] for child in sub.children(name)
        }
        runner.context.connect(children, on_drop=sub.takers_of_dropped(name))
        runner.processor.init(runner.context)
    return nodes


def _node(sub: SubTopology, name: str) -> ProcessorNode:
    node = sub.nodes[name]
    assert isinstance(node, ProcessorNode), "the head is made of processors"
    return node


def _at_or_below(sub: SubTopology, name: str) -> set[str]:
    """A node of the head and all nodes below it there."""
    return {name}.union(*(_at_or_below(sub, child) for child in sub.children(name) if child in sub.head))
