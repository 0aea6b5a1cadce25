"""The windows, joiners and sides of joins of streams. Planning needs only these; the operators are in the other files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from streams.errors import RecordError
from streams.model.expressions import JoinedFields
from streams.model.ownership import only_reads
from streams.model.record import LEFT, MAX_TIME, RIGHT
from streams.model.timestamps import field_ms
from streams.model.windows import JoinWindows
from streams.operators.table.value_getter import JoinKind
from streams.serdes.base import Serde

Parameters: TypeAlias = tuple[tuple[str, str | int | bool | None], ...]
"""Parameters that are part of names and of the topology hash."""


def joined_fields(joiner: Callable[..., Any]) -> JoinedFields | None:
    """The definition of a joiner that is made of `fields(...)`; None for any other joiner."""
    wrapped = getattr(joiner, "__wrapped__", None)
    return wrapped if isinstance(wrapped, JoinedFields) else None


@dataclass(frozen=True, slots=True)
class StreamJoin:
    """A join of two streams in time.

    Attributes:
        join_kind: The kind of join, which decides the sides that may be missing.
        windows: A right record at r is joined with a left one at l if l - before <= r <= l + after.
        joiner: `(key, left value, right value) -> value`.
        key_serde: Serde of the keys on both sides.
    """

    join_kind: JoinKind
    windows: JoinWindows
    joiner: Callable[[Any, Any, Any], Any]
    key_serde: Serde

    @property
    def parameters(self) -> Parameters:
        """The parameters of the windows, and the kind of join unless it is inner."""
        return (
            ("before_ms", self.windows.before_ms),
            ("after_ms", self.windows.after_ms),
            ("grace_ms", self.windows.grace_ms),
            *((("until", repr(self.windows.bound)),) if self.windows.bound is not None else ()),
            *((("kind", self.join_kind),) if self.join_kind != "inner" else ()),
        )

    def until(self, value: Any) -> int:
        """The last time at which a right record is joined with this left value, ms, besides the limit of `after`.

        Raises:
            RecordError: The field of `JoinWindows.until` is missing or not a time.
        """
        bound = self.windows.bound
        found = None if bound is None else bound(value)
        if found is None:
            return MAX_TIME
        try:
            return min(field_ms(found), MAX_TIME)
        except (TypeError, ValueError, OverflowError):
            raise RecordError(
                f"The left value has no time in {bound!r}: found {str(found)[:60]!r}, and whole milliseconds since 1970, ISO 8601 "
                f"text or a datetime is needed."
            ) from None

    @property
    def keeps_values(self) -> bool:
        """Whether the joiner is known to leave its arguments unchanged, as an expression does."""
        return only_reads(self.joiner)

    @property
    def fields(self) -> JoinedFields | None:
        """The definition of a joiner that is made of `fields(...)`; None for any other joiner."""
        return joined_fields(self.joiner)

    def is_outer(self, side: int) -> bool:
        """Whether records of a side have a result even without a partner."""
        return self.join_kind == "outer" or (self.join_kind == "left" and side == LEFT)

    def reach(self, side: int) -> tuple[int, int]:
        """The longest times that a partner may lie before and after a record of a side, ms."""
        before, after = self.windows.before_ms, self.windows.after_ms
        return (before, after) if side == LEFT else (after, before)

    def joined(self, side: int, key: Any, value: Any, other: Any) -> Any:
        """The result for a value of a side and a value of the other side; None: no result."""
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
        """The other side."""
        return JoinSide(self.other, self.other_store, self.store, self.state_name)


@dataclass(frozen=True, slots=True)
class JoinAll:
    """A join of several streams in time.

    Attributes:
        streams: Names of all the streams, in the order of the results.
        windows: The windows, which give the longest time between records.
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
