"""A digest of where functions of the topology have routed the records of a range.

A key made by a function before the shuffle decides which task gets the record. If another attempt of the micro-batch makes
another key, a task that has already committed would miss the record, or a second task would process it again. The digest goes
into the task's commit marker; an attempt that finds the step committed compares the digest with its own.

A dead letter in a record's place counts with its offset and stage, because the function may fail in one attempt alone.

Invariant: the same records and keys give the same digest, whatever the sizes of the pieces they are read in.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class RoutingDigests:
    """Digests by task, with entries kept apart: pieces of one entry come in order, those of two entries do not."""

    def __init__(self) -> None:
        self._columns: dict[tuple[int, int], tuple[Any, ...]] = {}

    def add(self, task: int, entry: int, rows: pa.RecordBatch) -> None:
        """Adds rows of an entry for a task, in their order: their columns `offset`, `seq` and `key`."""
        hashes = self._columns.get((task, entry))
        if hashes is None:
            hashes = self._columns[task, entry] = tuple(hashlib.blake2b(digest_size=8) for _ in range(4))
        keys = rows.column("key").cast(pa.binary())
        lengths = pc.binary_length(keys).fill_null(-1)
        for hash_, column in zip(hashes, (rows.column("offset"), rows.column("seq"), lengths), strict=False):
            hash_.update(np.ascontiguousarray(column.to_numpy(zero_copy_only=False)).tobytes())
        hashes[3].update(b"".join(filter(None, keys.to_pylist())))

    def by_task(self) -> dict[int, str]:
        """Task -> 16 hex digits, for the tasks that got rows."""
        tasks: dict[int, Any] = {}
        for (task, entry), hashes in sorted(self._columns.items()):
            digest = tasks.setdefault(task, hashlib.blake2b(digest_size=8))
            digest.update(b"%d:" % entry)
            for hash_ in hashes:
                digest.update(hash_.digest())
        return {task: digest.hexdigest() for task, digest in tasks.items()}
