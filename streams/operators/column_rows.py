"""Rows as columns: what a vectorised operator gets instead of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

ABSENT: Final = 0
INT: Final = 1
FLOAT: Final = 2
TEXT: Final = 3
"""Kinds of a cell: missing or null; whole number; number with a fraction or exponent; anything else, as JSON text."""


@dataclass(frozen=True, slots=True)
class FieldColumn:
    """One declared field of the values.

    Attributes:
        kinds: uint8[n], one of `ABSENT`, `INT`, `FLOAT`, `TEXT`.
        ints: int64[n], where the kind is `INT`; else 0.
        floats: float64[n], where the kind is `FLOAT`; else 0.
        texts: JSON text of the cells that are `TEXT`, by row.
    """

    kinds: npt.NDArray[np.uint8]
    ints: npt.NDArray[np.int64]
    floats: npt.NDArray[np.float64]
    texts: dict[int, bytes]


@dataclass(frozen=True, slots=True)
class ColumnRows:
    """n records in the order in which they are to be processed.

    Attributes:
        keys: The distinct keys' bytes.
        key_codes: int32[n], index into `keys`; -1 = no key.
        timestamps: int64[n], milliseconds.
        null_values: bool[n], whether the record's value is null.
        fields: Columns by field path.
    """

    keys: list[bytes]
    key_codes: npt.NDArray[np.int32]
    timestamps: npt.NDArray[np.int64]
    null_values: npt.NDArray[np.bool_]
    fields: dict[str, FieldColumn]

    def __len__(self) -> int:
        return len(self.timestamps)
