"""What a range really holds, checked where it is known: micro-batches are planned by the size of a few records only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from state.kafka.columns import RecordColumns
from streams.errors import RangeTooLargeError
from streams.source.offsets import OffsetRange

FAR_ABOVE = 4
"""A range may hold so many times what a whole micro-batch is to have."""
NEVER_TOO_LARGE = 256 * 1024 * 1024
"""Bytes that no worker lacks, however small a micro-batch is to be."""


def bounded(pieces: Iterable[RecordColumns], offsets: OffsetRange, max_bytes: int) -> Iterator[RecordColumns]:
    """The pieces of a range as they are, as long as they are not far larger than a micro-batch may be.

    Why it fails: the tasks hold their share of a micro-batch in memory, and a worker that is killed for want of it says nothing.

    Args:
        pieces: The records of the range.
        offsets: The range.
        max_bytes: What a micro-batch was planned for, over all ranges.

    Raises:
        RangeTooLargeError: They are; one record alone is not.
    """
    allowed = max(FAR_ABOVE * max_bytes, NEVER_TOO_LARGE)
    records = size = 0
    for columns in pieces:
        records += len(columns)
        size += columns.keys.nbytes + columns.values.nbytes
        if size > allowed and records > 1:
            raise _too_large(offsets, max_bytes, records, size)
        yield columns


def _too_large(offsets: OffsetRange, max_bytes: int, records: int, size: int) -> RangeTooLargeError:
    fitting = max(1, max_bytes * records // size)
    needed = size * (offsets.end - offsets.start) // records
    return RangeTooLargeError(
        f"{offsets.topic}-{offsets.partition}: the first {records:,} records of offsets [{offsets.start}, {offsets.end}) have "
        f"{size:,} bytes of keys and values, but the whole micro-batch was planned for max_bytes_per_trigger = {max_bytes:,}: "
        f"they are far larger than those that were looked at. Nothing of this attempt is committed. Start again with "
        f"max_records_per_trigger = {fitting} or less: as long as no task has committed this micro-batch, it is planned anew in "
        f"pieces of that size. Or let the workers take it as it is, with max_bytes_per_trigger = {needed} and as much memory"
    )
