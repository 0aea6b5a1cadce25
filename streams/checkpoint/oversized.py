"""A micro-batch that is logged and too large: its offsets are repeated at each start, whatever the limits are by then.

As long as no task has committed it, its plan can be taken back: without the last file of the offset log, Spark plans it anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from streams.checkpoint.log import Checkpoint
from streams.source.offsets import SourceOffsets


class Limits(Protocol):
    """What is needed of `streams.source.planner.BatchPlanner`."""

    def limit(self, start: SourceOffsets, end: SourceOffsets) -> int: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Oversized:
    """A logged micro-batch that is larger than one would be planned now.

    Attributes:
        batch: Its number.
        records: How many it has at most (offsets).
        limit: How many it would have.
    """

    batch: int
    records: int
    limit: int

    def __str__(self) -> str:
        return (
            f"micro-batch {self.batch} with {self.records:,} records, of which the present limits allow {self.limit:,}"
        )


def oversized(checkpoint: Checkpoint, limits: Limits) -> Oversized | None:
    """The micro-batch that is logged and not confirmed, if it is too large; where it begins must be known."""
    batch = checkpoint.logged
    ranges = checkpoint.ranges(batch) if batch > checkpoint.committed else None
    start, end = checkpoint.start(batch), checkpoint.offsets.get(batch)
    if not ranges or start is None or end is None:
        return None
    records, limit = sum(each.end - each.start for each in ranges), limits.limit(start, end)
    return Oversized(batch, records, limit) if records > limit else None
