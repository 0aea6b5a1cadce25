"""The rows that windowed and session stores find for a column of keys, as columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class WindowRows(NamedTuple):
    """Rows of a window store, columns of equal length, ordered by request, start and order of writing.

    Attributes:
        requests: int32[n], index of the key that a row was found for.
        starts: int64[n], ms.
        values: binary[n], local values, none null.
    """

    requests: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    values: pa.BinaryArray


class SessionRows(NamedTuple):
    """Sessions, columns of equal length, ordered by request, end and start.

    Attributes:
        requests: int32[n], index of the key that a session was found for.
        starts: int64[n], ms.
        ends: int64[n], ms.
        values: binary[n], aggregates, none null.
    """

    requests: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    values: pa.BinaryArray
