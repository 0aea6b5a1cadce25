"""The records of a planned range, read from Kafka, as long as they are not far larger than planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from state.columns import RecordColumns
from state.kafka.reader import shared_reader
from streams.errors import RangeTooLargeError
from streams.source.offsets import OffsetRange

# --- The check of a range's real size, because micro-batches are planned by the size of a few records only

FAR_ABOVE = 4
"""A range may have this many times the planned size of a whole micro-batch."""
NEVER_TOO_LARGE = 256 * 1024 * 1024
"""Bytes that every worker can take, however small micro-batches are planned."""


def bounded(pieces: Iterable[RecordColumns], offsets: OffsetRange, max_bytes: int) -> Iterator[RecordColumns]:
    """The pieces of a range, unchanged, as long as their total is not far larger than a micro-batch may be.

    The tasks have their share of a micro-batch in memory, and a worker that is killed for lack of memory gives no reason: so an
    error here explains the problem before that.

    Raises:
        RangeTooLargeError: The range is too large; a single record never is.
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
        f"they are far larger than the sampled ones. Nothing of this attempt is committed. Start again with "
        f"max_records_per_trigger = {fitting} or less: as long as no task has committed this micro-batch, it is planned again in "
        f"pieces of that size. Or let the workers take it as it is, with max_bytes_per_trigger = {needed} and as much memory"
    )


# --- The records of a planned range, as a Spark worker reads them from Kafka.


def range_records(
    client: Mapping[str, str],
    offsets: OffsetRange,
    chunk_records: int,
    *,
    max_bytes: int | None,
    bulk: bool,
    prefetch_bytes: int,
) -> Iterator[RecordColumns]:
    """The records of a range in pieces, read by a reader that the process keeps for the next range of the partition.

    Raises:
        RangeTooLargeError: The range is far larger than the micro-batch was planned.
    """
    reader = shared_reader(
        client, offsets.topic, offsets.partition, offsets.start, bulk=bulk, prefetch_bytes=prefetch_bytes
    )
    pieces = reader.read(offsets.end, chunk_records)
    return pieces if max_bytes is None else bounded(pieces, offsets, max_bytes)
