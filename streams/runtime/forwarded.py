"""`Inbox`: the batches that wait for a node. `Forwarded`: records that a node forwards one by one, collected to batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from state.columns import encode_headers
from streams.model.record import Headers, HeldRecord, Record
from streams.operators.columnar import ColumnarBatch, KeyColumn, in_step_order
from streams.runtime.event_time import checked
from streams.runtime.step_context import StepContext
from streams.runtime.values import snapshot

_EMPTY = ColumnarBatch(KeyColumn.of([]), [], np.empty(0, np.int64), np.empty(0, np.int64))


class Inbox:
    """The batches that wait for a node until its unit runs.

    Attributes:
        read: Decodes the only batch again, because functions may have changed its values; None for results of other nodes.
    """

    __slots__ = ("_batches", "read")

    def __init__(self) -> None:
        self._batches: list[ColumnarBatch] = []
        self.read: Callable[[], ColumnarBatch] | None = None

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, batch: ColumnarBatch, read: Callable[[], ColumnarBatch] | None = None) -> None:
        if len(batch):
            self.read = None if self._batches else read
            self._batches.append(batch)

    def take(self) -> ColumnarBatch:
        """All records in the order of their positions, perhaps none."""
        batches, self._batches = self._batches, []
        return in_step_order(batches) if batches else _EMPTY


@dataclass(slots=True)
class Forwarded:
    """Records of one node, each for all of its children or for one.

    Attributes:
        run: The step; each record is forwarded while the record that it comes from is the current one.
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
        """Appends a record for one child, or for all. The caller may go on to change its key and value.

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

    def batches(self, children: Collection[str], named_only: Collection[str]) -> Iterator[tuple[str, ColumnarBatch]]:
        """The records for each child; some children get only the records that name them."""
        cells = [encode_headers(one) if one else None for one in self.headers] if self.with_headers else None
        whole = ColumnarBatch(
            KeyColumn.of(self.keys),
            self.values,
            np.array(self.timestamps, np.int64),
            np.array(self.order, np.int64),
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
