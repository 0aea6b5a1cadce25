"""JSON text of what is shown: answers over HTTP, lines of commands, samples."""

from __future__ import annotations

from math import isfinite
from typing import Any

import orjson

from streams.serdes.json_text import dumps


def shown_json(data: Any) -> bytes:
    """Plain data as JSON, with integers of any size; NaN and infinity, which JSON does not have, are null."""
    try:
        return orjson.dumps(data)
    except TypeError:
        return dumps(_finite(data))


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if isfinite(data) else None
    if isinstance(data, dict):
        return {name: _finite(part) for name, part in data.items()}
    return [_finite(part) for part in data] if isinstance(data, list | tuple) else data
