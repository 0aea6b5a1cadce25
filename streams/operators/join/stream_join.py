"""Joins of streams: what their operators share."""

from __future__ import annotations

import dis
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from inspect import unwrap
from types import FunctionType
from typing import Any, Final, TypeAlias

from streams.model.expressions import JoinedFields
from streams.model.record import LEFT, RIGHT
from streams.model.windows import JoinWindows
from streams.operators.stores.time_ordered_buffer import NEVER, TimeOrderedBuffer
from streams.operators.table.value_getter import JoinKind
from streams.serdes.base import Serde

Parameters: TypeAlias = tuple[tuple[str, str | int | bool | None], ...]
"""The parameters in names and in the topology hash."""


def joined_fields(joiner: Callable[..., Any]) -> JoinedFields | None:
    """What a joiner selects, if it is made of `fields(...)`."""
    wrapped = getattr(joiner, "__wrapped__", None)
    return wrapped if isinstance(wrapped, JoinedFields) else None


_READS: Final = re.compile(
    "LOAD_|STORE_FAST|BUILD_|LIST_|SET_UPDATE|DICT_|FORMAT_|CONVERT_|POP_|JUMP_|RETURN_|BINARY_|UNARY_|COMPARE_|CONTAINS_|IS_|TO_BOOL|"
    "COPY|SWAP|ROT_|DUP_|PUSH_NULL|PRECALL|KW_NAMES|RESUME|NOP|CACHE|EXTENDED_ARG|NOT_TAKEN"
)
"""How instructions begin that change nothing but the function's own variables and what it makes."""
_CALLED: Final = frozenset(("get", "len", "str", "int", "float", "bool", "round", "min", "max", "abs"))
"""What may be called: nothing of these names changes its arguments."""


def only_reads(joiner: Callable[..., Any]) -> bool:
    """Whether a function's instructions show that it leaves its arguments as they are, so that they need not be copied for it.

    For example, `lambda left, right: {**left, "rate": right["rate"]}` does. False says nothing.
    """
    function = unwrap(joiner)
    return isinstance(function, FunctionType) and _only_reads(function)


@lru_cache(1000)
def _only_reads(function: FunctionType) -> bool:
    steps, code = list(dis.get_instructions(function)), function.__code__
    calls = [step for step in steps if step.opname.startswith("CALL")]
    if calls:
        called = [step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_METHOD", "LOAD_ATTR")]
        allowed = _CALLED - function.__globals__.keys()
        if code.co_freevars or len(called) != len(calls) or not allowed.issuperset(called):
            return False
    return all(step in calls or (_READS.match(step.opname) and not _changes(step)) for step in steps)


def _changes(step: dis.Instruction) -> bool:
    """`+=` changes a list."""
    return step.opname == "BINARY_OP" and step.argrepr.endswith("=")


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
        return self.fields is not None or only_reads(self.joiner)

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

    @property
    def opposite(self) -> JoinSide:
        """The other one of the two."""
        return JoinSide(self.other, self.other_store, self.store, self.state_name)


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


# --- The left or outer stream-join records without a partner: what the two modes know of them.
#
# Strict mode: a record waits until it ceases to be open, then gives its one result. Compat mode: Kafka Streams' behaviour
# (KIP-633), including its flaws: records that arrive too late to wait give their result at once and may still be joined later; a
# scan depends on a `min` that may skip rows, and on the wall clock.


@dataclass(frozen=True, slots=True)
class OuterJoinBuffer:
    """The records of both sides that have no partner yet.

    Attributes:
        rows: The waiting records, by the time at which they cease to be open.
        waits: Per side, how long its records wait after their own timestamps, ms.
    """

    rows: TimeOrderedBuffer
    waits: tuple[int, int]

    @property
    def delays(self) -> tuple[int, int]:
        """Per side, how much later than its timestamp the time of a record in the store is, ms."""
        return self.waits

    @property
    def oldest(self) -> int:
        """A lower bound of the waiting records' timestamps, ms."""
        return self.rows.first_time - max(self.delays)


@dataclass(frozen=True, slots=True)
class CompatOuterJoinBuffer(OuterJoinBuffer):
    """The behaviour of Kafka Streams 4.3 (`KStreamKStreamJoin.emitNonJoinedOuterRecords`).

    Attributes:
        rows: The waiting records, by their timestamps.
        waits: Per side, its `after` (for a right record `before`) plus grace; may be negative.
        grace_ms: The grace included in `waits`.
        state: A dict that survives restarts.
        now_ms: The step's wall clock.
        interval_ms: The least wall-clock time between two scans.
    """

    grace_ms: int
    state: dict[str, Any]
    now_ms: int
    interval_ms: int

    @property
    def delays(self) -> tuple[int, int]:
        return 0, 0

    @property
    def may_scan(self) -> bool:
        """Whether the last scan is long enough ago."""
        may_scan: bool = self.now_ms >= self.state.get("next_emit", 0)
        return may_scan

    def scanned(self) -> None:
        self.state["next_emit"] = self.now_ms + self.interval_ms

    @property
    def least(self) -> int:
        """The least time that decides about the next scan."""
        least: int = self.state.get("min", NEVER)
        return least

    def note_least(self, least: int) -> None:
        if least != self.least:
            self.state["min"] = least


def waits_of(windows: JoinWindows, strict: bool) -> tuple[int, int]:
    """How long a right and a left record wait, ms: the `waits` of an `OuterJoinBuffer`, by side."""
    ahead = {RIGHT: windows.before_ms, LEFT: windows.after_ms}
    waits = {side: (max(0, ms) if strict else ms) + windows.grace_ms for side, ms in ahead.items()}
    return waits[RIGHT], waits[LEFT]
