"""`Responses`: the answers of the right side of a foreign-key join, whose values are written once each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from state.columns import BinaryColumn, binary_column
from streams.model.foreign_key import Response
from streams.operators.columnar import Int64s
from streams.operators.encoded_values import WrittenValues, value_column
from streams.serdes.base import Serde
from streams.serdes.foreign_key import ResponseSerde, response_cells


class Responses(WrittenValues):
    """n responses.

    Args:
        hashes: Their hashes.
        values: Right values; None for none.
        rows: int64[n], the index in `values` of each response.
    """

    def __init__(self, hashes: Sequence[bytes | None], values: Sequence[Any], rows: Int64s) -> None:
        self._hashes = hashes
        self._values = values
        self._rows = rows

    def column(self, serde: Serde, topic: str) -> BinaryColumn | None:
        if not isinstance(serde, ResponseSerde):
            return None
        values = value_column(self._values, serde.value, topic).take(pa.array(self._rows))
        return binary_column(response_cells(self._hashes, values.to_pylist()))

    def __len__(self) -> int:
        return len(self._hashes)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return Responses(self._hashes[row], self._values, self._rows[row])
        return Response(self._hashes[row], self._values[self._rows[row]])
