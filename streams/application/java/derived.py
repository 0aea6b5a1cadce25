"""Stores that Kafka Streams does not have, made from rows of stores that it has: open windows, and places of suppressed updates."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from state.columns import RecordColumns, numbers_at
from state.stores.buffer_values import PLACE
from state.stores.codec import SESSION_SUFFIX, WINDOW_SUFFIX
from state.stores.suppressed_rows import local_place
from streams.model.record import NO_TIME
from streams.model.windows import GroupingWindows, SessionWindows, WindowsByStart
from streams.operators.aggregate.open_windows import PRESENT, open_row
from streams.topology.plan import SubTopology
from streams.topology.specs.aggregations import AggregationSpec
from streams.topology.specs.tables import SuppressSpec

Int64s = npt.NDArray[np.int64]


@dataclass
class DerivedRows(ABC):
    """The rows of a store that is made from the rows of another store, for one task.

    Attributes:
        rows: Key -> value and time, ms.
    """

    rows: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)

    @abstractmethod
    def add(self, columns: RecordColumns) -> None:
        """Adds records of the other store's changelog, in order."""


@dataclass
class PlacesOfSuppress(DerivedRows):
    """Key -> place of each update that `suppress` holds back."""

    def add(self, columns: RecordColumns) -> None:
        """Adds the places of the updates in these records."""
        for (key, value), time in zip(columns.cells(), columns.timestamps.tolist(), strict=True):
            assert key is not None, "the rows were checked"
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = local_place(value[-PLACE.size :]), time


@dataclass
class OpenRows(DerivedRows):
    """The index of the windows that were not closed (`streams.operators.aggregate.open_windows`).

    Attributes:
        windows: The windows.
        closed: The time up to which Java has closed windows, ms; `NO_TIME`: it has closed none.
    """

    windows: GroupingWindows = field(kw_only=True)
    closed: int = field(kw_only=True)

    def add(self, columns: RecordColumns) -> None:
        """Adds the open windows in these records."""
        suffix, starts, ends = self._bounds(columns)
        # An inclusive end belongs to the window, so such a window closes 1 ms later than a window with the same exclusive end.
        last_end = self.closed - (1 if self.windows.inclusive_end else 0)
        for row in np.flatnonzero(ends > last_end).tolist():
            key, start, end = columns.keys[row].as_py()[:-suffix], int(starts[row]), int(ends[row])
            if columns.values[row].as_py() is None:
                self.rows.pop(open_row(key, start, end), None)
            else:
                self.rows[open_row(key, start, end)] = PRESENT, end

    def _bounds(self, columns: RecordColumns) -> tuple[int, Int64s, Int64s]:
        if isinstance(self.windows, SessionWindows):
            return SESSION_SUFFIX, numbers_at(columns.keys, -8), numbers_at(columns.keys, -SESSION_SUFFIX)
        assert isinstance(self.windows, WindowsByStart), "all others are sessions"
        starts = numbers_at(columns.keys, -WINDOW_SUFFIX)
        distinct, places = np.unique(starts, return_inverse=True)
        ends = np.array([self.windows.end_of(start) for start in distinct.tolist()], np.int64)
        return WINDOW_SUFFIX, starts, ends[places]


@dataclass(frozen=True)
class Derivation:
    """How a store is made.

    Attributes:
        store: Its name.
        source: The store from whose rows it is made.
        make: Makes the empty rows of a task, given the time up to which Java has closed the windows of `source`.
    """

    store: str
    source: str
    make: Callable[[int], DerivedRows]


def derivations(sub: SubTopology) -> Iterator[Derivation]:
    """The derived stores of a sub-topology that have a changelog."""
    for node, (source, *derived) in ((node, node.stores) for node in sub.processors if len(node.stores) == 2):
        if not sub.stores[derived[0]].spec.logged:
            continue
        if isinstance(node.spec, SuppressSpec):
            yield Derivation(derived[0], source, lambda _: PlacesOfSuppress())
        elif isinstance(node.spec, AggregationSpec) and node.spec.windows is not None:
            windows = node.spec.windows
            yield Derivation(derived[0], source, _opening(windows))


def _opening(windows: GroupingWindows) -> Callable[[int], DerivedRows]:
    return lambda closed: OpenRows(windows=windows, closed=closed)


def closes_of(
    sub: SubTopology, state: Mapping[str, Mapping[str, object]], first_ends: Mapping[str, int]
) -> dict[str, int]:
    """Store of an aggregation with results on close -> the time up to which its windows are closed, ms, as Java records it.

    Args:
        sub: The sub-topology.
        state: The operators' states in the task's marker, by node.
        first_ends: Index of open windows -> the first end in it, ms. With `emit_interval_ms`, it may have windows that time has
            closed already.
    """
    found = {}
    for node in sub.processors:
        if not isinstance(node.spec, AggregationSpec) or len(node.stores) != 2 or node.spec.windows is None:
            continue
        time, windows = state.get(node.name, {}).get("stream_time", NO_TIME), node.spec.windows
        closed = int(str(time)) - windows.wait_ms
        first_end = first_ends.get(node.stores[1])
        if first_end is not None:
            closed = min(closed, first_end - 1 + (1 if windows.inclusive_end else 0))
        if closed >= 0:
            found[node.stores[0]] = closed
    return found


def first_end_in(rows: Mapping[bytes, bytes | None]) -> int | None:
    """The first end of a window in an index of open windows; None: no window is open."""
    live = [key for key, value in rows.items() if value is not None]
    return struct.unpack_from(">q", min(live))[0] if live else None
