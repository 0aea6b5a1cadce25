"""The records of a planned range, as a Spark worker reads them from Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from state.kafka.columns import RecordColumns
from state.kafka.reader import shared_reader
from streams.source.offsets import OffsetRange
from streams.source.range_size import bounded


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
