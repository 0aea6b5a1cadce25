"""The interfaces of `state.stores`' byte stores that the typed stores need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.stores.byte_stores import SessionRows, WindowRows
from state.tables.table import RangeRows


class KeyValueBytes(Protocol):
    """`state.stores`' key-value store; values of timestamped kinds are `timestamp(8) ∥ value`, read and written."""

    def get(self, key: bytes) -> bytes | None: ...

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Local values, in the order of the keys."""

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None: ...

    def get_columns(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """`multi_get` for a column, null where a key has no value."""

    def put_columns(self, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: npt.NDArray[np.int64]) -> None: ...

    def scan_prefixes(self, prefixes: pa.BinaryArray) -> RangeRows: ...

    def range(self, lower: bytes | None, upper: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Rows with lower <= key <= upper; None = open."""

    def range_columns(self, lower: bytes, upper: bytes) -> RangeRows: ...

    def prefix(self, prefix: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Rows whose key starts with these bytes."""


class WindowBytes(Protocol):
    """`state.stores`' window store; values as in `KeyValueBytes`."""

    @property
    def oldest_ms(self) -> int:
        """Rows with earlier starts are expired."""

    def put(self, key: bytes, start: int, value: bytes | None, timestamp: int) -> None: ...

    @property
    def earliest_start(self) -> int:
        """The smallest start of a window that the store still takes, ms."""

    def fetch(self, key: bytes, start: int) -> bytes | None: ...

    def multi_fetch(self, windows: Sequence[tuple[bytes, int]]) -> list[bytes | None]:
        """Local values of several windows."""

    def put_columns(
        self,
        keys: pa.BinaryArray,
        starts: npt.NDArray[np.int64],
        values: pa.BinaryArray,
        timestamps: npt.NDArray[np.int64],
    ) -> None: ...

    def fetch_columns(self, keys: pa.BinaryArray, starts: npt.NDArray[np.int64]) -> pa.BinaryArray:
        """`multi_fetch` for a column, null where a window has no value."""

    def fetch_ranges(
        self, keys: pa.BinaryArray, from_ms: npt.NDArray[np.int64], to_ms: npt.NDArray[np.int64]
    ) -> WindowRows:
        """`fetch_range` for a column of keys."""

    def fetch_range(self, key: bytes, from_ms: int, to_ms: int, reverse: bool = False) -> Iterator[tuple[int, bytes]]:
        """Windows of a key with from <= start <= to."""

    def fetch_all(self, from_ms: int, to_ms: int, reverse: bool = False) -> Iterator[tuple[bytes, int, bytes]]:
        """Windows of all keys with from <= start <= to."""


class SessionBytes(Protocol):
    """`state.stores`' session store."""

    def put(self, key: bytes, start: int, end: int, value: bytes | None, timestamp: int) -> None: ...

    @property
    def earliest_end(self) -> int:
        """The smallest end of a session that the store still takes, ms."""

    def fetch_session(self, key: bytes, start: int, end: int) -> bytes | None: ...

    def put_columns(
        self,
        keys: pa.BinaryArray,
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        values: pa.BinaryArray,
        timestamps: npt.NDArray[np.int64],
    ) -> None: ...

    def find_columns(
        self, keys: pa.BinaryArray, earliest_ends: npt.NDArray[np.int64], latest_starts: npt.NDArray[np.int64]
    ) -> SessionRows:
        """`find_sessions` for a column of keys."""

    def find_sessions(
        self, key: bytes, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[int, int, bytes]]:
        """(start, end, value) of a key's sessions with end >= earliest_end and start <= latest_start, by end."""

    def fetch_all(self, from_end: int, to_end: int, reverse: bool = False) -> Iterator[tuple[bytes, int, int, bytes]]:
        """(key, start, end, value) with from_end <= end <= to_end, by end, start, key."""
