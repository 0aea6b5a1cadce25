"""Many records per call: `ColumnarBatch`, and the contract of operators that process a step's records together.

The engine's own operators process records one by one, as Kafka Streams does (`Operator.process`). Where a whole step can be
processed together with the same results in the same order, an operator also has a `BatchProcessor`, which looks up and writes
its stores for all records at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import decode_headers
from streams.model.record import Headers, HeldRecord, Record
from streams.operators.encoded_values import join_values, take_values
from streams.serdes.base import Serde
from streams.serdes.columns import is_exact, write_all

Int64s: TypeAlias = npt.NDArray[np.int64]
NULL_KEY = -1
"""The code of a null key."""


class KeyColumn:
    """The keys of n records, with equal keys stored once.

    Args:
        codes: int32[n], index into `objects`; `NULL_KEY` for a null key.
        objects: The distinct keys.
        data: The bytes of `objects`, if they are known.
        serde: The serde that has read `objects` from `data`.
    """

    __slots__ = ("_data", "_serde", "codes", "objects")

    def __init__(
        self,
        codes: npt.NDArray[np.int32],
        objects: list[Any],
        data: list[bytes] | None = None,
        serde: Serde | None = None,
    ) -> None:
        self.codes = codes
        self.objects = objects
        self._data = data
        self._serde = serde

    @classmethod
    def of(cls, keys: Sequence[Any]) -> KeyColumn:
        """The column of these keys, one for each record."""
        codes = np.fromiter((NULL_KEY if key is None else row for row, key in enumerate(keys)), np.int32, len(keys))
        return cls(codes, list(keys))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> Any:
        code = self.codes[row]
        return None if code == NULL_KEY else self.objects[code]

    def __iter__(self) -> Iterator[Any]:
        objects = [*self.objects, None]  # the code of a null key is the last one's index
        return (objects[code] for code in self.codes.tolist())

    def take(self, rows: Any) -> KeyColumn:
        """The keys of some rows, given by indices or by a mask."""
        return KeyColumn(self.codes[rows], self.objects, self._data, self._serde)

    @classmethod
    def joined(cls, columns: Sequence[KeyColumn]) -> KeyColumn:
        """The keys of several columns, one after the other."""
        codes, objects, data = [], list[Any](), list[bytes]()
        # A column without keys has no serde, and nothing to say.
        columns = [column for column in columns if len(column)] or columns[:1]
        for column in columns:
            codes.append(np.where(column.codes == NULL_KEY, np.int32(NULL_KEY), column.codes + np.int32(len(objects))))
            objects += column.objects
            data += column._data or ()
        serdes = [column._serde for column in columns]
        known = len(data) == len(objects) and all(serde == serdes[0] for serde in serdes)
        return cls(np.concatenate(codes), objects, data if known else None, serdes[0] if known else None)

    def encoded(self, serde: Serde, topic: str) -> list[bytes | None]:
        """The bytes of `objects`. Different objects may have the same bytes.

        Raises:
            SerdeError: A key cannot be written.
        """
        if self._data is not None and serde == self._serde and is_exact(serde):
            return list(self._data)
        return write_all(serde, topic, self.objects)

    def column(self, serde: Serde, topic: str) -> pa.BinaryArray:
        """The bytes of each row's key; null for a null key."""
        cells = pa.array(self.encoded(serde, topic), pa.binary())
        return cells.take(pa.array(self.codes, mask=self.codes == NULL_KEY))


def _nowhere(position: int) -> Any:
    return None


class HeldRows(Mapping[int, HeldRecord]):
    """The held records of a batch's rows, each made only when an error names it.

    Args:
        make: Makes the record with a number.
        numbers: int64[n], the number of each row's record; -1 for a row without one.
    """

    def __init__(self, make: Callable[[int], HeldRecord], numbers: Int64s) -> None:
        self._make = make
        self._numbers = numbers

    @classmethod
    def joined(cls, parts: Sequence[tuple[Mapping[int, HeldRecord], int]]) -> Mapping[int, HeldRecord]:
        """The held records of several batches one after the other, of which each part gives its own, and its length."""
        if not any(held for held, _ in parts):
            return {}
        starts = np.cumsum([0, *(count for _, count in parts)])
        numbers = np.full(starts[-1], -1, np.int64)
        for (held, _), start in zip(parts, starts.tolist(), strict=False):
            rows = np.fromiter(held, np.int64, len(held)) + start
            numbers[rows] = rows

        def make(number: int) -> HeldRecord:
            part = int(np.searchsorted(starts, number, "right")) - 1
            return parts[part][0][number - int(starts[part])]

        return cls(make, numbers)

    def __getitem__(self, row: int) -> HeldRecord:
        number = int(self._numbers[row]) if 0 <= row < len(self._numbers) else -1
        if number < 0:
            raise KeyError(row)
        return self._make(number)

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._numbers >= 0).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self._numbers >= 0))

    def take(self, rows: npt.NDArray[np.int64]) -> HeldRows:
        return HeldRows(self._make, self._numbers[rows])


@dataclass(frozen=True, slots=True)
class ColumnarBatch:
    """n records in the order in which they are processed.

    Attributes:
        keys: The keys.
        values: The n values, as in `Record.value`; perhaps `EncodedValues`.
        timestamps: int64[n], milliseconds.
        order: int64[n], the position in the step of the record that each one was made from; rising.
        headers: Encoded headers of each record (`state.columns`); None if no record has any.
        place: The argument of `OperatorContext.resume` for a position in the step.
        held: Row -> the record named by errors, for rows that an operator has held back.
    """

    keys: KeyColumn
    values: Sequence[Any]
    timestamps: Int64s
    order: Int64s
    headers: list[bytes | None] | None = None
    place: Callable[[int], Any] = _nowhere
    held: Mapping[int, HeldRecord] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: npt.NDArray[np.int64]) -> ColumnarBatch:
        """The records of these rows, in this order."""
        at = rows.tolist()
        return replace(
            self,
            keys=self.keys.take(rows),
            values=take_values(self.values, rows),
            timestamps=self.timestamps[rows],
            order=self.order[rows],
            headers=None if self.headers is None else [self.headers[row] for row in at],
            held=self._held_of(rows),
        )

    def _held_of(self, rows: npt.NDArray[np.int64]) -> Mapping[int, HeldRecord]:
        if isinstance(self.held, HeldRows):
            return self.held.take(rows)
        held = self.held
        return {row: held[old] for row, old in enumerate(rows.tolist()) if old in held} if held else {}

    def with_values(self, values: Sequence[Any]) -> ColumnarBatch:
        return replace(self, values=values)

    def headers_of(self, row: int) -> Headers:
        return () if self.headers is None else tuple(decode_headers(self.headers[row]))

    def records(self) -> Iterator[Record]:
        headers = repeat(()) if self.headers is None else map(self.headers_of, range(len(self)))
        return map(Record, self.keys, self.values, self.timestamps.tolist(), headers)

    def record(self, row: int) -> Record:
        return Record(self.keys[row], self.values[row], int(self.timestamps[row]), self.headers_of(row))


def concatenated(batches: Sequence[ColumnarBatch]) -> ColumnarBatch:
    """The records of several batches of the same step, one batch after the other."""
    headers = None
    if any(batch.headers is not None for batch in batches):
        headers = [cell for batch in batches for cell in (batch.headers or [None] * len(batch))]
    return ColumnarBatch(
        KeyColumn.joined([batch.keys for batch in batches]),
        join_values([batch.values for batch in batches]),
        np.concatenate([batch.timestamps for batch in batches]),
        np.concatenate([batch.order for batch in batches]),
        headers,
        _joint_place(batches),
        HeldRows.joined([(batch.held, len(batch)) for batch in batches]),
    )


def in_step_order(batches: Sequence[ColumnarBatch]) -> ColumnarBatch:
    """The records of several batches of the same step in its order; at the same position, those of earlier batches come first."""
    if len(batches) == 1:
        return batches[0]
    whole = concatenated(batches)
    return whole.take(np.argsort(whole.order, kind="stable"))


def _joint_place(batches: Sequence[ColumnarBatch]) -> Callable[[int], Any]:
    first = batches[0].place
    if all(batch.place == first for batch in batches):
        return first

    def place(position: int) -> Any:
        there = (batch for batch in batches if position in batch.order)
        return next((found for batch in there if (found := batch.place(position)) is not None), None)

    return place


class OneByOne(Exception):
    """Raised by a `BatchProcessor` for records that have to be processed one by one after all; its text says why, for a counter."""


class BatchProcessor(Protocol):
    """Processes the records of a step for one node, or for a group of nodes that share stores (the two sides of a join).

    A subclass's constructor takes the operators of the group, in the order of their nodes, after `init`.
    """

    def __init__(self, operators: Sequence[Any]) -> None: ...

    def process_batches(self, batches: Sequence[ColumnarBatch]) -> None:
        """Processes all records that a pass over the nodes has for the group: those of the step, or results at its end.

        Results, drops, state and their order equal those of `Operator.process` for one record after the other in the order
        of `ColumnarBatch.order`. A call that raises must have had no effect: the records are then processed one by one, so
        that the one at fault is found, and meets its policy. So look up and compute first, then write to stores, and
        forward last (`OperatorContext.forward_batch`).
        """


def in_order(batches: Sequence[ColumnarBatch]) -> Iterator[tuple[int, int]]:
    """The index of the batch and the row in it, for all records of a group in the order of the step."""
    which = np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
    rows = np.concatenate([np.arange(len(batch)) for batch in batches] or [np.empty(0, np.int64)])
    order = np.argsort(np.concatenate([batch.order for batch in batches] or [np.empty(0, np.int64)]), kind="stable")
    return zip(which[order].tolist(), rows[order].tolist(), strict=True)
