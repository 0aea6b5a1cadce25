"""Bytes and floats as JSON has them: base64, and texts for the numbers that it lacks, as in Protocol Buffers' JSON."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from typing import Any

NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""How the floats are written that JSON does not have."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")


def bytes_of(data: Any) -> bytes:
    """The bytes of base64, of either alphabet (RFC 4648, sections 4 and 5). Raises `ValueError` if it is none."""
    try:
        if isinstance(data, str) and _BASE64.fullmatch(data):
            text = data.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
            return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except NotBase64:
        pass
    raise ValueError("bytes are written in base64")


def float_of(data: Any) -> Any:
    """A number as it is written for a float; what is none stays as it is.

    Raises:
        ValueError: A float does not have all digits of the integer.
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
