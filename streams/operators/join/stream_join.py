"""Joins of streams: shared parameters, the outer join buffer, two streams, and a stream with itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from streams.model.expressions import JoinedFields
from streams.model.record import LEFT, MAX_TIME, NO_TIME, RIGHT, Headers, HeldRecord, Record
from streams.model.windows import JoinWindows
from streams.operators.columnar import Int64s
from streams.operators.operator import Operator, OperatorContext
from streams.operators.stores.time_ordered_buffer import NEVER, DueRecord, TimeOrderedBuffer
from streams.operators.stores.window import TypedWindowStore
from streams.operators.stream_time import SharedStreamTime, StreamTime
from streams.operators.table.value_getter import JoinKind
from streams.serdes.base import Serde

Parameters: TypeAlias = tuple[tuple[str, str | int | bool | None], ...]
"""The parameters in names and in the topology hash."""


def joined_fields(joiner: Callable[..., Any]) -> JoinedFields | None:
    """What a joiner selects, if it is made of `fields(...)`."""
    wrapped = getattr(joiner, "__wrapped__", None)
    return wrapped if isinstance(wrapped, JoinedFields) else None


@dataclass(frozen=True, slots=True)
class StreamJoin:
    """A join of two streams in time.

    Attributes:
        join_kind: Which side may be missing.
        windows: A right record at r joins a left one at l if l - before <= r <= l + after.
        joiner: `(key, left value, right value) -> value`.
        key_serde: Serde of the keys on both sides.
    """

    join_kind: JoinKind
    windows: JoinWindows
    joiner: Callable[[Any, Any, Any], Any]
    key_serde: Serde

    @property
    def parameters(self) -> Parameters:
        """The windows, and the kind of join unless it is inner."""
        return (
            ("before_ms", self.windows.before_ms),
            ("after_ms", self.windows.after_ms),
            ("grace_ms", self.windows.grace_ms),
            *((("kind", self.join_kind),) if self.join_kind != "inner" else ()),
        )

    @property
    def keeps_values(self) -> bool:
        """Whether the joiner is known to leave its arguments as they are: an expression does."""
        return self.fields is not None

    @property
    def fields(self) -> JoinedFields | None:
        """What the joiner selects, if it is `fields(...)`."""
        return joined_fields(self.joiner)

    def is_outer(self, side: int) -> bool:
        """Whether records of a side give a result without a partner, too."""
        return self.join_kind == "outer" or (self.join_kind == "left" and side == LEFT)

    def reach(self, side: int) -> tuple[int, int]:
        """How far before and after a record of a side its partners may be, ms."""
        before, after = self.windows.before_ms, self.windows.after_ms
        return (before, after) if side == LEFT else (after, before)

    def joined(self, side: int, key: Any, value: Any, other: Any) -> Any:
        """The result for a value of a side and one of the other side; None: no result."""
        return self.joiner(key, value, other) if side == LEFT else self.joiner(key, other, value)


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One of the two streams of a join, from the point of view of its operator.

    Attributes:
        side: `LEFT` or `RIGHT`.
        store: Window store of this side's records, with duplicates.
        other_store: Window store of the other side's records.
        state_name: Name of the state that both sides share.
    """

    side: int
    store: str
    other_store: str
    state_name: str

    @property
    def other(self) -> int:
        return RIGHT if self.side == LEFT else LEFT


@dataclass(frozen=True, slots=True)
class JoinAll:
    """A join of several streams in time.

    Attributes:
        streams: Names of all the streams, in the order of the results.
        windows: The maximum time between records.
        joiner: `(key, {name of the stream: value}) -> value`.
    """

    streams: tuple[str, ...]
    windows: JoinWindows
    joiner: Callable[[Any, dict[str, Any]], Any]

    @property
    def parameters(self) -> Parameters:
        return (("difference_ms", self.windows.after_ms), ("grace_ms", self.windows.grace_ms))


@dataclass(frozen=True, slots=True)
class AsOf:
    """A join of each left record with the newest right one that is not newer than itself.

    Attributes:
        within_ms: How much older the right record may be.
        grace_ms: How late a record may be.
        is_left_join: Whether a left record without a match is joined with None.
        joiner: `(key, left value, right value) -> value`.
        key_serde: Serde of the keys on both sides.
    """

    within_ms: int
    grace_ms: int
    is_left_join: bool
    joiner: Callable[[Any, Any, Any], Any]
    key_serde: Serde

    @property
    def parameters(self) -> Parameters:
        """The times, and the kind of join."""
        return (("within_ms", self.within_ms), ("grace_ms", self.grace_ms), ("left", self.is_left_join))


# --- The buffer of left or outer stream-join records without a partner; one class per mode.
#
# `StrictOuterJoinBuffer`: a record waits until it ceases to be open, then gives its one result.
# `CompatOuterJoinBuffer`: Kafka Streams' behaviour (KIP-633), including its flaws: records that arrive too late to wait give
# their result at once and may still be joined later; a scan depends on a `min` that may skip rows, and on the wall clock.

Emit = Callable[[int, Any, Any, int, Headers], None]
"""`(side, key, value, timestamp, headers)`: forwards the result of a record without a partner."""

Attempt = Callable[[Callable[[], None], "HeldRecord | None"], None]


class OuterJoinBuffer(ABC):
    """The records of both sides that have no partner yet.

    Args:
        rows: The waiting records.
        waits: Per side, how long its records wait after their own timestamps, ms.
        emit: Forwards a result.
    """

    def __init__(self, rows: TimeOrderedBuffer, waits: tuple[int, int], emit: Emit) -> None:
        self.rows = rows
        self.waits = waits
        self._emit = emit

    @property
    @abstractmethod
    def delays(self) -> tuple[int, int]:
        """Per side, how much later than its timestamp the time of a record in the store is, ms."""

    @abstractmethod
    def expire(self, stream_time: int, side: int, record: Record) -> None:
        """Emits the results of records that no longer wait, before the current record of `side` gives any result."""

    @property
    @abstractmethod
    def oldest(self) -> int:
        """A lower bound of the waiting records' timestamps, ms."""

    @abstractmethod
    def add(self, stream_time: int, side: int, record: Record) -> None:
        """Adds a record without a partner."""

    @abstractmethod
    def joined(self, side: int, key: Any, timestamp: int) -> None:
        """Removes the records of a side with this key and timestamp, which now have a partner."""


class StrictOuterJoinBuffer(OuterJoinBuffer):
    """Records by the time at which they cease to be open; those below stream time are due.

    Args:
        rows: The waiting records.
        waits: Per side, how long its records wait after their own timestamps, ms.
        emit: Forwards a result.
        attempt: `OperatorContext.attempt`, so that a record whose joiner fails affects neither the others nor the record
            that made it due.
    """

    def __init__(self, rows: TimeOrderedBuffer, waits: tuple[int, int], emit: Emit, attempt: Attempt) -> None:
        super().__init__(rows, waits, emit)
        self._attempt = attempt

    @property
    def delays(self) -> tuple[int, int]:
        return self.waits

    def expire(self, stream_time: int, side: int, record: Record) -> None:
        for due in self.rows.take(stream_time):
            place = due.place
            time = place.time - self.waits[place.side]
            emit = partial(self._emit, place.side, due.key, due.value, time, due.headers)
            self._attempt(emit, due.held(time))

    @property
    def oldest(self) -> int:
        return self.rows.first_time - max(self.waits)

    def add(self, stream_time: int, side: int, record: Record) -> None:
        self.rows.add(record.timestamp + self.waits[side], side, record.key, record.value, record.headers)

    def joined(self, side: int, key: Any, timestamp: int) -> None:
        self.rows.remove_all(timestamp + self.waits[side], side, key)


class CompatOuterJoinBuffer(OuterJoinBuffer):
    """The behaviour of Kafka Streams 4.3 (`KStreamKStreamJoin.emitNonJoinedOuterRecords`).

    Args:
        rows: The waiting records, by their timestamps.
        waits: Per side, its `after` (for a right record `before`) plus grace; may be negative.
        emit: Forwards a result.
        grace_ms: The grace included in `waits`.
        state: A dict that survives restarts.
        now_ms: The step's wall clock.
        interval_ms: The least wall-clock time between two scans.
    """

    def __init__(
        self,
        rows: TimeOrderedBuffer,
        waits: tuple[int, int],
        emit: Emit,
        grace_ms: int,
        state: dict[str, Any],
        now_ms: int,
        interval_ms: int,
    ) -> None:
        super().__init__(rows, waits, emit)
        self.grace_ms = grace_ms
        self.interval_ms = interval_ms
        self._state = state
        self._now_ms = now_ms

    @property
    def delays(self) -> tuple[int, int]:
        return 0, 0

    @property
    def may_scan(self) -> bool:
        """Whether the last scan is long enough ago."""
        may_scan: bool = self._now_ms >= self._state.get("next_emit", 0)
        return may_scan

    def scanned(self) -> None:
        self._state["next_emit"] = self._now_ms + self.interval_ms

    @property
    def least(self) -> int:
        """The least time that decides about the next scan."""
        least: int = self._state.get("min", NEVER)
        return least

    def note_least(self, least: int) -> None:
        if least != self.least:
            self._state["min"] = least

    def expire(self, stream_time: int, side: int, record: Record) -> None:
        if record.timestamp != stream_time:
            return
        if _wrapped(self.least + self.waits[side]) >= stream_time or not self.may_scan:
            return
        self.scanned()
        self._scan(stream_time, record.headers)

    def _scan(self, stream_time: int, headers: Headers) -> None:
        self._state["min"] = NEVER
        met_open: set[int] = set()
        due: list[DueRecord] = []
        for one in self.rows.all():
            place = one.place
            self._state["min"] = place.time
            if len(met_open) == 2:
                break
            if place.time + self.waits[place.side] >= stream_time:
                met_open.add(place.side)
                continue
            due.append(one)
        for one in due:
            self.rows.remove(one.place)
            self._emit(one.place.side, one.key, one.value, one.place.time, headers)

    @property
    def oldest(self) -> int:
        return self.rows.first_time

    def add(self, stream_time: int, side: int, record: Record) -> None:
        if max(0, record.timestamp + self.waits[side] - self.grace_ms) < stream_time:
            self._emit(side, record.key, record.value, record.timestamp, record.headers)
            return
        self._state["min"] = min(self.least, record.timestamp)
        self.rows.add(record.timestamp, side, record.key, record.value, record.headers)

    def joined(self, side: int, key: Any, timestamp: int) -> None:
        self.rows.remove_all(timestamp, side, key)


def waits_of(windows: JoinWindows, strict: bool) -> tuple[int, int]:
    """How long a right and a left record wait, ms: the `waits` of an `OuterJoinBuffer`, by side."""
    ahead = {RIGHT: windows.before_ms, LEFT: windows.after_ms}
    waits = {side: (max(0, ms) if strict else ms) + windows.grace_ms for side, ms in ahead.items()}
    return waits[RIGHT], waits[LEFT]


def _wrapped(number: int) -> int:
    """The number wrapped to Java's 64 bits, on which the scan condition relies."""
    return (number + 2**63) % 2**64 - 2**63


# --- Two streams joined within a time window (Kafka Streams: `KStreamKStreamJoin`); one instance per side.
#
# Strict mode: T is the largest timestamp that reached the join from either side, null keys and values included. A left
# record at l is open while l + max(0, after) + grace >= T, a right one at r while r + max(0, before) + grace >= T. A record
# that is not open on arrival is late and gives nothing; a pair in the window is emitted if both are open when the later one
# arrives; a record of an outer side without a partner gives one result when it ceases to be open. Within grace, the result
# therefore does not depend on the order of arrival. Compat mode: no record is late; a match is limited by the other store's
# retention (before + after + grace) relative to that store's own newest record, and range queries are clamped at 0, as in
# Kafka Streams; for compat mode's records without a partner see `outer_join_buffer`.

Times = TypeVar("Times", int, Int64s)


class StreamStreamJoin(Operator):
    """One side of a join.

    Args:
        join: The parameters that both sides share.
        side: This side.
        buffer: Key-value store of the records without a partner (`serdes.waiting`); None: an inner join.
    """

    def __init__(self, join: StreamJoin, side: JoinSide, buffer: str | None = None) -> None:
        self.join = join
        self.side = side
        self.buffer_name = buffer
        # From this side's point of view, a partner is in [t - back, t + ahead].
        self.back_ms, self.ahead_ms = join.reach(side.side)
        self.grace_ms = join.windows.grace_ms
        self.retention_ms = join.windows.size_ms + join.windows.grace_ms

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and the shared stream time."""
        super().init(ctx)
        self.store: TypedWindowStore = ctx.store(self.side.store)
        self.other_store: TypedWindowStore = ctx.store(self.side.other_store)
        self.state = ctx.shared_state(self.side.state_name)
        self.time = SharedStreamTime(self.state, sides=2)
        self.is_strict = ctx.mode == "strict"
        self.buffer = self._open_buffer(ctx)

    def _open_buffer(self, ctx: OperatorContext) -> OuterJoinBuffer | None:
        if self.buffer_name is None:
            return None
        rows = TimeOrderedBuffer(ctx.store(self.buffer_name), self.join.key_serde, self.buffer_name, self.state)
        waits = waits_of(self.join.windows, self.is_strict)
        if self.is_strict:
            return StrictOuterJoinBuffer(rows, waits, self._emit_alone, ctx.attempt)
        interval_ms = ctx.emit_interval_ms
        return CompatOuterJoinBuffer(rows, waits, self._emit_alone, self.grace_ms, self.state, ctx.now_ms, interval_ms)

    def process(self, record: Record) -> None:
        """Join with the other side's records, then store the record for the other side."""
        time = self.time.observe(record.timestamp)
        if self.is_strict and self.buffer is not None:
            self.buffer.expire(time, self.side.side, record)
        if record.key is None or record.value is None:
            self._without_key_or_value(record)
            return
        if self.is_strict and record.timestamp < self.oldest_open(time):
            self.ctx.drop(record, "late")
            return
        if not self.is_strict and self.buffer is not None:
            self.buffer.expire(time, self.side.side, record)
        found = self._join(record, time)
        if not found and self.buffer is not None and self.join.is_outer(self.side.side):
            self.buffer.add(time, self.side.side, record)
        self._keep(record)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance the stream time of both sides: emit the results of records that no longer wait."""
        least = self.time.common_limit(limit)
        if least is None:
            return limit
        time = self.time.advance(elapsed_ms, least)
        if self.buffer is None:
            return least
        for side in (LEFT, RIGHT):
            self.buffer.expire(time, side, Record(None, None, time))
        return min(least, self.buffer.oldest)

    def flush(self) -> None:
        """Expire rows that no record can match any more."""
        self.ctx.expire(self.side.store, self.time.now if self.is_strict else self.newest_in(self.side.store))

    def _join(self, record: Record, time: int) -> bool:
        """Emit the pairs, oldest partner first, and return whether there were any."""
        joined_at = None
        side, buffer = self.side, self.buffer if self.join.is_outer(self.side.other) else None
        for timestamp, other in self._partners(record, time):
            if buffer is not None and timestamp != joined_at:
                buffer.joined(side.other, record.key, timestamp)
            joined_at = timestamp
            joined = self.join.joined(side.side, record.key, record.value, other)
            self.ctx.forward(Record(record.key, joined, max(timestamp, record.timestamp), record.headers))
        return joined_at is not None

    def _without_key_or_value(self, record: Record) -> None:
        """On an outer side, a value without a key gives its result at once (KIP-962)."""
        if record.value is not None and self.join.is_outer(self.side.side):
            self._emit_alone(self.side.side, None, record.value, record.timestamp, record.headers)
        else:
            self.ctx.drop(record, "null_key" if record.key is None else "null_value")

    def _emit_alone(self, side: int, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.ctx.forward(Record(key, self.join.joined(side, key, value, None), timestamp, headers))

    def _partners(self, record: Record, time: int) -> Iterator[tuple[int, Any]]:
        earliest, latest = record.timestamp - self.back_ms, record.timestamp + self.ahead_ms
        if self.is_strict:
            return self.other_store.fetch_range(record.key, max(0, earliest, self.oldest_partner(time)), latest)
        oldest = self.oldest_visible(self.newest_in(self.side.other_store))
        return self.other_store.fetch_range(record.key, max(0, earliest, oldest), max(0, latest))

    # The formulas of the module's docstring, for a time or an array of times.

    def oldest_open(self, time: Times) -> Times:
        """In strict mode, the time of the oldest record of this side that is open at a stream time."""
        return time - max(0, self.ahead_ms) - self.grace_ms

    def oldest_partner(self, time: Times) -> Times:
        """In strict mode, the time of the oldest record of the other side that is open at a stream time."""
        return time - max(0, self.back_ms) - self.grace_ms

    def oldest_visible(self, newest: Times) -> Times:
        """In compat mode, the time of the oldest visible row of the other store, whose newest row has this time."""
        return newest - self.retention_ms + 1

    def _keep(self, record: Record) -> None:
        self.kept(record.timestamp)
        self.store.put(record.key, record.timestamp, record.value)

    def latest_in(self, store: str) -> int:
        """A time that no row in a store is newer than, so that later ones need not be looked for."""
        # A store without this entry was written by a program of another form.
        latest: int = self.state.get(store, MAX_TIME)
        return latest

    def kept(self, timestamp: int) -> None:
        """Note the newest time in this side's store, which compat mode uses."""
        self.state[self.side.store] = max(self.newest_in(self.side.store), timestamp)

    def newest_in(self, store: str) -> int:
        newest: int = self.state.get(store, NO_TIME)
        return newest


# --- A stream joined with itself, over one store (Kafka Streams: `KStreamKStreamSelfJoin`, KIP-862).
#
# Strict mode gives exactly the results of two nodes with a store each (`stream_stream_join`): each record is first a left one,
# then a right one, and joins itself if its own time is within the window. Compat mode gives the results of Kafka Streams 4.3
# with
# `topology.optimization=all`, including its flaws: left and outer joins become inner ones, and a record joins itself whatever
# the window, unless it is older than the store's retention.

_NEWEST = "newest"


class StreamSelfJoin(Operator):
    """Both sides of a self-join.

    Args:
        join: The parameters of the join.
        store: Window store of the records, with duplicates.
        buffer: Key-value store of the records without a partner; None: an inner join.
    """

    def __init__(self, join: StreamJoin, store: str, buffer: str | None = None) -> None:
        self.join = join
        self.store_name = store
        self.buffer_name = buffer
        self.retention_ms = join.windows.size_ms + join.windows.grace_ms

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self.store: TypedWindowStore = ctx.store(self.store_name)
        self.time = StreamTime(ctx.state)
        self.waits = waits_of(self.join.windows, strict=True)
        self.buffer: StrictOuterJoinBuffer | None = None
        if self.buffer_name is not None and ctx.mode == "strict":
            rows = TimeOrderedBuffer(ctx.store(self.buffer_name), self.join.key_serde, self.buffer_name, ctx.state)
            self.buffer = StrictOuterJoinBuffer(rows, self.waits, self._emit_alone, ctx.attempt)

    def process(self, record: Record) -> None:
        """Join the record with earlier ones and with itself, then store it."""
        if self.ctx.mode == "strict":
            self._process_strict(record, self.time.observe(record.timestamp))
        elif record.key is None or record.value is None:
            self.ctx.drop(record, "null_key" if record.key is None else "null_value")
        else:
            self._process_compat(record, self.time.observe(record.timestamp))

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time: emit the results of records that no longer wait."""
        time = self.time.advance(elapsed_ms, limit)
        if self.buffer is None:
            return limit
        self.buffer.expire(time, LEFT, Record(None, None, time))
        return min(limit, self.buffer.oldest)

    def flush(self) -> None:
        """Expire rows that no record can match any more."""
        self.ctx.expire(self.store_name, self.time.now)

    def _process_strict(self, record: Record, time: int) -> None:
        if self.buffer is not None:
            self.buffer.expire(time, LEFT, record)
        is_open = {side: record.timestamp + self.waits[side] >= time for side in (LEFT, RIGHT)}
        meets_itself = all(is_open.values()) and min(self.join.windows.before_ms, self.join.windows.after_ms) >= 0
        for side in (LEFT, RIGHT):
            if record.key is None or record.value is None:
                self._without_key_or_value(side, record)
            elif not is_open[side]:
                self.ctx.drop(record, "late")
            else:
                found = self._join_strict(side, record, time, meets_itself)
                if not found and self.buffer is not None and self.join.is_outer(side):
                    self.buffer.add(time, side, record)
        if record.key is not None and record.value is not None and any(is_open.values()):
            self.store.put(record.key, record.timestamp, record.value)

    def _join_strict(self, side: int, record: Record, time: int, meets_itself: bool) -> bool:
        """Join with earlier records of the other side and, for the right side, with itself; whether there was a match."""
        back_ms, ahead_ms = self.join.reach(side)
        other_side = RIGHT if side == LEFT else LEFT
        earliest = max(0, record.timestamp - back_ms, time - self.waits[other_side])
        found = meets_itself
        itself_due = meets_itself and side == RIGHT
        for timestamp, other in self.store.fetch_range(record.key, earliest, record.timestamp + ahead_ms):
            if itself_due and timestamp > record.timestamp:
                self._emit(record, LEFT, record.value, record.timestamp)
                itself_due = False
            found = True
            if self.buffer is not None and self.join.is_outer(other_side):
                self.buffer.joined(other_side, record.key, timestamp)
            self._emit(record, side, other, timestamp)
        if itself_due:
            self._emit(record, LEFT, record.value, record.timestamp)
        return found

    def _process_compat(self, record: Record, time: int) -> None:
        oldest = self.newest - self.retention_ms
        itself_due = record.timestamp > time - self.retention_ms + 1
        for side in (LEFT, RIGHT):
            back_ms, ahead_ms = self.join.reach(side)
            earliest, latest = max(0, record.timestamp - back_ms), max(0, record.timestamp + ahead_ms)
            for timestamp, other in self.store.fetch_range(record.key, max(earliest, oldest + 1), latest):
                if side == RIGHT and itself_due and timestamp > record.timestamp:
                    self._emit(record, LEFT, record.value, record.timestamp)
                    itself_due = False
                self._emit(record, side, other, timestamp)
        if itself_due:
            self._emit(record, LEFT, record.value, record.timestamp)
        self.kept(record.timestamp)
        self.store.put(record.key, record.timestamp, record.value)

    def _emit(self, record: Record, side: int, other: Any, timestamp: int) -> None:
        value = self.join.joined(side, record.key, record.value, other)
        self.ctx.forward(Record(record.key, value, max(timestamp, record.timestamp), record.headers))

    def _without_key_or_value(self, side: int, record: Record) -> None:
        if record.value is not None and self.join.is_outer(side):
            self._emit_alone(side, None, record.value, record.timestamp, record.headers)
        else:
            self.ctx.drop(record, "null_key" if record.key is None else "null_value")

    def _emit_alone(self, side: int, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.ctx.forward(Record(key, self.join.joined(side, key, value, None), timestamp, headers))

    @property
    def newest(self) -> int:
        """Time of the newest record in the store, which in compat mode limits the visible rows."""
        newest: int = self.ctx.state.get(_NEWEST, NO_TIME)
        return newest

    def kept(self, timestamp: int) -> None:
        """Note the time of a record in the store, in compat mode."""
        if self.ctx.mode == "compat":
            self.ctx.state[_NEWEST] = max(self.newest, timestamp)
