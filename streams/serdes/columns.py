"""Reads and writes many keys or values at once, with the same results as one call of the serde for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from state.columns import BinaryColumn, valid_rows
from state.exact_json import UNREADABLE, read
from streams.serdes.base import Headers, Serde
from streams.serdes.exactness import is_a
from streams.serdes.json import JsonSerde, is_plain_json
from streams.serdes.json_scan import is_utf8, normal_json
from streams.serdes.keys import JsonKeySerde
from streams.serdes.primitives import (
    BytesSerde,
    StringSerde,
    UuidSerde,
)

_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"


def normal_cells(serde: Serde, cells: BinaryColumn) -> npt.NDArray[np.bool_] | None:
    """Whether a serde reads each cell without an error, and would write the same bytes again; False where that is uncertain.

    True for null cells. The result is None if the serde cannot find out faster than by reading.
    """
    if is_plain_json(serde) or is_a(type(serde), (JsonKeySerde,)):
        normal = normal_json(cells, not is_plain_json(serde))
        normal |= cells.is_null().to_numpy(zero_copy_only=False)
        return normal
    if type(serde) is StringSerde:
        return np.full(len(cells), is_utf8(cells))
    if type(serde) is UuidSerde:
        written: npt.NDArray[np.bool_] = pc.match_substring_regex(cells, _UUID).fill_null(True).to_numpy(False)
        return written
    return np.ones(len(cells), np.bool_) if type(serde) is BytesSerde else None


def normal_keys(serde: Serde, cells: BinaryColumn) -> npt.NDArray[np.bool_] | None:
    """`normal_cells` for keys, which are often objects of any fields: `group_by(fields("user", "city"))`."""
    if type(serde) is not JsonSerde or serde.kind != dict[str, Any]:
        return normal_cells(serde, cells)
    objects: npt.NDArray[np.bool_] = pc.starts_with(cells, b"{").fill_null(True).to_numpy(zero_copy_only=False)
    return (normal_json(cells) | ~valid_rows(cells)) & objects


def read_all(serde: Serde, topic: str, cells: Sequence[bytes | None], headers: Sequence[Headers] | None) -> list[Any]:
    """Reads the object of each cell.

    Args:
        serde: The serde.
        topic: The topic that the cells come from.
        cells: The bytes.
        headers: The headers of each record; None: no record has any.

    Raises:
        SerdeError: A cell cannot be read.
    """
    if is_plain_json(serde) or type(serde) is JsonKeySerde:
        try:
            read_json = read
            return [None if cell is None else read_json(cell) for cell in cells]
        except UNREADABLE:
            pass  # the serde's own error names the cell
    if type(serde) is StringSerde:
        try:
            if None not in cells:
                return list(map(bytes.decode, cells))  # type: ignore[arg-type]
            return [None if cell is None else cell.decode() for cell in cells]
        except UnicodeDecodeError:
            pass
    read_one = serde.deserialize
    if headers is None:
        return [read_one(topic, cell, ()) for cell in cells]
    return [read_one(topic, cell, of_cell) for cell, of_cell in zip(cells, headers, strict=True)]


def write_all(
    serde: Serde, topic: str, objects: Sequence[Any], headers: Sequence[Headers] | None = None
) -> list[bytes | None]:
    """Writes the bytes of each object; the arguments and errors are as for `read_all`."""
    if is_plain_json(serde):
        try:
            return cast("JsonSerde", serde).write_all(objects)
        except (TypeError, ValueError):
            pass
    write = serde.serialize
    if headers is None:
        return [write(topic, value, ()) for value in objects]
    return [write(topic, value, of_value) for value, of_value in zip(objects, headers, strict=True)]
