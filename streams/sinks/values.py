"""Converts values of Arrow to JSON."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import pyarrow as pa


def as_json(value: Any, kind: pa.DataType | pa.Schema) -> bytes:
    """The JSON of a value of this type, or of a row of this schema."""
    import pyarrow as pa

    return orjson.dumps(_plain(value, pa.struct(kind) if isinstance(kind, pa.Schema) else kind), default=str)


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Converts maps, which Arrow returns as lists of pairs, and bytes, for which JSON has no form."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_map(kind):
        return {name: _plain(one, kind.item_type) for name, one in value}
    if pa.types.is_list(kind):
        return [_plain(one, kind.value_type) for one in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
