"""The bytes of many records at once: a sample text whose marked places are filled with columns of digits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from topologies.devices_data import digits

Ints = npt.NDArray[np.int64]


def texts(sample: str, fields: Mapping[str, Ints], count: int) -> pa.BinaryArray:
    """`count` copies of a sample, each with its own numbers.

    Args:
        sample: The text. It contains each mark once.
        fields: From mark (such as `NNNNNNNN`) to the numbers that replace it, zero-padded to the mark's length.
        count: The number of records.
    """
    data = np.empty((count, len(sample)), np.uint8)
    data[:] = np.frombuffer(sample.encode(), np.uint8)
    for mark, numbers in fields.items():
        at = sample.index(mark)
        data[:, at : at + len(mark)] = digits(numbers, len(mark))
    return binary(data)


def binary(rows: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Rows of equal length as an Arrow column, without a copy of the data."""
    count, width = rows.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(rows)])


def padded(start: str, width: int) -> str:
    """A JSON object of exactly `width` characters: `start`, then the field `pad`."""
    body = f'{start},"pad":"'
    return body + "x" * (width - len(body) - 2) + '"}'
