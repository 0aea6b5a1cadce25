"""Mean size of a topic's records, from a small sample: the admission limit in bytes needs it, Kafka does not tell it."""

from __future__ import annotations

from collections.abc import Mapping

from state.kafka.reader import open_range_reader

SAMPLE = 200
_sizes: dict[str, float] = {}


def mean_record_bytes(client: Mapping[str, str], topic: str, positions: Mapping[tuple[str, int], int]) -> float:
    """Mean bytes of key and value of the first records at the first of the positions; asked once for each topic."""
    if topic not in _sizes and positions:
        (_, partition), start = next(iter(sorted(positions.items())))
        reader = open_range_reader(client, topic, partition, start, bulk=False)
        try:
            for columns in reader.read(start + SAMPLE, SAMPLE):
                total = columns.keys.nbytes + columns.values.nbytes
                _sizes[topic] = max(1.0, total / max(1, len(columns)))
                break
        finally:
            reader.close()
    return _sizes.get(topic, 1.0)
