"""Byte formats of keys and values, Kafka Streams' own, so that JVM tools can read stores' changelogs.

All numbers are big endian. The class names are those of Kafka Streams' `org.apache.kafka.streams.state.internals`.
Local keys have two prefixes before these bytes: the store's id(2), and in segmented stores the segment(8).
Timestamps and window starts are never negative, so the unsigned order of the bytes is the order of time.
"""

from __future__ import annotations

import struct

_LONG = struct.Struct(">q")
_WINDOW = struct.Struct(">qi")
_SESSION = struct.Struct(">qq")
_PREFIX = struct.Struct(">H")
_SEGMENT = struct.Struct(">Hq")

WINDOW_SUFFIX = _WINDOW.size
SESSION_SUFFIX = _SESSION.size
TIMESTAMP_BYTES = _LONG.size
MAX_TIME = 2**63 - 1
MAX_SEQUENCE = 2**31 - 1

pack_long = _LONG.pack
pack_window_suffix = _WINDOW.pack
pack_session_suffix = _SESSION.pack
pack_store_prefix = _PREFIX.pack
pack_segment_prefix = _SEGMENT.pack


def split_window_key(data: bytes) -> tuple[bytes, int, int]:
    """Key, window start, sequence number of `key ∥ start(8) ∥ seq(4)` (`WindowKeySchema.toStoreKeyBinary`)."""
    start, sequence = _WINDOW.unpack_from(data, len(data) - WINDOW_SUFFIX)
    return data[:-WINDOW_SUFFIX], start, sequence


def window_start(data: bytes) -> int:
    """The window start in a window key."""
    return int.from_bytes(data[-12:-4], "big")


def split_session_key(data: bytes) -> tuple[bytes, int, int]:
    """Key, session end, session start of `key ∥ end(8) ∥ start(8)` (`SessionKeySchema.toBinary`)."""
    end, start = _SESSION.unpack_from(data, len(data) - SESSION_SUFFIX)
    return data[:-SESSION_SUFFIX], end, start


def timestamped(value: bytes, timestamp: int) -> bytes:
    """`timestamp(8) ∥ value` (`ValueAndTimestampSerializer`): the local value of timestamped kinds."""
    return _LONG.pack(timestamp) + value


def split_timestamped(data: bytes) -> tuple[bytes, int]:
    """Bare value and timestamp of a local value of a timestamped kind."""
    return data[8:], int.from_bytes(data[:8], "big", signed=True)


def prefix_end(prefix: bytes) -> bytes | None:
    """The smallest byte string above all that start with `prefix`; None if there is none (all 0xff, or empty)."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))
