"""Bytes and floats in JSON: base64, and texts for the numbers that JSON lacks, as in Protocol Buffers' JSON."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from typing import Any

NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""The texts for the floats that JSON does not have."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")


def bytes_of(data: Any) -> bytes:
    """Decodes base64 of either alphabet (RFC 4648, sections 4 and 5). Raises `ValueError` for other text."""
    try:
        if isinstance(data, str) and _BASE64.fullmatch(data):
            text = data.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
            return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except NotBase64:
        pass
    raise ValueError("bytes are written in base64")


def float_of(data: Any) -> Any:
    """The float of a text such as `"NaN"`; other data stays as it is.

    Raises:
        ValueError: The data is an integer with more digits than a float holds.
    """
    if data in NOT_FINITE:
        return float(data)
    try:
        exact = isinstance(data, bool) or not isinstance(data, int) or float(data) == data
    except OverflowError:
        exact = False
    if not exact:
        raise ValueError("a float does not have all digits of this integer")
    return data
