"""`Forwarded`: records that a node forwards one by one, collected to go on together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from state.columns import encode_headers
from streams.model.record import Headers, HeldRecord, Record
from streams.operators.columnar import ColumnarBatch, KeyColumn
from streams.runtime.step_context import StepContext


@dataclass(slots=True)
class _Rows:
    keys: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    places: dict[int, Any] = field(default_factory=dict)
    held: dict[int, HeldRecord] = field(default_factory=dict)
    with_headers: bool = False


class Forwarded:
    """Records of one node, by child; a node forwards all of its records to all children, or each one to one child.

    Args:
        run: The step, in which each record is forwarded while the record is current that it comes from.
        numbered: The records come from no record of the step; their positions are their numbers.
    """

    def __init__(self, run: StepContext, numbered: bool) -> None:
        self._run = run
        self._numbered = numbered
        self._rows: dict[str | None, _Rows] = {}
        if numbered:
            run.position = 0

    def add(self, record: Record, child: str | None) -> None:
        """Appends a record for one child, or for all."""
        run, rows = self._run, self._rows.get(child)
        if rows is None:
            rows = self._rows[child] = _Rows()
        if run.cursor is not None:
            rows.places[run.position] = run.cursor
        if run.held is not None:
            rows.held[len(rows.keys)] = run.held
        rows.keys.append(record.key)
        rows.values.append(record.value)
        rows.timestamps.append(record.timestamp)
        rows.headers.append(record.headers)
        rows.order.append(run.position)
        rows.with_headers |= bool(record.headers)
        if self._numbered:
            run.position += 1

    def batches(self) -> Iterator[tuple[str | None, ColumnarBatch]]:
        """The records for each child (None: all), in the order of each child's first record."""
        for child, rows in self._rows.items():
            cells = [encode_headers(one) if one else None for one in rows.headers] if rows.with_headers else None
            yield (
                child,
                ColumnarBatch(
                    KeyColumn.of(rows.keys),
                    rows.values,
                    np.array(rows.timestamps, np.int64),
                    np.array(rows.order, np.int64),
                    cells,
                    rows.places.get,
                    rows.held,
                ),
            )
