"""Many records per call: `ColumnarBatch` with its keys, values (perhaps still bytes: `EncodedValues`) and columns of results.

`EncodedValues` has the values of many records as they were read, and decodes them when they are requested. A table that is filled,
or a stream that is written to another topic unchanged, then writes the bytes that it read. Values stay bytes where the serde would
write the same bytes again; code that requests a value still gets an object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from operator import add
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import (
    FEW_CELLS,
    FEW_ROWS,
    NOTHING,
    BinaryColumn,
    binary_column,
    long_cells,
    one_column,
    replaced,
    rows_where,
)
from state.headers import decode_headers
from streams.model.ownership import snapshot
from streams.model.record import Change, Headers, HeldRecord, Record, Window, Windowed
from streams.serdes.base import Headers as HeadersToRead
from streams.serdes.base import Serde
from streams.serdes.columns import normal_keys, read_all, write_all
from streams.serdes.exactness import is_exact, reads_alone
from streams.serdes.json import JsonSerde, is_plain_json
from streams.serdes.wrappers import CustomWindowedSerde, SessionWindowedSerde, TimeWindowedSerde

_ENCODED: Any = object()
_PART = 512
Int64s = npt.NDArray[np.int64]


class ValueColumn(Sequence[Any], ABC):
    """A sequence of values from which rows can be selected without decoding them."""

    @abstractmethod
    def take(self, rows: Int64s) -> Sequence[Any]: ...

    @abstractmethod
    def fresh(self) -> Sequence[Any]:
        """The same values as new objects that no other code has."""

    def joined(self, parts: Sequence[Any]) -> Sequence[Any]:
        """The values of several columns of this class, one after the other."""
        return list(chain.from_iterable(parts))


class WrittenValues(Sequence[Any], ABC):
    """A sequence of values for which some or all bytes are known."""

    @abstractmethod
    def column(self, serde: Serde, topic: str) -> BinaryColumn | None:
        """The bytes of all values, as the serde would write them; None if they are not known for this serde.

        Raises:
            SerdeError: A value cannot be written.
        """


class EncodedValues(WrittenValues, ValueColumn):
    """A sequence of n values. Each is decoded once, so all code that requests it sees changes of the object.

    Code that may change the values, or lets others change them, uses `fresh` values unless nothing else has the column.

    Attributes:
        serde: Reads the values.

    Args:
        cells: The bytes; null for None.
        serde: Reads the cells without errors.
        topic: The topic of the cells.
        objects: Row -> value, for values that are already known, including those of cells that are read as None.
        normal: bool[n], the cells that the serde would write as they are; None: all.
    """

    def __init__(
        self,
        cells: BinaryColumn,
        serde: Serde,
        topic: str,
        objects: Mapping[int, Any],
        normal: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self._cells = cells
        self._normal = np.ones(len(cells), np.bool_) if normal is None else normal
        self.serde = serde
        self._topic = topic
        self._objects: list[Any] = [_ENCODED] * len(cells)
        self._decoded = np.zeros(len(cells), np.bool_)
        for row, value in objects.items():
            self._objects[row] = value
            self._decoded[row] = True

    def __len__(self) -> int:
        return len(self._objects)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return self.at(range(*row.indices(len(self))))
        if self._objects[row] is _ENCODED:
            # Code that requests one row usually requests the next one, too.
            start = row % len(self) // _PART * _PART
            self.at(range(start, min(start + _PART, len(self))))
        return self._objects[row]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.at(range(len(self))))

    def at(self, rows: Sequence[int]) -> list[Any]:
        objects = self._objects
        new = list(dict.fromkeys(row for row in rows if objects[row] is _ENCODED))
        if new:
            cells = self._cells.take(pa.array(new)).to_pylist()
            for row, value in zip(new, read_all(self.serde, self._topic, cells, None), strict=True):
                objects[row] = value
            self._decoded[new] = True
        return [objects[row] for row in rows]

    def each(self) -> Iterator[Any]:
        """Iterates over all values. Values that are not decoded yet are decoded 512 at a time and not cached.

        Reading is several times as fast while few objects are alive: memory is reused, and there is less garbage to collect.
        """
        return chain.from_iterable(map(self._part, range(0, len(self), _PART)))

    def _part(self, start: int) -> list[Any]:
        cells = self._cells.slice(start, _PART).to_pylist()
        values = read_all(self.serde, self._topic, cells, None)
        for row in rows_where(self._decoded[start : start + _PART]).tolist():
            values[row] = self._objects[start + row]
        return values

    def take(self, rows: Int64s) -> EncodedValues:
        """The values of some rows; decoded values stay the same objects."""
        cells = self._cells.take(pa.array(rows))
        taken = EncodedValues(cells, self.serde, self._topic, {}, self._normal[rows])
        taken._decoded = self._decoded[rows]
        if taken._decoded.any():
            taken._objects = [self._objects[row] for row in rows.tolist()]
        return taken

    def fresh(self) -> EncodedValues:
        """The same values, which will be read again; no bytes are copied."""
        nulls = {row: None for row in rows_where(self._decoded).tolist() if self._objects[row] is None}
        return EncodedValues(self._cells, self.serde, self._topic, nulls, self._normal)

    def joined(self, parts: Sequence[Any]) -> Sequence[Any]:
        """The values of several columns; they stay bytes if one serde reads all of them. No value's bytes depend on its topic."""
        serde = self.serde
        if any(part.serde != serde for part in parts):
            return super().joined(parts)
        whole = EncodedValues(
            one_column([part._cells for part in parts]),
            serde,
            self._topic,
            {},
            np.concatenate([part._normal for part in parts]),
        )
        whole._decoded = np.concatenate([part._decoded for part in parts])
        if whole._decoded.any():
            whole._objects = [value for part in parts for value in part._objects]
        return whole

    @property
    def is_untouched(self) -> bool:
        """Whether no value but None was decoded yet, so that the bytes cannot be out of date."""
        return all(self._objects[row] is None for row in rows_where(self._decoded).tolist())

    @property
    def nulls(self) -> npt.NDArray[np.bool_]:
        if not self._cells.null_count:
            nulls = np.zeros(len(self._cells), np.bool_)
        else:
            nulls = self._cells.is_null().to_numpy(zero_copy_only=False)
        for row in rows_where(self._decoded).tolist():
            nulls[row] = self._objects[row] is None
        return nulls

    def column(self, serde: Serde, topic: str) -> BinaryColumn:
        """The bytes of all values. A value that is not normal, or was handed out and may have changed, is written again.

        Raises:
            SerdeError: A value cannot be written.
        """
        if serde != self.serde:
            return binary_column(write_all(serde, topic, self.at(range(len(self)))))
        changed = rows_where(self._decoded | ~self._normal)
        if not len(changed):
            return self._cells
        return replaced(self._cells, changed, binary_column(write_all(serde, topic, self._objects_at(changed))))

    def each_handed_out(self, see: Callable[[Any], Any]) -> None:
        """Calls a function for each value whose object was handed out, and may have changed since then."""
        for row in rows_where(self._decoded).tolist():
            if self._objects[row] is not None:
                see(self._objects[row])

    def _objects_at(self, rows: Int64s) -> list[Any]:
        """The values of these rows. Values that are still bytes are decoded, and not cached."""
        unread = rows[~self._decoded[rows]]
        read = iter(read_all(self.serde, self._topic, self._cells.take(pa.array(unread)).to_pylist(), None))
        return [next(read) if self._objects[row] is _ENCODED else self._objects[row] for row in rows.tolist()]


def unread_json(values: Sequence[Any] | None) -> BinaryColumn | None:
    """The bytes of values that are JSON, as orjson writes them; None if there are only objects, or objects were handed out."""
    if not isinstance(values, EncodedValues) or not is_plain_json(values.serde) or not values.is_untouched:
        return None
    return values.column(values.serde, "")


def join_values(parts: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """The values of several batches, one after the other."""
    parts = [part for part in parts if len(part)] or parts[:1]
    first = parts[0]
    if isinstance(first, ValueColumn) and all(type(part) is type(first) for part in parts):
        return first.joined(parts)
    return list(chain.from_iterable(parts))


def null_values(values: Sequence[Any]) -> npt.NDArray[np.bool_]:
    if isinstance(values, EncodedValues):
        return values.nulls
    return np.fromiter((value is None for value in values), np.bool_, len(values))


def values_at(values: Sequence[Any], rows: Int64s) -> list[Any]:
    at = rows.tolist()
    return values.at(at) if isinstance(values, EncodedValues) else [values[row] for row in at]


def each_value(values: Sequence[Any], rows: Int64s) -> Iterator[Any]:
    """The values of these rows, one after the other. Values that are still bytes are decoded now, and not cached."""
    each = values.each() if isinstance(values, EncodedValues) else iter(values)
    counts = np.bincount(rows, minlength=len(values))
    return each if (counts == 1).all() else chain.from_iterable(map(repeat, each, counts.tolist()))


def fresh_values(values: Sequence[Any]) -> Sequence[Any]:
    """The same values as new objects that no other code has; known bytes are not copied."""
    return values.fresh() if isinstance(values, ValueColumn | JsonValues) else list(map(snapshot, values))


def lent_values(values: Sequence[Any]) -> Iterable[Any]:
    """The same values as new objects, one after the other, for calls of a function that must not change the originals."""
    return values.fresh().each() if isinstance(values, EncodedValues) else map(snapshot, values)


def take_values(values: Sequence[Any], rows: Int64s) -> Sequence[Any]:
    """The values of these rows. Values that are still bytes stay bytes."""
    return values.take(rows) if isinstance(values, ValueColumn) else values_at(values, rows)


def value_column(
    values: Sequence[Any], serde: Serde, topic: str, headers: Sequence[HeadersToRead] | None = None
) -> BinaryColumn:
    """The bytes of many values.

    Raises:
        SerdeError: A value cannot be written.
    """
    column = values.column(serde, topic) if isinstance(values, WrittenValues) else None
    return binary_column(write_all(serde, topic, values, headers)) if column is None else column


# --- Many records per call: `ColumnarBatch`.

NULL_KEY = -1
"""The code of a null key in `KeyColumn.codes`."""


class KeyColumn:
    """The keys of n records, with equal keys stored once.

    Args:
        codes: int32[n], index into `objects`; `NULL_KEY` for a null key.
        objects: The distinct keys.
        data: The bytes of `objects`; None if they are not known.
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
        """Makes a column from one key for each record."""
        objects = [key for key in keys if key is not None]
        if len(objects) == len(keys):
            return cls(np.arange(len(keys), dtype=np.int32), objects)
        there = np.fromiter((key is not None for key in keys), np.bool_, len(keys))
        return cls(np.where(there, np.cumsum(there) - 1, NULL_KEY).astype(np.int32), objects)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> Any:
        code = self.codes[row]
        return None if code == NULL_KEY else self.objects[code]

    def __iter__(self) -> Iterator[Any]:
        objects = [*self.objects, None]  # the code of a null key is the last one's index
        return (objects[code] for code in self.codes.tolist())

    def each(self) -> Iterator[Any]:
        """The key of each row. Keys that can change are copied for each row."""
        return iter(self) if all(snapshot(key) is key for key in self.objects) else map(snapshot, self)

    def take(self, rows: Any) -> KeyColumn:
        """The keys of some rows, given by indices or by a mask."""
        return KeyColumn(self.codes[rows], self.objects, self._data, self._serde)

    def compact(self) -> KeyColumn:
        """The same keys, without objects that no row uses."""
        there = self.codes != NULL_KEY
        used, codes = np.unique(self.codes[there], return_inverse=True)
        compact = np.full(len(self.codes), NULL_KEY, np.int32)
        compact[there] = codes
        data = None if self._data is None else [self._data[code] for code in used.tolist()]
        return KeyColumn(compact, [self.objects[code] for code in used.tolist()], data, self._serde)

    @classmethod
    def joined(cls, columns: Sequence[KeyColumn]) -> KeyColumn:
        """The keys of several columns, one after the other."""
        codes, objects, data = [], list[Any](), list[bytes]()
        # A column without keys has no serde that matters.
        columns = [column for column in columns if len(column)] or columns[:1]
        first = columns[0]
        if all(column.objects is first.objects for column in columns):
            # They are parts of one column, for example of a stream that was divided.
            return cls(np.concatenate([one.codes for one in columns]), first.objects, first._data, first._serde)
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
        if self._data is not None and serde == self._serde and self._are_written_so(serde, self._data):
            return list(self._data)
        return write_all(serde, topic, self.objects)

    @staticmethod
    def _are_written_so(serde: Serde, data: list[bytes]) -> bool:
        """Whether a serde certainly writes the keys that it has read as the same bytes again."""
        if is_exact(serde):
            return True
        normal = normal_keys(serde, binary_column(data)) if len(data) > FEW_ROWS else None
        return normal is not None and bool(normal.all())

    def column(self, serde: Serde, topic: str) -> pa.BinaryArray:
        """The bytes of each row's key; null for a null key."""
        data = self.encoded(serde, topic)
        if len(self.codes) <= FEW_CELLS:
            return binary_column([None if code == NULL_KEY else data[code] for code in self.codes.tolist()])
        return pa.array(data, pa.binary()).take(pa.array(self.codes, mask=self.codes == NULL_KEY))


def _nowhere(position: int) -> Any:
    return None


class HeldRows(Mapping[int, HeldRecord]):
    """The held records of a batch's rows. Each is made only when an error names it.

    Args:
        make: Makes the record that has a number.
        numbers: int64[n], the number of each row's record; -1 for a row without one.
    """

    def __init__(self, make: Callable[[int], HeldRecord], numbers: Int64s) -> None:
        self._make = make
        self._numbers = numbers

    @classmethod
    def joined(cls, parts: Sequence[tuple[Mapping[int, HeldRecord], int]]) -> Mapping[int, HeldRecord]:
        """Joins the held records of several batches; each part is a batch's held records and its length."""
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
        return iter(rows_where(self._numbers >= 0).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self._numbers >= 0))

    def take(self, rows: npt.NDArray[np.int64]) -> HeldRows:
        return HeldRows(self._make, self._numbers[rows])


@dataclass(frozen=True, slots=True)
class ColumnarBatch:
    """n records in the order in which they are processed.

    Attributes:
        values: The n values, as in `Record.value`; perhaps `EncodedValues`.
        timestamps: int64[n], milliseconds.
        order: int64[n], ascending: for each record, the position in the step of the record that it was made from.
        headers: Encoded headers of each record (`state.columns`); None if no record has any.
        place: Returns the argument of `OperatorContext.resume` for a position in the step.
        held: Row -> the record that errors name, for rows that an operator has held back.
        nodes: int64[n], which operator of a group (`Operator.lead`) each record is for; None: the only one.
    """

    keys: KeyColumn
    values: Sequence[Any]
    timestamps: Int64s
    order: Int64s
    headers: list[bytes | None] | None = None
    place: Callable[[int], Any] = _nowhere
    held: Mapping[int, HeldRecord] = field(default_factory=dict)
    nodes: Int64s | None = None

    def __len__(self) -> int:
        return len(self.values)

    def node(self, row: int) -> int:
        return 0 if self.nodes is None else int(self.nodes[row])

    def take(self, rows: npt.NDArray[np.int64]) -> ColumnarBatch:
        """The records of these rows, in this order."""
        return ColumnarBatch(
            self.keys.take(rows),
            take_values(self.values, rows),
            self.timestamps[rows],
            self.order[rows],
            None if self.headers is None else [self.headers[row] for row in rows.tolist()],
            self.place,
            self._held_of(rows),
            None if self.nodes is None else self.nodes[rows],
        )

    def _held_of(self, rows: npt.NDArray[np.int64]) -> Mapping[int, HeldRecord]:
        if isinstance(self.held, HeldRows):
            return self.held.take(rows)
        held = self.held
        return {row: held[old] for row, old in enumerate(rows.tolist()) if old in held} if held else {}

    def with_values(self, values: Sequence[Any]) -> ColumnarBatch:
        return ColumnarBatch(
            self.keys, values, self.timestamps, self.order, self.headers, self.place, self.held, self.nodes
        )

    def at(
        self, order: Int64s, nodes: Int64s | None = None, place: Callable[[int], Any] | None = None
    ) -> ColumnarBatch:
        """The same records with other positions, nodes or places; several times as fast as `replace`."""
        return ColumnarBatch(
            self.keys, self.values, self.timestamps, order, self.headers, place or self.place, self.held, nodes
        )

    def headers_of(self, row: int) -> Headers:
        return () if self.headers is None else tuple(decode_headers(self.headers[row]))

    def records(self) -> Iterator[Record]:
        headers = repeat(()) if self.headers is None else map(self.headers_of, range(len(self)))
        return map(Record, self.keys.each(), self.values, self.timestamps.tolist(), headers)

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
    """The records of several batches of a step in the step's order. At the same position, records of earlier batches come first."""
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


def of_group(batches: Sequence[ColumnarBatch]) -> ColumnarBatch:
    """The records for the operators of a group, in the order of the step. Each batch has the records for one operator."""
    if len(batches) == 1:
        return batches[0]
    whole = concatenated(batches)
    nodes = np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
    return replace(whole, nodes=nodes).take(np.argsort(whole.order, kind="stable"))


def in_order(batches: Sequence[ColumnarBatch]) -> Iterator[tuple[int, int]]:
    """For all records of several batches in the order of the step: the index of the batch, and the row in it."""
    which = np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
    rows = np.concatenate([np.arange(len(batch)) for batch in batches] or [np.empty(0, np.int64)])
    order = np.argsort(np.concatenate([batch.order for batch in batches] or [np.empty(0, np.int64)]), kind="stable")
    return zip(which[order].tolist(), rows[order].tolist(), strict=True)


class OneByOne(Exception):
    """Raised if an operator cannot process a whole batch in this way. The text gives the reason, for a counter."""


# --- The results of vectorised aggregations as columns: windowed keys, values known as JSON, updates of tables.
#
# They are sequences of the objects that other operators expect. The objects are only made if they are requested; a sink writes the
# bytes.


class WindowedKeys(KeyColumn):
    """Windowed keys.

    Args:
        inner: The keys without their windows, none null.
        starts: int64[n], ms.
        ends: int64[n], ms.
    """

    __slots__ = ("_base", "_ends", "_inner", "_objects", "_starts")

    def __init__(self, inner: KeyColumn, starts: Int64s, ends: Int64s) -> None:
        self.codes = np.arange(len(inner), dtype=np.int32)
        self._data = self._serde = None
        self._inner, self._starts, self._ends = inner, starts, ends
        self._base: tuple[Serde, str, pa.BinaryArray] | None = None
        self._objects: list[Any] | None = None

    @property
    def objects(self) -> list[Any]:  # type: ignore[override]
        if self._objects is None:
            bounds = zip(self._inner, self._starts.tolist(), self._ends.tolist(), strict=True)
            self._objects = [Windowed(key, Window(start, end)) for key, start, end in bounds]
        return self._objects

    @property
    def inner(self) -> KeyColumn:
        """The keys without their windows."""
        return self._inner

    @property
    def starts(self) -> Int64s:
        return self._starts

    @property
    def ends(self) -> Int64s:
        return self._ends

    def take(self, rows: Any) -> WindowedKeys:
        """The keys of some rows, given by indices or by a mask."""
        return WindowedKeys(self._inner.take(rows), self._starts[rows], self._ends[rows])

    def compact(self) -> WindowedKeys:
        return self

    def column(self, serde: Serde, topic: str) -> pa.BinaryArray:
        base = self.base_column(serde, topic)
        if base is None:
            return super().column(serde, topic)
        bounds = [self._ends, self._starts] if isinstance(serde, SessionWindowedSerde) else [self._starts]
        if len(base) <= FEW_CELLS:
            return binary_column(list(map(add, base.to_pylist(), long_cells(*bounds))))
        return pc.binary_join_element_wise(base, *map(packed, bounds), NOTHING)

    def base_column(self, serde: Serde, topic: str) -> pa.BinaryArray | None:
        """The bytes of the keys without their windows; None unless the serde writes them before the windows' bounds."""
        if not isinstance(serde, TimeWindowedSerde | CustomWindowedSerde | SessionWindowedSerde):
            return None
        if not reads_alone(serde.inner):
            return None
        if self._base is None or self._base[:2] != (serde.inner, topic):
            self._base = serde.inner, topic, self._inner.column(serde.inner, topic)
        base = self._base[2]
        return None if base.null_count else base


class JsonValues(WrittenValues):
    """n values whose JSON is known.

    Args:
        texts: The values as JSON; null for None.
        make: Makes the values as objects.
    """

    def __init__(self, texts: BinaryColumn, make: Callable[[], list[Any]]) -> None:
        self._texts = texts
        self._make = make
        self._objects: list[Any] | None = None

    def column(self, serde: Serde, topic: str) -> BinaryColumn | None:
        """The texts; None if the objects were handed out and may have changed, or if the serde writes anything but plain JSON."""
        return self._texts if self._objects is None and is_plain_json(serde) else None

    @property
    def objects(self) -> list[Any]:
        if self._objects is None:
            self._objects = self._make()
        return self._objects

    def fresh(self) -> EncodedValues:
        """The same values as new objects, read from the texts, that no other code has."""
        return EncodedValues(self._texts, JsonSerde(), "", {})

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.objects)

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Any]: ...
    def __getitem__(self, row: int | slice) -> Any:
        return self.objects[row]


class Changes(ValueColumn):
    """n updates of a table, each the latest update of its key.

    Args:
        new: The new values.
        old: The old values; None if they are not needed.
    """

    def __init__(self, new: Sequence[Any], old: Sequence[Any] | None) -> None:
        self.new = new
        self.old = old

    @classmethod
    def of(cls, changes: Sequence[Any]) -> Changes:
        if isinstance(changes, Changes):
            return changes
        return cls([one.new for one in changes], [one.old for one in changes])

    def take(self, rows: Int64s) -> Changes:
        return Changes(take_values(self.new, rows), None if self.old is None else take_values(self.old, rows))

    def fresh(self) -> Changes:
        return Changes(fresh_values(self.new), None if self.old is None else fresh_values(self.old))

    def joined(self, parts: Sequence[Changes]) -> Changes:
        """The updates of several columns, one after the other."""
        olds = [part.old if part.old is not None else [None] * len(part) for part in parts]
        known = any(part.old is not None for part in parts)
        return Changes(join_values([part.new for part in parts]), join_values(olds) if known else None)

    def __len__(self) -> int:
        return len(self.new)

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Any]: ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return Changes(self.new[row], None if self.old is None else self.old[row])
        return Change(self.new[row], None if self.old is None else self.old[row])

    def __iter__(self) -> Iterator[Any]:
        return map(Change, self.new, repeat(None) if self.old is None else self.old)


def packed(numbers: npt.NDArray[np.int64]) -> pa.BinaryArray:
    """Each number as 8 bytes, big endian."""
    cells = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(8), len(numbers), [None, pa.py_buffer(numbers.astype(">i8"))]
    )
    return cells.cast(pa.binary())


def window_ends(keys: KeyColumn) -> Int64s:
    """The ends of the windows of windowed keys, ms."""
    return keys.ends if isinstance(keys, WindowedKeys) else np.array([key.window.end for key in keys], np.int64)
