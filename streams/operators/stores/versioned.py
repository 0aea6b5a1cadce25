"""The typed store of versioned tables (KIP-889): every value of a key, with the time from which it is valid."""

from __future__ import annotations

from typing import Protocol

from state.stores.byte_stores import NOT_PUT, VALID_TO_UNDEFINED, VersionedRecord
from streams.model.record import ValueAndTimestamp
from streams.operators.stores.codec import Codec

__all__ = ["NOT_PUT", "VALID_TO_UNDEFINED", "TypedVersionedStore"]


class VersionedBytes(Protocol):
    """`state.stores`' versioned store; values are bare."""

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> int:
        """Write a version; see `VersionedStore.put`."""

    def get(self, key: bytes, as_of: int | None = None) -> VersionedRecord | None:
        """The newest version, or the one valid at a time."""


class TypedVersionedStore:
    """A table with history: key and time -> value and the time from which it is valid.

    There is no cache: two updates of a key in one step are two versions.
    """

    def __init__(self, rows: VersionedBytes, codec: Codec) -> None:
        self._rows = rows
        self.codec = codec

    def put(self, key: object, value: object, timestamp: int) -> int:
        """Write a version; None = deleted from `timestamp` (ms) on."""
        data = self.codec.key(key)
        return self._rows.put(data, self.codec.fitting(data, self.codec.value(value)), timestamp)

    def get(self, key: object, as_of: int | None = None) -> ValueAndTimestamp | None:
        """The newest value and its time, or those valid at `as_of` (ms). None if there was none, or a deletion."""
        found = self._rows.get(self.codec.key(key), as_of)
        return None if found is None else ValueAndTimestamp(self.codec.read_value(found.value), found.timestamp)
