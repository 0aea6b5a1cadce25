"""Key-value stores, plain and timestamped, as bytes.

Values are local values: of a timestamped store `codec.timestamped(value, timestamp)`, both when read and when written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.stores.codec import prefix_end
from state.stores.spec import StoreSpec
from state.tables.binary_columns import joined, prefix_ends, sliced
from state.tables.buffer import WriteBuffer
from state.tables.table import RangeRows, Row


class KeyValueBytesStore:
    """Rows sorted by the unsigned bytes of the keys; any bytes may be a key, including none.

    Args:
        spec: The store.
        buffer: The task's writes over its table.
        prefix: First bytes of its local keys.
    """

    def __init__(self, spec: StoreSpec, buffer: WriteBuffer, prefix: bytes) -> None:
        self.spec = spec
        self._buffer = buffer
        self._prefix = prefix
        end = prefix_end(prefix)
        assert end is not None
        self._end: bytes = end
        self._skip = len(prefix)

    def get(self, key: bytes) -> bytes | None:
        """The local value, None if there is none."""
        return self._buffer.get(self._prefix + key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The local values of several keys, in their order."""
        prefix = self._prefix
        return self._buffer.multi_get([prefix + key for key in keys])

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Writes a local value, None deletes."""
        self._buffer.put(self._prefix + key, value, timestamp)

    def get_columns(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """The local values of a column of keys (none null), null where a key has none. Sorted keys are the fastest."""
        return self._buffer.get_columns(self._local(keys))

    def put_columns(self, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: npt.NDArray[np.int64]) -> None:
        """Writes a column of rows, as `put` row by row would; null deletes."""
        self._buffer.put_columns(self._local(keys), values, timestamps)

    def scan_prefixes(self, prefixes: pa.BinaryArray) -> RangeRows:
        """Rows whose key starts with each of these bytes (`prefix` for a column). Sorted prefixes are the fastest."""
        lowers = self._local(prefixes)
        found = self._buffer.scan_ranges(lowers, prefix_ends(lowers))
        return found._replace(keys=sliced(found.keys, self._skip))

    def range_columns(self, lower: bytes, upper: bytes) -> RangeRows:
        bounds = ([self._prefix + lower], [self._prefix + upper + b"\x00"])
        found = self._buffer.scan_ranges(*(pa.array(bound, pa.binary()) for bound in bounds))
        return found._replace(keys=sliced(found.keys, self._skip))

    def _local(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        return joined(pa.scalar(self._prefix, pa.binary()), keys)

    def put_if_absent(self, key: bytes, value: bytes | None, timestamp: int) -> bytes | None:
        """Writes unless the key has a value, and returns the value that the key had."""
        old = self.get(key)
        if old is None:
            self.put(key, value, timestamp)
        return old

    def range(self, lower: bytes | None, upper: bytes | None, reverse: bool = False) -> Iterator[Row]:
        """Rows with lower <= key <= upper (both inclusive, None = open), as of now."""
        start = self._prefix if lower is None else self._prefix + lower
        # No key lies between `upper` and `upper ∥ 0x00`.
        end = self._end if upper is None else self._prefix + upper + b"\x00"
        return self._rows(start, end, reverse)

    def prefix(self, prefix: bytes, reverse: bool = False) -> Iterator[Row]:
        """Rows whose key starts with these bytes (Kafka Streams: `prefixScan`)."""
        start = self._prefix + prefix
        end = prefix_end(start)
        assert end is not None
        return self._rows(start, end, reverse)

    def all(self, reverse: bool = False) -> Iterator[Row]:
        return self._rows(self._prefix, self._end, reverse)

    def delete_range(self, lower: bytes | None, upper: bytes | None, timestamp: int) -> int:
        """Deletes the rows of a range, each with a tombstone in the changelog, and returns their number."""
        keys = [key for key, _ in self.range(lower, upper)]
        for key in keys:
            self.put(key, None, timestamp)
        return len(keys)

    def _rows(self, start: bytes, end: bytes, reverse: bool) -> Iterator[Row]:
        if start >= end:
            return iter(())
        skip = self._skip
        return ((key[skip:], value) for key, value in self._buffer.scan(start, end, reverse))
