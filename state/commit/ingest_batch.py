"""The batch of an ingest's query that a task has written, and the query's offsets then; `ingest` has the data written with it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

OFFSETS = "offsets"
"""The name of the query's logged offsets in a marker. A lost checkpoint is made again from them."""


@dataclass(frozen=True, slots=True)
class IngestBatch:
    """A batch of the query that reads the rows.

    Attributes:
        batch_id: Spark's number of the batch, from 0.
        offsets: Spark's log entry for the batch; empty if it is not enough to read the same rows again.
        now_ms: When the batch was made, ms since 1970.
        digest: Digest of where the batch ends (`digest_of`): two batches with the same digest end with the same row. Empty for a
            static DataFrame, for which nothing is logged.
        before: The digest of the batch before, after which this one begins.
        keys: Digest of the columns that decide which task gets a row.
    """

    batch_id: int
    offsets: str
    now_ms: int
    digest: str = ""
    before: str = ""
    keys: str = ""


def digest_of(logged: str, files: Iterable[bytes] = ()) -> str:
    """Digest of where a batch ends."""
    digest = hashlib.blake2b("\n".join(logged.splitlines()[2:]).encode(), digest_size=16)
    for entry in files:
        digest.update(b"\0" + entry)
    return digest.hexdigest()
