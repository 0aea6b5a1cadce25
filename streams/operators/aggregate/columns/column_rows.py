"""Rows as columns: the input of a vectorised operator in place of records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
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


def cell(column: FieldColumn, row: int) -> Any:
    """One cell as a Python value."""
    kind = column.kinds[row]
    if kind == INT:
        return int(column.ints[row])
    if kind == FLOAT:
        return float(column.floats[row])
    if kind != TEXT or column.texts is None:
        return None
    text = column.texts[row].as_py()
    # A number is here only if it is an integer that exceeds 64 bits, which orjson would read as a double.
    return int(text) if text[0] in b"-0123456789" else orjson.loads(text)


def encoded(value: Any) -> tuple[int, int, float, bytes | None]:
    """Kind, integer, number and text of a cell for a Python value. An integer beyond 64 bits is stored as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        if -(2**63) <= value < 2**63:
            return INT, value, 0.0, None
        return TEXT, 0, 0.0, str(value).encode()
    if isinstance(value, float):
        return FLOAT, 0, value, None
    return (
        (ABSENT, 0, 0.0, None)
        if value is None
        else (TEXT, 0, 0.0, orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)[:-1])
    )


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


def stream_times(rows: ColumnRows, taken: npt.NDArray[np.bool_], before: int) -> npt.NDArray[np.int64]:
    """Stream time at each row, ms.

    Args:
        rows: The rows.
        taken: bool[n], the rows that move stream time on.
        before: Stream time before the step.
    """
    times = np.maximum.accumulate(np.where(taken, rows.timestamps, before))
    return np.maximum(times, before, out=times)
