"""`EncodedValues`: the values of many records as they were read, decoded when somebody asks for them.

A table that is filled, or a stream that goes straight to another topic, writes what it reads. Its values stay bytes where the
serde would write the same bytes anew; everybody who looks at a value still sees an object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryColumn, binary_column, one_column, replaced
from streams.serdes.base import Headers, Serde
from streams.serdes.columns import read_all, write_all
from streams.serdes.json import is_plain_json

_ENCODED: Any = object()
_PART = 512
Int64s = npt.NDArray[np.int64]


class ValueColumn(Sequence[Any], ABC):
    """A sequence of values some of which can be taken without looking at them."""

    @abstractmethod
    def take(self, rows: Int64s) -> Sequence[Any]: ...

    def joined(self, parts: Sequence[Any]) -> Sequence[Any]:
        """The values of several columns of this class, one after the other."""
        return list(chain.from_iterable(parts))


class WrittenValues(Sequence[Any], ABC):
    """A sequence of values some or all of whose bytes are known."""

    @abstractmethod
    def column(self, serde: Serde, topic: str) -> BinaryColumn | None:
        """The bytes of all values, as the serde would write them; None if they are not known for this serde.

        Raises:
            SerdeError: A value cannot be written.
        """


class EncodedValues(WrittenValues, ValueColumn):
    """A sequence of n values. Each is decoded once, so that a change of the object is seen by everybody who asks for it.

    Attributes:
        serde: What reads the values.

    Args:
        cells: The bytes; null for None.
        serde: Reads the cells without errors.
        topic: The topic of the cells.
        objects: The values of rows that are known already, by row; those of cells that are read as None.
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
            # Who asks for one row asks for the next one, too.
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
        """All values, one after the other. Those that nobody has asked for are read in small parts, and not kept.

        Reading is several times as fast when few objects live at once: memory is used again, and there is less to collect.
        """
        return chain.from_iterable(map(self._part, range(0, len(self), _PART)))

    def _part(self, start: int) -> list[Any]:
        cells = self._cells.slice(start, _PART).to_pylist()
        values = read_all(self.serde, self._topic, cells, None)
        for row in np.flatnonzero(self._decoded[start : start + _PART]).tolist():
            values[row] = self._objects[start + row]
        return values

    def take(self, rows: Int64s) -> EncodedValues:
        """The values of some rows; those that were decoded are the same objects."""
        cells = self._cells.take(pa.array(rows))
        taken = EncodedValues(cells, self.serde, self._topic, {}, self._normal[rows])
        taken._decoded = self._decoded[rows]
        if taken._decoded.any():
            taken._objects = [self._objects[row] for row in rows.tolist()]
        return taken

    def joined(self, parts: Sequence[Any]) -> Sequence[Any]:
        """The values of several columns, as bytes if one serde reads all of them; their topics are in no bytes."""
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
        """Whether nobody has got an object, so that the bytes say all of the values."""
        return all(self._objects[row] is None for row in np.flatnonzero(self._decoded).tolist())

    @property
    def nulls(self) -> npt.NDArray[np.bool_]:
        nulls: npt.NDArray[np.bool_] = self._cells.is_null().to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(self._decoded).tolist():
            nulls[row] = self._objects[row] is None
        return nulls

    def column(self, serde: Serde, topic: str) -> BinaryColumn:
        """The bytes of all values, written anew if they are not normal, or if somebody has got the object, and may have changed it.

        Raises:
            SerdeError: A value cannot be written.
        """
        if serde != self.serde:
            return binary_column(write_all(serde, topic, self.at(range(len(self)))))
        anew = np.flatnonzero(self._decoded | ~self._normal)
        if not len(anew):
            return self._cells
        return replaced(self._cells, anew, binary_column(write_all(serde, topic, self._objects_at(anew))))

    def _objects_at(self, rows: Int64s) -> list[Any]:
        """The values of some rows, of which those that nobody has asked for are read and not kept."""
        unread = rows[~self._decoded[rows]]
        read = iter(read_all(self.serde, self._topic, self._cells.take(pa.array(unread)).to_pylist(), None))
        return [next(read) if self._objects[row] is _ENCODED else self._objects[row] for row in rows.tolist()]


def unread_json(values: Sequence[Any] | None) -> BinaryColumn | None:
    """The bytes of values that are JSON, as orjson writes them; None if somebody has got the objects, or has only these."""
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
    """The values of some rows, one after the other; what was bytes is read now, and not kept."""
    each = values.each() if isinstance(values, EncodedValues) else iter(values)
    counts = np.bincount(rows, minlength=len(values))
    return each if (counts == 1).all() else chain.from_iterable(map(repeat, each, counts.tolist()))


def take_values(values: Sequence[Any], rows: Int64s) -> Sequence[Any]:
    """The values of some rows, as bytes where they are bytes."""
    return values.take(rows) if isinstance(values, ValueColumn) else values_at(values, rows)


def value_column(
    values: Sequence[Any], serde: Serde, topic: str, headers: Sequence[Headers] | None = None
) -> BinaryColumn:
    """The bytes of many values.

    Raises:
        SerdeError: A value cannot be written.
    """
    column = values.column(serde, topic) if isinstance(values, WrittenValues) else None
    return binary_column(write_all(serde, topic, values, headers)) if column is None else column
