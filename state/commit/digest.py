"""A digest of a step's changelog records, kept in its marker: a roll-forward proves with it that it saw them all."""

# ruff: noqa: D102 - members of protocols are described where they are implemented
from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class ChangelogColumns(Protocol):
    """Changelog records of one store as columns."""

    @property
    def keys(self) -> pa.Array: ...
    @property
    def values(self) -> pa.Array: ...
    @property
    def timestamps(self) -> np.ndarray: ...


def changelog_digest(changelog: Mapping[str, ChangelogColumns]) -> str:
    """16 hex digits over store names, keys, values (a tombstone differs from an empty value) and timestamps, in order."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(changelog):
        batch = changelog[name]
        digest.update(name.encode())
        for column in (batch.keys, batch.values):
            lengths = pc.binary_length(column).fill_null(-1)
            digest.update(lengths.to_numpy(zero_copy_only=False).tobytes())
            for value_buffer in _value_bytes(column):
                digest.update(value_buffer)
        digest.update(np.ascontiguousarray(batch.timestamps, dtype=np.int64).tobytes())
    return digest.hexdigest()


def _value_bytes(column: pa.Array) -> list[memoryview]:
    """The bytes of all values one after the other, without a copy."""
    if not len(column):
        return []
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    offsets = np.frombuffer(column.buffers()[1], dtype=width)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    return [memoryview(data)[int(offsets[0]) : int(offsets[-1])]] if data is not None else []
