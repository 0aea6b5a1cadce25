"""Splits a logged micro-batch into partitions for readers: one for each offset range, and one that calls every task.

Every task must be called, with or without records, at a tick, and in a micro-batch that an earlier run may have logged: a task
that committed it then and is not called again would find, in its next step, a marker unknown to Spark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from streams.source.offsets import OffsetRange, SourceOffsets, batch_digest, topics_to_json

if TYPE_CHECKING:
    from streams.source.planner import BatchPlanner


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """One offset range to read.

    Attributes:
        batch: Digest of the whole micro-batch.
        topic_id: Kafka's id of the topic.
        offsets: The range to read.
        time: The partition time so far, ms; None where no timestamp extractor needs it.
        global_topics: Offsets up to which the topics of global tables are read, as JSON; None where there are none.
        backlog: Records are left for a later micro-batch.
        now_ms: When the micro-batch was planned, as logged; None: logged by a version without that time.
        repeated: An earlier run may have logged the micro-batch, and committed some of its tasks.
    """

    batch: str
    topic_id: str
    offsets: OffsetRange
    time: int | None = None
    global_topics: str | None = None
    backlog: bool = False
    now_ms: int | None = None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of every task, without records; the fields are those of `PlannedRange`."""

    batch: str
    global_topics: str | None = None
    backlog: bool = False


PlannedPartition: TypeAlias = PlannedRange | PlannedCall


SMALL_RECORDS = 20_000
"""Ranges with up to this many offsets in total are read one after the other: less work than starting another Spark task."""
MOST_TOGETHER = 8
"""The number of ranges that are read one after the other, at most: each may have to wait for its broker."""
MOST_UNEVEN = 1.1
"""How much more than its share a reader of several large ranges may get; otherwise whoever is ready takes the next range."""


def together(planned: Sequence[PlannedPartition], readers: int | None = None) -> list[tuple[PlannedPartition, ...]]:
    """Groups partitions so that each group is worth a reader of its own; a large range is a group by itself."""
    groups: list[tuple[PlannedPartition, ...]] = []
    records = 0
    for one in planned:
        size = _records(one)
        if groups and records + size <= SMALL_RECORDS and len(groups[-1]) < MOST_TOGETHER:
            groups[-1] = (*groups[-1], one)
            records += size
        else:
            groups.append((one,))
            records = size
    if readers is None or len(groups) <= readers:
        return groups
    hands = [tuple(chain.from_iterable(groups[hand::readers])) for hand in range(readers)]
    sizes = [sum(map(_records, hand)) for hand in hands]
    return hands if max(sizes) * readers <= sum(sizes) * MOST_UNEVEN else groups


def _records(one: PlannedPartition) -> int:
    return one.offsets.end - one.offsets.start if isinstance(one, PlannedRange) else 0


class BatchPartitioner:
    """Splits the micro-batches of one run of a query.

    Args:
        planner: Knows which micro-batches it has planned itself.
    """

    def __init__(self, planner: BatchPlanner) -> None:
        self._planner = planner
        self._first_batch: str | None = None

    def partitions(self, start: SourceOffsets, end: SourceOffsets) -> list[PlannedPartition]:
        """The partitions of the micro-batch [start, end).

        Raises:
            KafkaClientError: A topic was deleted or recreated, or has lost records that are needed.
        """
        digest = batch_digest(start, end)
        # Only the first micro-batch of a run can be one that an earlier run has logged.
        self._first_batch = self._first_batch or digest
        repeated = digest == self._first_batch and self._planner.is_repeat(end)
        ranges = self._planner.ranges(start, end)
        times = self._planner.times_before(ranges)
        ends = json.dumps(topics_to_json(end.global_topics)) if end.global_topics else None
        backlog = self._planner.leaves_backlog(end)
        partitions: list[PlannedPartition] = [
            PlannedRange(
                digest,
                end.topics[offsets.topic].topic_id,
                offsets,
                times[offsets.topic, offsets.partition] if times else None,
                ends,
                backlog,
                end.now_ms,
                repeated,
            )
            for offsets in ranges
        ]
        if end.tick != start.tick or repeated:
            partitions.append(PlannedCall(digest, ends, backlog))
        return partitions
