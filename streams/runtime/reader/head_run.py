"""One pass of a reader, in which operators may hold records back for a while, as `enrich` does to call for many at once.

The results of a held-back record come later than those of its successors, but leave in their original place, so the order of
rows does not depend on how records were gathered: the record's place is reserved when it is held back, its results are
numbered below that place, and at the end of the piece all rows are sorted and renumbered.

Invariant: an operator's results for a record may differ from attempt to attempt, but the set of tasks concerned may not. A
task that has committed an attempt must be called again in the next one to see that; otherwise its next step would find a
commit that it cannot explain. So every task that a record could reach is `touched`, and a dead letter goes where the
result would have gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from streams.model.error_headers import STAGE
from streams.model.record import Record
from streams.runtime.dead_letters import DeadLetter
from streams.runtime.handlers import Origin
from streams.runtime.reader import task_inputs
from streams.runtime.reader.task_inputs import BRANCH_BITS, Place, Rows, TaskInputRunner
from streams.runtime.step_context import SourceRows, StepContext


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
        """Returns the dead letters so far, their order, the keys that route them, and rows for their routing digest; starts anew.

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
        """Entry -> the keys of held-back records, where head operators made them; starts anew."""
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
