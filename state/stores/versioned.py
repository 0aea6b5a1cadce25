"""The first byte of a version's local value: a value, or the mark that the key was deleted at that time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from state.stores.codec import MAX_TIME, pack_long
from state.stores.spec import StoreSpec
from state.tables.buffer import WriteBuffer
from state.tables.table import Row

TOMBSTONE = b"\x00"
VALUE = b"\x01"


# --- Versioned key-value stores as bytes (KIP-889): every value of a key with the time from which it is valid.
#
# Local key: store(2) ∥ key ∥ timestamp(8); local value: 0x01 ∥ value, or 0x00 for a deletion at that time. One more
# row, whose key is the bare store prefix, holds the store's stream time. Versions that ended before the history are
# pruned at a put of their key; the pruning is local and never reaches the changelog.

VALID_TO_UNDEFINED = -1
"""Returned by a put of the newest version: no later version ends it (Kafka Streams: PUT_RETURN_CODE_VALID_TO_UNDEFINED)."""
NOT_PUT = -(2**63)
"""Returned by a put that is older than the history (Kafka Streams: PUT_RETURN_CODE_NOT_PUT)."""


@dataclass(frozen=True, slots=True)
class VersionedRecord:
    """One version of a key.

    Attributes:
        value: The bare value.
        timestamp: From when on the version is valid, ms.
        valid_to: Until when, exclusive; None = the newest version.
    """

    value: bytes
    timestamp: int
    valid_to: int | None


class VersionedBytesStore:
    """Versions by key and time.

    Args:
        spec: The store; `retention_ms` is the length of the history.
        buffer: The task's writes over its table.
        prefix: First bytes of its local keys.
    """

    def __init__(self, spec: StoreSpec, buffer: WriteBuffer, prefix: bytes) -> None:
        self.spec = spec
        self._buffer = buffer
        self._prefix = prefix
        self._history = spec.retention_ms or 0

    @property
    def stream_time(self) -> int:
        """The largest timestamp ever put, -1 before the first."""
        data = self._buffer.get(self._prefix)
        return -1 if data is None else int.from_bytes(data, "big")

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> int:
        """Writes a version; None = deleted from then on."""
        stream_time = self.stream_time
        if timestamp < stream_time - self._history:
            return NOT_PUT
        if timestamp > stream_time:
            stream_time = timestamp
            self._buffer.put(self._prefix, pack_long(timestamp), timestamp)
        local = self._prefix + key
        self._buffer.put(local + pack_long(timestamp), TOMBSTONE if value is None else VALUE + value, timestamp)
        newer = next(self._versions(key, timestamp + 1, MAX_TIME), None)
        if newer is None:
            self._prune(key, stream_time - self._history)
            return VALID_TO_UNDEFINED
        # Compaction retains a key's last record by offset, which must be the newest version, not this older one.
        latest, data = next(self._versions(key, 0, MAX_TIME, reverse=True))
        self._buffer.put_last(local + pack_long(latest), data, latest)
        return newer[0]

    def get(self, key: bytes, as_of: int | None = None) -> VersionedRecord | None:
        """The newest version, or the one valid at a time."""
        latest = next(self._versions(key, 0, MAX_TIME, reverse=True), None)
        if latest is None:
            return None
        if as_of is None or latest[0] <= as_of:
            return _record(latest, None)
        if as_of < self.stream_time - self._history:
            return None
        found = next(self._versions(key, 0, as_of, reverse=True), None)
        if found is None:
            return None
        newer = next(self._versions(key, found[0] + 1, MAX_TIME))
        return _record(found, newer[0])

    def delete(self, key: bytes, timestamp: int) -> VersionedRecord | None:
        """Deletes the key from a time on, and returns the version that was valid then."""
        old = self.get(key, timestamp)
        self.put(key, None, timestamp)
        return old

    def _prune(self, key: bytes, horizon: int) -> None:
        """Drops versions already replaced at the horizon; the version valid at the horizon is still needed."""
        if horizon <= 0:
            return
        versions = self._versions(key, 0, horizon, reverse=True)
        next(versions, None)
        for timestamp in [timestamp for timestamp, _ in versions]:
            self._buffer.put(self._prefix + key + pack_long(timestamp), None, timestamp)

    def _versions(self, key: bytes, from_ms: int, to_ms: int, reverse: bool = False) -> Iterator[tuple[int, bytes]]:
        local = self._prefix + key
        length = len(local) + 8
        if from_ms > to_ms:
            return iter(())
        rows: Iterator[Row] = self._buffer.scan(local + pack_long(from_ms), local + pack_long(to_ms) + b"\x00", reverse)
        return ((int.from_bytes(row[-8:], "big"), data) for row, data in rows if len(row) == length)


def _record(version: tuple[int, bytes], valid_to: int | None) -> VersionedRecord | None:
    timestamp, data = version
    return None if data == TOMBSTONE else VersionedRecord(data[1:], timestamp, valid_to)
