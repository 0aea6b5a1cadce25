"""The results of vectorised aggregations as columns: windowed keys, values known as JSON, updates of tables.

They are sequences of the objects that other operators expect, which are made only if someone asks for them; a sink takes the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import NOTHING, BinaryColumn
from streams.model.record import Change, Window, Windowed
from streams.operators.columnar import Int64s, KeyColumn
from streams.operators.encoded_values import ValueColumn, WrittenValues, join_values, take_values
from streams.serdes.base import Serde
from streams.serdes.columns import reads_alone
from streams.serdes.json import is_plain_json
from streams.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde


class WindowedKeys(KeyColumn):
    """Keys and windows.

    Args:
        inner: The keys without their windows, none null.
        starts: int64[n], ms.
        ends: int64[n], ms.
    """

    __slots__ = ("_ends", "_inner", "_objects", "_starts")

    def __init__(self, inner: KeyColumn, starts: Int64s, ends: Int64s) -> None:
        self.codes = np.arange(len(inner), dtype=np.int32)
        self._data = self._serde = None
        self._inner, self._starts, self._ends = inner, starts, ends
        self._objects: list[Any] | None = None

    @property
    def objects(self) -> list[Any]:  # type: ignore[override]
        if self._objects is None:
            bounds = zip(self._inner, self._starts.tolist(), self._ends.tolist(), strict=True)
            self._objects = [Windowed(key, Window(start, end)) for key, start, end in bounds]
        return self._objects

    @property
    def ends(self) -> Int64s:
        return self._ends

    def take(self, rows: Any) -> WindowedKeys:
        """The keys of some rows, given by indices or by a mask."""
        return WindowedKeys(self._inner.take(rows), self._starts[rows], self._ends[rows])

    def column(self, serde: Serde, topic: str) -> pa.BinaryArray:
        base = self.base_column(serde, topic)
        if base is None:
            return super().column(serde, topic)
        bounds = [self._starts] if type(serde) is TimeWindowedSerde else [self._ends, self._starts]
        return pc.binary_join_element_wise(base, *map(packed, bounds), NOTHING)

    def base_column(self, serde: Serde, topic: str) -> pa.BinaryArray | None:
        """The bytes of the keys without their windows; None unless the serde writes them in front of the windows' bounds."""
        if not isinstance(serde, TimeWindowedSerde | SessionWindowedSerde) or not reads_alone(serde.inner):
            return None
        base = self._inner.column(serde.inner, topic)
        return None if base.null_count else base


class JsonValues(WrittenValues):
    """n values that are known as JSON.

    Args:
        texts: The values as JSON; null for None.
        make: Makes the values as objects.
    """

    def __init__(self, texts: BinaryColumn, make: Callable[[], list[Any]]) -> None:
        self._texts = texts
        self._make = make
        self._objects: list[Any] | None = None

    def column(self, serde: Serde, topic: str) -> BinaryColumn | None:
        """The texts, unless somebody has got the objects, and may have changed them."""
        return self._texts if self._objects is None and is_plain_json(serde) else None

    @property
    def objects(self) -> list[Any]:
        if self._objects is None:
            self._objects = self._make()
        return self._objects

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
    """n updates of a table, each the latest one of its key.

    Args:
        new: The new values.
        old: The old ones; None if nobody needs them.
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
