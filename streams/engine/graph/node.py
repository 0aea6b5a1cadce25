"""A node of a task or reader: its schedules, the current record, the batches that wait for it, its context and its runner.

The due times of scheduled calls (`Punctuator`) are in the task's state, so restarts change nothing.

Rules (Kafka Streams' `PunctuationSchedule`): stream time is first due at 0, so the first record fires; the wall clock is first
due at start + interval. One call is made however many intervals have passed, with the current time, and the next is due at the
next multiple after it. Example, every 10 ms of stream time: records at 3, 8 and 35 call with 3 (due at 0, next 10) and with 35 (due
at 10, next 40), and not with 10, 20 or 30.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, repeat
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from state.headers import encode_headers
from streams.engine.graph.event_time import checked
from streams.engine.graph.handlers import error_headers
from streams.engine.graph.settings import LOOKED_UP, ONE_BY_ONE, UNMATCHED
from streams.engine.graph.step_context import ChangedInPlace, StepContext
from streams.errors import RecordError, RecordFailedError, RegistryError, StreamsError, TopologyError
from streams.model.ownership import snapshot
from streams.model.record import Headers, HeldRecord, Record, RecordMetadata
from streams.model.windows import Duration, to_ms
from streams.operators.aggregate.column_rows import FieldValues
from streams.operators.columnar import (
    ColumnarBatch,
    KeyColumn,
    OneByOne,
    fresh_values,
    in_order,
    in_step_order,
    of_group,
)
from streams.operators.operator import Mode, Operator, dropped_record
from streams.operators.processor import AnyProcessor, KafkaNames, PunctuationType, punctuation_type
from streams.users_code import is_of_state

_NEVER: Final = 2**63 - 1


@dataclass(slots=True)
class Punctuation:
    """One schedule: the handle that `schedule` returns."""

    node: str
    interval_ms: int
    kind: PunctuationType
    callback: Callable[[int], object]
    state: dict[str, Any]

    def cancel(self) -> None:
        """Cancels the schedule for good, also across restarts."""
        self.state["cancelled"] = True

    @property
    def cancelled(self) -> bool:
        return bool(self.state.get("cancelled"))

    def advance(self, time: int) -> None:
        """The call was due at `time`: moves the due time to the next multiple of the interval after it."""
        due = self.state["next"]
        self.state["next"] = due + ((time - due) // self.interval_ms + 1) * self.interval_ms


class Punctuations:
    """All schedules of a task.

    Args:
        state: JSON-able dictionary that survives restarts.
        now_ms: The step's wall clock.
    """

    def __init__(self, state: dict[str, Any], now_ms: int) -> None:
        self._state = state
        self._now_ms = now_ms
        self._of_stream_time: list[Punctuation] = []
        self._of_wall_clock: list[Punctuation] = []
        self._counts: dict[str, int] = {}
        self._closed = False

    def close(self) -> None:
        """Refuses schedules from now on, because all processors have been initialised."""
        self._closed = True

    def schedule(
        self, node: str, interval: Duration, kind: PunctuationType | str, callback: Callable[[int], object]
    ) -> Punctuation:
        """Adds a schedule. The n-th schedule of a node takes over the due time of its n-th schedule in the step before."""
        if self._closed:
            raise TopologyError(
                f"node {node!r} schedules outside of init: a new processor is made for every step, so it would be forgotten; "
                f"schedule in init, and keep in ctx.state whether there is something to do"
            )
        interval_ms = to_ms(interval, f"The interval of schedule in '{node}'")
        if interval_ms < 1:
            raise TopologyError(f"'{node}' schedules every {interval_ms} ms: the interval must be at least 1 ms.")
        kind = punctuation_type(kind)
        _check_callback(node, callback)
        number = self._counts[node] = self._counts.get(node, -1) + 1
        by_clock = kind == PunctuationType.WALL_CLOCK_TIME
        first = self._now_ms + interval_ms if by_clock else 0
        state = self._state.setdefault(f"{node}/{number}", {"next": first})
        if by_clock:
            # The clock of the step before may have been ahead. Kafka Streams forgets wall-clock schedules at a restart.
            state["next"] = min(state["next"], first)
        made = Punctuation(node, interval_ms, kind, callback, state)
        self._of(kind).append(made)
        return made

    def due(self, kind: PunctuationType, time: int) -> list[Punctuation]:
        """Returns the schedules that are due at `time`, and moves their due times."""
        found = [one for one in self._of(kind) if time >= one.state["next"] and not one.cancelled]
        for one in found:
            one.advance(time)
        return found

    def _of(self, kind: PunctuationType) -> list[Punctuation]:
        return self._of_stream_time if kind == PunctuationType.STREAM_TIME else self._of_wall_clock

    @property
    def of_stream_time(self) -> list[Punctuation]:
        """The schedules by stream time, in the order in which they are called."""
        return self._of_stream_time


class StreamTimePunctuations:
    """The stream-time calls that become due during a step, each made after the source record that brought stream time far enough.

    Args:
        punctuations: All schedules by stream time.
        boundaries: int64[m], for each source record the number of the last record made from it.
        times: int64[m], stream time after each source record.
        call: Makes a call, given the punctuation, the time, and the position in the step.
        shift: How many low bits of a position number the calls after a record; the record itself has 0 there.
    """

    def __init__(
        self,
        punctuations: Sequence[Punctuation],
        boundaries: npt.NDArray[np.int64],
        times: npt.NDArray[np.int64],
        call: Callable[[Punctuation, int, int], None],
        shift: int,
    ) -> None:
        self._punctuations = punctuations
        self.boundaries = boundaries
        self.times = times
        self.call = call
        self.shift = shift

    def of(self, nodes: Collection[str]) -> DuePunctuations | None:
        """The calls of these nodes; None if they have no schedule."""
        mine = [(number, one) for number, one in enumerate(self._punctuations) if one.node in nodes]
        return DuePunctuations(self, mine) if mine else None


class DuePunctuations:
    """The calls of some nodes, made in order between their records."""

    def __init__(self, all_: StreamTimePunctuations, mine: Sequence[tuple[int, Punctuation]]) -> None:
        self._all = all_
        self._mine = mine
        self._next = self._find_next()

    def before(self, position: int) -> None:
        """Makes the calls that are due before the record at a position."""
        while self._next < position >> self._all.shift:
            self._call(self._next)

    def parts(self, batch: ColumnarBatch) -> Iterator[ColumnarBatch]:
        """Yields the records between two calls as batches. Each call is made after the records before it were processed."""
        numbers, start = batch.order >> self._all.shift, 0
        while self._next < _NEVER:
            end = int(np.searchsorted(numbers, self._next, "right"))
            if end > start:
                yield batch.take(np.arange(start, end))
            start = max(start, end)
            self._call(self._next)
        if start < len(batch):
            yield batch.take(np.arange(start, len(batch)))

    def rest(self) -> None:
        """Makes all remaining calls."""
        while self._next < _NEVER:
            self._call(self._next)

    def _find_next(self) -> int:
        """The number of the record after which the next call is due."""
        return min((self._boundary(one) for _, one in self._mine), default=_NEVER)

    def _boundary(self, one: Punctuation) -> int:
        if one.cancelled:
            return _NEVER
        at = int(np.searchsorted(self._all.times, one.state["next"]))
        return int(self._all.boundaries[at]) if at < len(self._all.times) else _NEVER

    def _call(self, boundary: int) -> None:
        time = int(self._all.times[np.searchsorted(self._all.boundaries, boundary)])
        due = [(number, one) for number, one in self._mine if self._boundary(one) == boundary]
        for _, one in due:
            one.advance(time)
        for number, one in due:
            self._all.call(one, time, (boundary << self._all.shift) | (number + 1))
        self._next = self._find_next()


def _check_callback(node: str, callback: object) -> None:
    if not callable(callback):
        raise TopologyError(f"'{node}' schedules {callback!r}, which cannot be called: give a function of the time.")
    try:
        inspect.signature(callback).bind(0)
    except TypeError:
        name = getattr(callback, "__name__", repr(callback))
        raise TopologyError(f"'{node}' schedules {name}, which must take one argument: the time, in ms.") from None
    except ValueError:
        pass  # a builtin without a signature


# --- The current record while a batch is processed record by record, and the policy for records that fail.
#
# Invariant: errors of stores, of Kafka and the like are not caused by a record, and are never skipped.


@contextmanager
def at_record(batch: ColumnarBatch, row: int, run: StepContext) -> Iterator[None]:
    """Makes a record of a batch the current one within the context."""
    held, position = run.held, run.position
    run.held, run.position = batch.held.get(row, held), int(batch.order[row])
    try:
        with run.resume(batch.place(run.position)):
            yield
    finally:
        run.held, run.position = held, position


def each_record(batch: ColumnarBatch, run: StepContext) -> Iterator[Record]:
    """Yields the records of a batch. While the caller has a record, it is the current one."""
    return (record for _, record in records_in_order([batch], run))


def records_in_order(batches: Sequence[ColumnarBatch], run: StepContext) -> Iterator[tuple[int, Record]]:
    """Yields the records of several batches of a pass in the order of their positions. The one yielded is the current record.

    Each comes with the index of its batch. While an operator makes results that come from no record of the step
    (`StepContext.numbered`), the position is that of its next result.
    """
    before = run.held, run.position, run.cursor
    held, times, shift, numbered = run.held, run.times, run.shift, run.numbered
    try:
        for which, row, position, record in _in_order(batches):
            batch = batches[which]
            run.held = batch.held.get(row, held) if batch.held else held
            run.cursor = batch.place(position)
            if not numbered:
                run.position = position
            if times is not None:
                run.stream_time = times[position >> shift]
            yield which, record
    finally:
        run.held, run.cursor = before[0], before[2]
        if not numbered:
            run.position = before[1]


def _in_order(batches: Sequence[ColumnarBatch]) -> Iterator[tuple[int, int, int, Record]]:
    """Yields the index of the batch, the row in it, the position and the record."""
    if len(batches) == 1:
        (batch,) = batches
        return zip(repeat(0), count(), batch.order.tolist(), batch.records(), strict=False)
    records, orders = [batch.records() for batch in batches], [batch.order.tolist() for batch in batches]
    return ((which, row, orders[which][row], next(records[which])) for which, row in in_order(batches))


def may_be_the_records_fault(error: Exception) -> bool:
    """Whether a policy for records applies to an error raised while records were processed."""
    not_the_records_fault = isinstance(error, StreamsError) and not isinstance(error, RecordError)
    nobodys = isinstance(error, RecordFailedError | MemoryError | ChangedInPlace) or is_of_state(error)
    return not (not_the_records_fault or nobodys)


def guard(error: Exception, node: str, run: StepContext) -> None:
    """Apply the processing policy to an exception raised in a node."""
    partly_done, run.partly_done = run.partly_done, False
    if not may_be_the_records_fault(error):
        raise error
    run.handlers.handle("processing", node, run.origin(), error, partly_done)


# --- Batches on their way to a node. They wait in an `Inbox`; `ForwardedRecords` turns single forwarded records into batches.

EMPTY = ColumnarBatch(KeyColumn.of([]), [], np.empty(0, np.int64), np.empty(0, np.int64))


class Inbox:
    """The batches that wait for a node until its unit runs.

    Attributes:
        read: Decodes the only batch again, because functions may have changed its values. None if the batches are results of other
            nodes.
    """

    __slots__ = ("_batches", "read")

    def __init__(self) -> None:
        self._batches: list[tuple[int, ColumnarBatch]] = []
        self.read: Callable[[], ColumnarBatch] | None = None

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def has_fields(self) -> bool:
        """Whether the values are columns of fields instead of objects."""
        return bool(self._batches) and isinstance(self._batches[0][1].values, FieldValues)

    def add(self, batch: ColumnarBatch, read: Callable[[], ColumnarBatch] | None = None, rank: int = 0) -> None:
        """Adds records. Of records at the same position, those with the lower rank come first (`Unit.ranks`)."""
        if len(batch):
            self.read = None if self._batches else read
            self._batches.append((rank, batch))

    def take(self) -> ColumnarBatch:
        """Removes and returns all records in the order of their positions; the batch may be empty."""
        batches, self._batches = self._batches, []
        if not batches:
            self.read = None
            return EMPTY
        return in_step_order([batch for _, batch in sorted(batches, key=itemgetter(0))])


class Edge(Protocol):
    """Takes results of one node to another node that works on batches."""

    def add(self, batch: ColumnarBatch) -> None: ...


class InboxEdge(NamedTuple):
    """Takes results of a task's node to an inbox."""

    inbox: Inbox
    rank: int

    def add(self, batch: ColumnarBatch) -> None:
        self.inbox.add(batch, rank=self.rank)


@dataclass(slots=True)
class ForwardedRecords:
    """Records that one node forwarded, each to all of its children or to one.

    Attributes:
        run: The step. While a record is forwarded, the record that it was made from is the current one.
    """

    run: StepContext
    keys: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    places: dict[int, Any] = field(default_factory=dict)
    held: dict[int, HeldRecord] = field(default_factory=dict)
    children: dict[int, str] = field(default_factory=dict)
    with_headers: bool = False

    def add(self, record: Record, child: str | None) -> None:
        """Appends a record for one child, or for all children if `child` is None. The caller may change its key and value later.

        Raises:
            TimestampError: The time does not fit 64 bits.
        """
        run, row = self.run, len(self.keys)
        if not -(2**63) <= record.timestamp < 2**63:
            checked(record.timestamp)
        self.timestamps.append(record.timestamp)
        if run.cursor is not None:
            self.places[run.position] = run.cursor
        if run.held is not None:
            self.held[row] = run.held
        if child is not None:
            self.children[row] = child
        self.keys.append(snapshot(record.key))
        self.values.append(snapshot(record.value))
        self.headers.append(record.headers)
        self.order.append(run.position)
        self.with_headers |= bool(record.headers)
        if run.numbered:
            run.position += 1

    def batches(
        self, order: npt.NDArray[np.int64], children: Collection[str], named_only: Collection[str]
    ) -> Iterator[tuple[str, ColumnarBatch]]:
        """Yields a batch for each child, with these positions.

        Children in `named_only` get only records forwarded to them by name.
        """
        cells = [encode_headers(one) if one else None for one in self.headers] if self.with_headers else None
        whole = ColumnarBatch(
            KeyColumn.of(self.keys),
            self.values,
            np.array(self.timestamps, np.int64),
            order,
            cells,
            self.places.get,
            self.held,
        )
        for child in children:
            rows = self._rows_for(child, child in named_only)
            yield child, whole if len(rows) == len(whole) else whole.take(np.array(rows, np.int64))

    def _rows_for(self, child: str, named_only: bool) -> Sequence[int]:
        if not self.children:
            return range(0 if named_only else len(self.keys))
        named = self.children.get
        return [row for row in range(len(self.keys)) if named(row, None if named_only else child) == child]


# --- Private values: of several nodes that get the same values, one that may change them gets a copy (`streams.model.ownership`).


def changing_nodes(processors: Mapping[str, AnyProcessor], children: Callable[[str], Iterable[str]]) -> frozenset[str]:
    """The nodes that may change the values that they get, either themselves or through nodes below that get the same objects.

    Args:
        processors: The nodes of a task or a head, in run order. Results for other nodes, such as sinks, are written at once.
        children: Returns the children of a node.
    """
    found = set[str]()
    for name, one in reversed(list(processors.items())):
        makes, leaves = (one.makes_results, one.leaves_values) if isinstance(one, Operator) else (False, False)
        if not leaves or (not makes and not found.isdisjoint(children(name))):
            found.add(name)
    return frozenset(found)


def owners(children: Sequence[str], changing: Collection[str]) -> frozenset[str]:
    """Which of the nodes that get the same values need a copy: all that may change them, except the last one if all may."""
    found = [child for child in children if child in changing]
    return frozenset(found[:-1] if len(found) == len(children) else found)


def own_batch(batch: ColumnarBatch) -> ColumnarBatch:
    """The same records with copies of their values."""
    return batch.with_values(fresh_values(batch.values))


def _own_record(record: Record) -> Record:
    return Record(snapshot(record.key), snapshot(record.value), record.timestamp, record.headers)


# --- `NodeContext`: shows an operator the step that it runs in, and takes its records to its children.


class Receiver(Protocol):
    """Takes single records: a processor node or a sink."""

    name: str

    def receive(self, record: Record) -> None: ...


class NodeContext(KafkaNames):
    """`OperatorContext` of one node in one run."""

    def __init__(self, node: str, stores: Collection[str], run: StepContext, punctuations: Punctuations) -> None:
        self.node = node
        self._stores = stores
        self.changes_in_place = False
        self.forwarded = 0
        self._run = run
        self._punctuations = punctuations
        self._receivers: Mapping[str, Callable[[Record], None]] = {}
        self._inboxes: Mapping[str, Edge] = {}
        self._on_drop: Collection[str] = ()
        self._results: Mapping[str, Callable[[Record], None]] = {}
        self._waiting: Mapping[str, Edge] = {}
        self._changing: Collection[str] = ()
        self._owning: Collection[str] = ()
        self.results_change = False
        self._collected = ForwardedRecords(run)
        self._alone: ColumnarBatch | None = None
        """The batch of the one record in `alone`; its error is raised to the caller there."""
        self.numbering: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]] | None = None
        """In a head: numbers the results of each record within the record's position."""

    def guard(self, error: Exception) -> None:
        """Applies the processing policy to an exception that the operator raised for the current record."""
        if self.changes_in_place and may_be_the_records_fault(error):
            self._run.function_failed()
        guard(error, self.node, self._run)

    def connect(
        self,
        direct: Mapping[str, Receiver],
        inboxes: Mapping[str, Edge] = MappingProxyType({}),
        on_drop: Collection[str] = (),
        changing: frozenset[str] = frozenset(),
    ) -> None:
        """Sets the children: `direct` ones get each record at once, in their order; in `inboxes`, records wait for a child's unit.

        Children in `on_drop` receive only the records that the node drops; those in `changing` may change the values that they get
        (`changing_nodes`).
        """
        self._receivers = {name: child.receive for name, child in direct.items()}
        self._inboxes = inboxes
        self._on_drop = on_drop
        self._results = {name: receive for name, receive in self._receivers.items() if name not in on_drop}
        self._waiting = {name: inbox for name, inbox in inboxes.items() if name not in on_drop}
        self._changing = changing
        self._owning = owners((*self._results, *self._waiting), changing)
        self.results_change = not changing.isdisjoint((*self._results, *self._waiting))

    @property
    def application_id(self) -> str:
        return self._run.settings.application_id

    @property
    def task_id(self) -> str:
        return self._run.task_id

    @property
    def mode(self) -> Mode:
        return self._run.settings.mode

    @property
    def emit_interval_ms(self) -> int:
        return self._run.settings.emit_interval_ms

    @property
    def stream_time(self) -> int:
        return self._run.stream_time

    @property
    def now_ms(self) -> int:
        return self._run.now_ms

    @property
    def record_metadata(self) -> RecordMetadata | None:
        return self._run.metadata()

    @property
    def topic(self) -> str | None:
        return None if self._run.cursor is None else self._run.cursor[0].topic

    @property
    def headers(self) -> Headers:
        return () if self._run.cursor is None else self._run.cursor[0].headers_of(self._run.cursor[1])

    @property
    def private_rows(self) -> bool:
        return self._run.private_rows

    def run_with_private_rows(self) -> None:
        self._run.run_with_private_rows()

    @property
    def flushing(self) -> bool:
        return self._run.flushing

    @property
    def state(self) -> dict[str, Any]:
        return self._run.state("nodes", self.node)

    def shared_state(self, name: str) -> dict[str, Any]:
        return self._run.state("shared", name)

    def store(self, name: str) -> Any:
        if name not in self._stores:
            # Even if another node of the task has the store, this node must not use it: the order of nodes depends on their stores.
            raise TopologyError(
                f"'{self.node}' asks for the store '{name}', which is not connected to it. Connect it: process(..., stores=[...]), "
                f"or connect_processor_and_state_stores(...). It has: {', '.join(sorted(self._stores)) or 'none'}."
            )
        return self._run.stores[name]

    def forward(self, record: Record, child: str | None = None) -> None:
        # An operator that forwards single records may still hold on to them.
        self._pass_on(record, child, self._changing)

    def _pass_on(self, record: Record, child: str | None, owning: Collection[str]) -> None:
        """Passes a record to all children, or to one. Children in `owning` get a copy."""
        self.forwarded += 1
        if child is not None:
            self._forward_to(child, record, owning)
            return
        for name, receive in self._results.items():
            receive(_own_record(record) if name in owning else record)
        if self._waiting:
            self._collected.add(record, None)

    def _forward_to(self, child: str, record: Record, owning: Collection[str]) -> None:
        if child in self._receivers:
            self._receivers[child](_own_record(record) if child in owning else record)
        elif child in self._inboxes:
            self._collected.add(record, child)
        else:
            children = ", ".join(name for name in (*self._receivers, *self._inboxes) if name not in self._on_drop)
            raise TopologyError(
                f"'{self.node}' forwards to '{child}', which is not a child of it. It has: {children or 'none'}."
            )

    @property
    def has_children(self) -> bool:
        return bool(self._results or self._waiting)

    def forward_batch(self, batch: ColumnarBatch, child: str | None = None) -> None:
        if not len(batch):
            return
        if self._receivers:
            owning = self._owning if child is None else ()
            for record in each_record(batch, self._run):
                self._pass_on(record, child, owning)
            return
        self.count_forwarded(len(batch))
        self.hand_on()
        order = batch.order if self.numbering is None else self.numbering(batch.order)
        if self._run.numbered:
            start = self._run.position
            self._run.position += len(batch)
            order = np.arange(start, self._run.position)
        if order is not batch.order or batch.nodes is not None:
            batch = batch.at(order)
        if child is not None:
            self._inboxes[child].add(batch)
            return
        for name, inbox in self._waiting.items():
            inbox.add(own_batch(batch) if name in self._owning else batch)

    def hand_on(self) -> None:
        """Moves the records that were forwarded one by one to the children's inboxes."""
        collected = self._collected
        if collected.keys:
            self._collected = ForwardedRecords(self._run)
            order = np.array(collected.order, np.int64)
            if self.numbering is not None:
                order = self.numbering(order)
            for child, batch in collected.batches(order, self._inboxes, self._on_drop):
                self._inboxes[child].add(own_batch(batch) if child in self._owning else batch)

    def discard(self) -> None:
        """Forgets the records that were forwarded one by one and not yet handed on."""
        self._collected = ForwardedRecords(self._run)

    def count_forwarded(self, number: int) -> None:
        self.forwarded += number

    def drop(self, record: Record, reason: str) -> None:
        self._run.counters.add(f"dropped:{self.node}:{reason}")
        if self._run.followed is not None:
            self._run.followed.drops(self.node, reason, record)
        if self._on_drop:
            self.divert(dropped_record(record, reason, self.node))

    def drop_many(self, count: int, reason: str) -> None:
        """Counts dropped records that were processed as columns; nothing is sent to `on_drop` children."""
        self._run.counters.add(f"dropped:{self.node}:{reason}", count)

    def batch_of(self, record: Record) -> ColumnarBatch:
        run = self._run
        cursor = run.cursor
        return ColumnarBatch(
            KeyColumn.of([record.key]),
            [record.value],
            np.array([record.timestamp]),
            np.array([run.position]),
            [encode_headers(record.headers)] if record.headers else None,
            lambda position: cursor,
            {} if run.held is None else {0: run.held},
        )

    @contextmanager
    def alone(self, record: Record) -> Iterator[ColumnarBatch]:
        self._alone = self.batch_of(record)
        try:
            yield self._alone
        finally:
            self._alone = None

    def attempt_each(self, batch: ColumnarBatch, process: Callable[[Record], None]) -> None:
        for record in each_record(batch, self._run):
            try:
                process(record)
            except Exception as error:
                self.fails(record, error)

    def fails(self, record: Record, error: Exception) -> None:
        """Applies the processing policy to an exception that the operator raised for the current record."""
        if self._run.followed is not None:
            self._run.followed.fails(self.node, error, record)
        self.guard(error)

    def copy_of(self, value: Any) -> Any:
        return snapshot(value)

    def refuse(self, batch: ColumnarBatch, row: int, error: Exception) -> None:
        if batch is self._alone:
            raise error
        with at_record(batch, row, self._run):
            self.fails(batch.record(row), error)

    def drop_batch(self, batch: ColumnarBatch, reason: str) -> None:
        self._run.counters.add(f"dropped:{self.node}:{reason}", len(batch))
        if self._run.followed is not None:
            self._run.followed.drops_all(self.node, reason, batch)
        if self._on_drop:
            for record in each_record(batch, self._run):
                self.divert(dropped_record(record, reason, self.node))

    def fault(self, error: Exception) -> Headers:
        if not may_be_the_records_fault(error) or isinstance(error, RegistryError):
            raise error
        origin = self._run.origin()
        self._run.partly_done = False
        return error_headers("processing", origin[:3], origin.timestamp, error, self.node, origin.window)

    def partly_done(self) -> None:
        self._run.partly_done = True

    def divert(self, record: Record) -> None:
        for name in self._on_drop:
            self._forward_to(name, record, self._changing)

    def count_looked_up(self, number: int, missing: Mapping[str, int], join: str | None = None) -> None:
        name = self.node if join is None else join
        self._run.counters.add(f"{LOOKED_UP}{name}", number)
        for reason, found_nothing in missing.items():
            self._run.counters.add(f"{UNMATCHED}{name}:{reason}", found_nothing)

    def count(self, what: str, number: int) -> None:
        self._run.counters.add(f"{what}:{self.node}", number)

    def hold(self, record: Record) -> Any:
        return self._run.hold(self.node, record)

    def resume(self, held: Any) -> AbstractContextManager[None]:
        return self._run.resume(held)

    def attempt(self, action: Callable[[], object], held: HeldRecord | None = None) -> None:
        before = self._run.held
        self._run.held = held or before
        try:
            action()
        except Exception as error:
            guard(error, self.node, self._run)
        finally:
            self._run.held = before

    def expire(self, store: str, stream_time: int) -> None:
        times = self._run.store_times
        times[store] = min(stream_time, times.get(store, stream_time))

    def schedule(
        self, interval: Duration, kind: PunctuationType | str, callback: Callable[[int], object]
    ) -> Punctuation:
        return self._punctuations.schedule(self.node, interval, kind, callback)


# --- Processor nodes at run time: the guard around each call of an operator.
#
# Invariant: an exception is attributed to the node that raised it (KIP-1033), not to the nodes that forwarded to it.


class NodeRunner:
    """One processor node in one run: an operator, its context, its counts, and the guard around its calls."""

    def __init__(self, name: str, processor: AnyProcessor, context: NodeContext, run: StepContext) -> None:
        self.name = name
        self.processor = processor
        self.context = context
        self.received = 0
        self._run = run
        self._process = processor.process
        self.process_batch: Callable[[ColumnarBatch], None]
        """Processes a batch for the operator and for the nodes of its group, which it leads."""
        self.takes_records = True
        """Whether the operator can process a single record."""
        if isinstance(processor, Operator):
            self.process_batch = processor.process_batch
            self.takes_records = type(processor).process is not Operator.process
            context.changes_in_place = processor.changes_in_place  # False for others
        else:
            self.process_batch = partial(context.attempt_each, process=processor.process)

    def receive(self, record: Record) -> None:
        """Counts and processes one record under the processing policy."""
        self.received += 1
        self.attempt(record)

    def skip(self, batch: ColumnarBatch) -> None:
        if isinstance(self.processor, Operator):
            self.processor.skip(batch)

    def attempt(self, record: Record) -> None:
        """Processes a record that was already counted as received."""
        try:
            self._process(record)
        except Exception as error:
            self.context.fails(record, error)

    @classmethod
    def of(cls, name: str, processor: AnyProcessor, context: NodeContext, run: StepContext) -> NodeRunner:
        """Makes a runner. If a key is followed, the runner samples its records."""
        kind = cls if run.followed is None else FollowedNode
        return kind(name, processor, context, run)

    def count(self) -> None:
        """Adds the records in and out since the last call to the counters."""
        self._run.counters.add(f"in:{self.name}", self.received)
        self._run.counters.add(f"out:{self.name}", self.context.forwarded)
        self.received = self.context.forwarded = 0


class FollowedNode(NodeRunner):
    """A node that samples the records of the followed key."""

    def receive(self, record: Record) -> None:
        assert self._run.followed is not None, "see NodeRunner.of"
        self._run.followed.receives(self.name, record)
        super().receive(record)


# --- Batches of a group of nodes: processed together, divided where calls are due and where a record fails.


def process_group(
    runners: Sequence[NodeRunner], inboxes: Sequence[Inbox], run: StepContext, due: DuePunctuations | None = None
) -> None:
    """Processes the batches that wait for the nodes of a group. The group's first operator processes them for all."""
    batches = [inbox.take() for inbox in inboxes]
    for runner, batch in zip(runners, batches, strict=True):
        runner.received += len(batch)
        if run.followed is not None:
            run.followed.receives_all(runner.name, batch)
    batch = of_group(batches)
    if due is not None:
        for part in due.parts(batch):
            _process_part(runners, part, run)
    elif len(batch):

        def read() -> ColumnarBatch:
            return of_group([one.read() if one.read else old for one, old in zip(inboxes, batches, strict=True)])

        _process_part(runners, batch, run, read)
    for runner in runners:
        runner.context.hand_on()


def _process_part(
    runners: Sequence[NodeRunner],
    batch: ColumnarBatch,
    run: StepContext,
    read: Callable[[], ColumnarBatch] | None = None,
) -> None:
    """Processes a batch. If it fails, tries its records one by one or its halves, so that only a failing record meets its policy.

    Args:
        runners: The nodes of the group.
        batch: The records.
        run: The step.
        read: Decodes the records again, because functions may have changed their values. None if they cannot have changed.
    """
    try:
        runners[0].process_batch(batch)
    except Exception as error:
        if not may_be_the_records_fault(error):
            raise
        if read is not None:
            reason = str(error) if isinstance(error, OneByOne) else type(error).__name__
            for number, runner in enumerate(runners):
                mine = len(batch) if batch.nodes is None else int((batch.nodes == number).sum())
                run.counters.add(f"{ONE_BY_ONE}{runner.name}:{reason}", mine)
            batch = read()
        if runners[0].takes_records:
            for row, record in enumerate(each_record(batch, run)):
                runners[batch.node(row)].attempt(record)
        elif len(batch) == 1:
            runners[0].skip(batch)
            runners[batch.node(0)].context.refuse(batch, 0, error)
        else:
            for rows in np.array_split(np.arange(len(batch)), 2):
                half = batch.take(rows)
                # Serdes write all keys of a column, so a half must not keep the other half's keys: one of them may be at fault.
                _process_part(runners, replace(half, keys=half.keys.compact()), run)
