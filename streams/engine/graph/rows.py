"""The rows between the reader and the task: their format, and digests that show whether they still go to the same tasks.

A `RowBatch` is a run of rows of one topic-partition for one task and one entry of the sub-topology. It is sent as
one Arrow IPC stream, with topic, partition and entry in the schema metadata, so that a blob is self-describing.

Columns of raw and object rows: `offset` int64, `seq` int32 (n-th row made from that record), `timestamp` int64,
`key` binary, `value` binary, `headers` binary (optional), `source_key` and `source_value` binary (optional: the
original bytes, sent along with object, written and columns rows when a dead-letter topic may need them).
The `value` of a written row is JSON, or pickled (`streams.engine.reader.written_values`), and its `key` may be a dictionary.
Columns of a columns entry: `offset`, `seq`, `timestamp`, `key` (dictionary of binary), `headers`, `source_key` and
`source_value` (optional; a `source_key` of nulls says that the key is new and the original one unknown), `null` bool
(optional: the value is null), `scalar` bool (optional: the value is a text, a number or the like), then for each field
`i:<path>` int64, `d:<path>` float64 and `j:<path>` binary (JSON text), each only if it has values.

Invariants: rows of a batch are in (offset, seq) order; a timestamp of `NOW` stands for the step's wall clock.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

DEAD_LETTER_ENTRY: Final = -1
"""Entry number of rows that go to the dead-letter topic unchanged."""

NOW: Final = -(2**63)
"""Timestamp written by the reader for `WallclockTimestampExtractor`; the task replaces it by the step's wall clock."""

NULL: Final = "null"
SCALAR: Final = "scalar"
"""A columns entry has these columns only if one of its values is null, or is a text, a number or the like."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows of one topic-partition for one task.

    Attributes:
        topic: Source topic.
        partition: Source partition.
        entry: Index of the `TaskInput` of the sub-topology, or `DEAD_LETTER_ENTRY`.
        rows: Columns as in the module's docstring.
        order: The times by which its rows are merged with those of other partitions; None: their timestamps. Not encoded. In live
            execution, a record keeps its place in the order even if none of its rows is left.
    """

    topic: str
    partition: int
    entry: int
    rows: pa.RecordBatch
    order: npt.NDArray[np.int64] | None = None


def encode(batch: RowBatch) -> bytes:
    """Pack a batch into one Arrow IPC stream."""
    metadata = {b"topic": batch.topic.encode(), b"partition": b"%d" % batch.partition, b"entry": b"%d" % batch.entry}
    rows = batch.rows.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    blob: bytes = sink.getvalue().to_pybytes()
    return blob


def decode(blob: bytes) -> RowBatch:
    """Unpacks the result of `encode`. The columns are views of `blob`; nothing is copied."""
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        rows = reader.read_next_batch()
    metadata = rows.schema.metadata
    return RowBatch(metadata[b"topic"].decode(), int(metadata[b"partition"]), int(metadata[b"entry"]), rows)


# --- A digest of the tasks to which functions of the topology have sent the records of a range.
#
# If a function makes the key before the shuffle, it decides which task gets the record. If another attempt of the micro-batch made
# another key, a task that has already committed would miss the record, or a second task would process it again. So the digest goes
# into the task's commit marker, and an attempt that finds the step committed compares the digest with its own.
#
# For a dead letter, the digest has its offset and stage instead of the record, because the function may fail in only one attempt.
#
# Invariant: the same records and keys give the same digest, however they are divided into pieces for reading.


class RoutingDigests:
    """Makes one digest for each task.

    Each entry has its own hash, because pieces come in order only within an entry.
    """

    def __init__(self) -> None:
        self._columns: dict[tuple[int, int], tuple[Any, ...]] = {}

    def add(self, task: int, entry: int, rows: pa.RecordBatch) -> None:
        """Adds rows of an entry for a task, in their order. They have the columns `offset`, `seq` and `key`."""
        hashes = self._columns.get((task, entry))
        if hashes is None:
            hashes = self._columns[task, entry] = tuple(hashlib.blake2b(digest_size=8) for _ in range(4))
        keys = rows.column("key").cast(pa.binary())
        lengths = pc.binary_length(keys).fill_null(-1)
        for hash_, column in zip(hashes, (rows.column("offset"), rows.column("seq"), lengths), strict=False):
            hash_.update(np.ascontiguousarray(column.to_numpy(zero_copy_only=False)).tobytes())
        hashes[3].update(b"".join(filter(None, keys.to_pylist())))

    def by_task(self) -> dict[int, str]:
        """Task -> 16 hex digits, for the tasks that received rows."""
        tasks: dict[int, Any] = {}
        for (task, entry), hashes in sorted(self._columns.items()):
            digest = tasks.setdefault(task, hashlib.blake2b(digest_size=8))
            digest.update(b"%d:" % entry)
            for hash_ in hashes:
                digest.update(hash_.digest())
        return {task: digest.hexdigest() for task, digest in tasks.items()}
