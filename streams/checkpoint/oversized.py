"""A logged micro-batch that is too large: Spark repeats its offsets at each start, whatever the present limits are.

As long as no task has committed the micro-batch, its plan can be taken back: without the last file of the offset log, Spark
plans it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from streams.checkpoint.log import Checkpoint
from streams.source.offsets import SourceOffsets


class Limits(Protocol):
    """The part of `streams.source.planner.BatchPlanner` that this module uses."""

    def limit(self, start: SourceOffsets, end: SourceOffsets) -> int: ...


@dataclass(frozen=True, slots=True)
class Oversized:
    """A logged micro-batch that is larger than the present limits allow.

    Attributes:
        batch: The number of the micro-batch.
        records: The number of its records, at most (offsets).
        limit: The number of records that it would be planned with now.
    """

    batch: int
    records: int
    limit: int

    def __str__(self) -> str:
        return (
            f"micro-batch {self.batch} with {self.records:,} records, of which the present limits allow {self.limit:,}"
        )


def oversized(checkpoint: Checkpoint, limits: Limits) -> Oversized | None:
    """The logged and unconfirmed micro-batch, if it is too large; None also if its start is unknown."""
    batch = checkpoint.logged
    ranges = checkpoint.ranges(batch) if batch > checkpoint.committed else None
    start, end = checkpoint.start(batch), checkpoint.offsets.get(batch)
    if not ranges or start is None or end is None:
        return None
    records, limit = sum(each.end - each.start for each in ranges), limits.limit(start, end)
    return Oversized(batch, records, limit) if records > limit else None
