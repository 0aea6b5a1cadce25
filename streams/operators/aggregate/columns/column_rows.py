"""Rows as columns: the input of a vectorised operator in place of records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.kafka.headers import decode_headers
from streams.model.record import Headers

ABSENT: Final = 0
INT: Final = 1
FLOAT: Final = 2
TEXT: Final = 3
"""Kinds of a cell: missing or null; integer; number with a fraction or exponent; anything else, as JSON text."""


@dataclass(frozen=True, slots=True)
class FieldColumn:
    """One declared field of the values.

    Attributes:
        kinds: uint8[n], one of `ABSENT`, `INT`, `FLOAT`, `TEXT`.
        ints: int64[n], where the kind is `INT`; else 0.
        floats: float64[n], where the kind is `FLOAT`; else 0.
        texts: binary[n], JSON text where the kind is `TEXT`, else null; None if no cell is.
    """

    kinds: npt.NDArray[np.uint8]
    ints: npt.NDArray[np.int64]
    floats: npt.NDArray[np.float64]
    texts: pa.BinaryArray | None


@dataclass(frozen=True, slots=True)
class ColumnRows:
    """n records in the order in which they are to be processed.

    Attributes:
        keys: The distinct keys' bytes.
        key_codes: int32[n], index into `keys`; -1 = no key.
        timestamps: int64[n], milliseconds.
        null_values: bool[n], whether the record's value is null.
        fields: Columns by field path.
        without_fields: bool[n], whether the record's value is a text, a number or the like; None if no value is.
        headers: Encoded headers of each record (`state.kafka.headers`); None if no record has any.
        place: The argument of `OperatorContext.resume` that makes a row's record the current one.
    """

    keys: list[bytes]
    key_codes: npt.NDArray[np.int32]
    timestamps: npt.NDArray[np.int64]
    null_values: npt.NDArray[np.bool_]
    fields: dict[str, FieldColumn]
    without_fields: npt.NDArray[np.bool_] | None = None
    headers: list[bytes | None] | None = None
    place: Callable[[int], Any] = lambda row: None

    def __len__(self) -> int:
        return len(self.timestamps)

    def headers_of(self, row: int) -> Headers:
        """Decoded headers of one record."""
        return () if self.headers is None else tuple(decode_headers(self.headers[row]))
