"""The shared context of all nodes of one run: the clocks, the current record, the state, the counters.

Invariants: state passed by the caller is copied, so a failed run leaves no trace; the wall clock is the step's.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from state.exact_json import write
from state.headers import decode_headers
from streams.engine.graph.following import Followed
from streams.engine.graph.handlers import NOWHERE, CountedBy, DeadLetter, ErrorHandlers, Origin, fitted, nobody
from streams.engine.graph.outputs import Collector, Outputs, OutputTopics, UnlimitedTopics
from streams.engine.graph.settings import CPU_NS, Counters, TaskSettings
from streams.errors import OperatorStateError
from streams.model.record import NO_TIME, Headers, HeldRecord, Record, RecordMetadata


class ChangedInPlace(Exception):
    """Demands to run the step again with private rows: a function that failed, or deletes, may have changed a shared value."""


@dataclass(slots=True)
class SourceRows:
    """Rows of one source partition as Python lists, for one pass over them.

    Attributes:
        timestamps: Event times, milliseconds.
        keys: Key bytes: the source's for raw rows, otherwise the re-keyed record's.
        values: Value bytes: the source's for raw rows, otherwise pickled.
        headers: Encoded header cells, or None if no row has any.
        source_keys: Original key bytes if they were sent along. Raw rows also have them if their producer writes keys unlike
            their serde.
        source_values: Original value bytes if they were sent along.
        raw: Whether keys and values are the source's.
        routes: In a reader, the canonical key bytes if they differ from `keys`.
    """

    topic: str
    partition: int
    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[bytes | None] | None
    source_keys: list[bytes | None] | None = None
    source_values: list[bytes | None] | None = None
    raw: bool = True
    routes: Sequence[bytes | None] | None = None

    def route(self, row: int) -> bytes | None:
        """The canonical bytes of the key, which decide the record's task."""
        return (self.keys if self.routes is None else self.routes)[row]

    def headers_of(self, row: int) -> Headers:
        if self.headers is None:
            return ()
        return tuple(decode_headers(self.headers[row]))

    def origin(self, row: int) -> Origin:
        """The source record of one row, with the bytes that are known."""
        keys, values = (self.keys, self.values) if self.raw else (None, self.source_values)
        keys = keys if self.source_keys is None else self.source_keys
        return Origin(
            self.topic,
            self.partition,
            int(self.offsets[row]),
            int(self.timestamps[row]),
            keys[row] if keys is not None else None,
            values[row] if values is not None else None,
            self.headers_of(row),
        )


def _copied(state: Any) -> Any:
    """A deep copy of state, which is mostly JSON. `deepcopy` would call ten functions for each dictionary."""
    if type(state) is dict:
        return {name: one if type(one) in _NUMBERS_AND_TEXTS else _copied(one) for name, one in state.items()}
    if type(state) is list:
        return [one if type(one) in _NUMBERS_AND_TEXTS else _copied(one) for one in state]
    return copy.deepcopy(state)


_NUMBERS_AND_TEXTS = frozenset({int, float, str, bool, type(None)})


class _LetterRecord(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


@dataclass(slots=True)
class StepContext:
    """One pass of a reader or a task.

    Attributes:
        settings: Policies and mode.
        task_id: For messages.
        now_ms: The step's wall clock.
        private_rows: If a store has a cache, each reader gets its own copy of a value. A step begins without this, because it costs
            one conversion for each call of a function, and runs again with it when a function has failed (`ChangedInPlace`).
        stores: Typed stores by name.
        operator_state: Small state of nodes (`nodes`), shared state (`shared`) and state of the task (`task`).
        stream_time: Largest timestamp read so far.
        counters: Counts of this run.
        collector: The records to send.
        store_times: Windowed store -> the stream time that decides which of its rows are kept.
        cursor: Rows and index of the current record; None while flushing.
        flushing: Whether the step is ending.
        held: The held-back record whose results are being processed.
        position: The position of the current record in the step (`ColumnarBatch.order`).
        numbered: Whether an operator makes results that come from no record of the step. `position` is then its next result's.
        times: Stream time at each record of the step, while these are processed.
        shift: A position is the number of a record of the step, shifted left by this many bits.
        topics: Looks up the output topics in Kafka.
        handlers: Applies the policies.
        outputs: The output topics.
        lap_ns: The thread's CPU time at the last `lap`; None: operators are not timed.
        followed: Takes samples of a key's records; None: no key is followed.
        partly_done: Whether an operator that fails has already written to its state, or forwarded, for the current record.
    """

    settings: TaskSettings
    task_id: str
    now_ms: int
    private_rows: bool = False
    stores: Mapping[str, Any] = field(default_factory=dict)
    operator_state: dict[str, Any] = field(default_factory=dict)
    stream_time: int = NO_TIME
    counters: Counters = field(default_factory=Counters)
    collector: Collector = field(default_factory=Collector)
    store_times: dict[str, int] = field(default_factory=dict)
    cursor: tuple[SourceRows, int] | None = None
    flushing: bool = False
    held: HeldRecord | None = None
    position: int = 0
    numbered: bool = False
    times: list[int] | None = None
    shift: int = 0
    topics: OutputTopics = field(default_factory=UnlimitedTopics)
    handlers: ErrorHandlers = field(init=False)
    outputs: Outputs = field(init=False)
    lap_ns: int | None = None
    followed: Followed | None = None
    counted_by: CountedBy = nobody
    retry_topics: Collection[str] = ()
    partly_done: bool = False
    _letters: list[tuple[int, _LetterRecord]] | None = None
    _changed_in_place: ChangedInPlace | None = None

    def __post_init__(self) -> None:
        self.operator_state = _copied(self.operator_state)
        self.handlers = ErrorHandlers(
            self.settings, self.counters, self.task_id, self.send_dead_letter, self.counted_by, self.retry_topics
        )
        self.outputs = Outputs(self.topics, self.settings)
        if self.settings.follow:
            self.followed = Followed(self)

    def begin_laps(self) -> None:
        if self.settings.times_operators:
            self.lap_ns = time.thread_time_ns()

    def lap(self, node: str) -> None:
        """Adds the CPU time since the last lap to that of a node."""
        if self.lap_ns is not None:
            before, self.lap_ns = self.lap_ns, time.thread_time_ns()
            self.counters.add(f"{CPU_NS}{node}", self.lap_ns - before)

    def origin(self) -> Origin:
        """The current source record. It is empty while flushing, and has no source for a held-back record."""
        if self.held is not None:
            key, value, timestamp, headers, window = self.held
            return Origin(None, -1, -1, timestamp, key, value, headers, window)
        return NOWHERE if self.cursor is None else self.cursor[0].origin(self.cursor[1])

    def function_failed(self) -> None:
        """Called when a function fails and its arguments may be values of a cache.

        Raises:
            ChangedInPlace: The step would continue with a value that may be only partly changed.
        """
        if self.settings.processing != "fail":
            self.run_with_private_rows()

    def run_with_private_rows(self) -> None:
        """Demands that the step runs again with private rows, unless it already does.

        Raises:
            ChangedInPlace: It does not yet.
        """
        if not self.private_rows:
            self._changed_in_place = ChangedInPlace()
            raise self._changed_in_place

    def check_values(self) -> None:
        """Raises the error of `function_failed` again, in case the user's code further up has caught it."""
        if self._changed_in_place is not None:
            raise self._changed_in_place

    def metadata(self) -> RecordMetadata | None:
        """The source position of the current record."""
        if self.cursor is None:
            return None
        rows, row = self.cursor
        return RecordMetadata(rows.topic, rows.partition, int(rows.offsets[row]))

    def hold(self, node: str, record: Record) -> Any:
        """Returns the current record's place in its source, for `resume`."""
        return self.cursor

    @contextmanager
    def resume(self, held: Any) -> Iterator[None]:
        """Makes the record at a place that `hold` returned the current one within the context."""
        before, self.cursor = self.cursor, held
        try:
            yield
        finally:
            self.cursor = before

    def state(self, kind: str, name: str) -> dict[str, Any]:
        """The state dictionary of one node or shared name; created on first access."""
        found: dict[str, Any] = self.operator_state.setdefault(kind, {}).setdefault(name, {})
        return found

    def send_dead_letter(self, letter: DeadLetter, origin: Origin) -> None:
        """Sends a dead letter in the step's own transaction, cut to the size that the topic accepts."""
        topic = self.settings.dead_letter_topic
        assert topic is not None, "no policy is 'dlq' without a topic (TaskSettings)"
        target = self.outputs.target(topic)
        key, value, headers = fitted(letter, target.kafka_bytes)
        record = _LetterRecord(topic, key, value, target.nearest_time(self.now_ms), headers)
        if self._letters is None:
            self.collector.add(*record)
        else:
            self._letters.append((self.position, record))

    @contextmanager
    def dead_letters_in_order(self) -> Iterator[None]:
        """Holds dead letters back within the context, then sends them in the order of the records that they come from."""
        self._letters = []
        yield
        letters, self._letters = self._letters, None
        for _, record in sorted(letters, key=lambda letter: letter[0]):
            self.collector.add(*record)


# --- The limit on operators' `ctx.state`. All state of a task is in its commit marker, which is one record.
#
# A marker that is too large cannot be committed, and Kafka's error would name a topic that the user does not know. The sizes are
# therefore checked here, where the operators are known.

_SHARE = 0.9
"""Share of the marker available to state; the rest is for offsets, ranges and the like."""


def check_operator_state(operator_state: Mapping[str, Mapping[str, Any]], task_id: str, limit: int) -> None:
    """Refuses state that cannot be committed."""
    try:
        size = len(write(operator_state))
    except TypeError as error:
        name = next((name for _, name, size in _sizes(operator_state) if size < 0), "?")
        raise OperatorStateError(
            f"the operator {name!r} of task {task_id} keeps something in ctx.state that is not JSON ({error}): only texts, "
            f"numbers, lists and dicts with text keys can be kept there"
        ) from error
    if size > limit * _SHARE:
        kind, name, largest = max(_sizes(operator_state), key=lambda found: found[2])
        who = f"operator {name!r}" if kind == "nodes" else f"operators that share {name!r}"
        raise OperatorStateError(
            f"the {who} of task {task_id} keep {largest} bytes in ctx.state, and all operators {size}; the commit marker, which "
            f"holds them, takes {int(limit * _SHARE)}: keep what grows in a store (process(..., stores=[...])). Nothing of this "
            f"step was written"
        )


def _sizes(operator_state: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """For each state: kind, name, and size as JSON; -1 if it is not JSON."""
    found = []
    for kind, states in operator_state.items():
        for name, state in states.items():
            try:
                found.append((kind, name, len(write(state))))
            except TypeError:
                found.append((kind, name, -1))
    return found
