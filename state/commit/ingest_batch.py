"""Which batch of an ingest's query a task has written, and where the query was then: what is written with it is in `ingest`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

OFFSETS = "offsets"
"""The name under which a marker has the query's logged offsets, from which a lost checkpoint is made again."""


@dataclass(frozen=True, slots=True)
class IngestBatch:
    """A batch of the query that reads the rows.

    Attributes:
        batch_id: Spark's number of the batch, from 0.
        offsets: What Spark has logged for the batch; empty if that does not lead back to the same rows.
        now_ms: When the batch was made, ms since 1970.
        digest: Digest of where the batch ends (`digest_of`): two batches with the same one end with the same row. Empty for a
            static DataFrame, for which nothing is logged.
        before: The digest of the batch before, behind which this one begins.
        keys: Digest of what decides which task gets a row.
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
