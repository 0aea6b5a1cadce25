"""Nexmark's queries as workloads: `python -m benchmarks run nexmark-suite-q4 --size small`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import orjson
import pyarrow as pa

from benchmarks.generators.records import START_MS, Batch
from benchmarks.nexmark.events import batches
from benchmarks.nexmark.expected import differences
from benchmarks.nexmark.queries import QUERIES
from benchmarks.verify.compare import Verdict
from benchmarks.verify.output import committed
from benchmarks.workloads.base import CLOSING_MS, Output, RunConfig, Workload
from state.kafka.partitioner import partition_for_keys
from streams import StreamsBuilder, Topology

_SIDE_ROWS = 1000
_PART = 50_000


class Nexmark(Workload):
    """A query, from topic to topic."""

    sizes = {"smoke": 50_000, "small": 2_000_000, "full": 10_000_000}

    def __init__(self, query: str) -> None:
        self.query = query
        self.name = f"nexmark-suite-{query}"
        self.title = f"Nexmark {query}: {(QUERIES[query].__doc__ or '').rstrip('.').lower()}"
        if query == "q13":
            self.inputs, self.looked_up = ("events", "side"), ("side",)

    def batches(self, size: str) -> Iterator[Batch]:
        if "side" in self.inputs:
            yield side(self.partitions)
        yield from batches(self.sizes[size], self.partitions)

    def closing(self, round_: int, end_ms: int) -> Iterator[Batch]:
        """One event for each partition, for peers that take it for one of all three kinds; to the others its type says nothing."""
        value = {
            "event_type": 3,
            "person": {"id": 0},
            "auction": {"id": 0, "seller": 0},
            "bid": {"auction": 0, "bidder": 0},
        }
        values = pa.array([orjson.dumps(value)] * self.partitions, pa.binary())
        times = np.full(self.partitions, end_ms + CLOSING_MS * round_)
        yield Batch("events", None, values, times, np.arange(self.partitions, dtype=np.int32))

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        result = QUERIES[self.query](builder, config.topics)
        stream = result.to_stream() if hasattr(result, "to_stream") else result
        stream.to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        config = found.config
        output = _parts(config.client, config.topics["out"], config.partitions)
        lines, count = differences(self.query, self.sizes[size], output)
        return Verdict(lines, count)


def side(partitions: int) -> Batch:
    """The table beside the stream, of which q13 reads."""
    keys = pa.array([str(number).encode() for number in range(_SIDE_ROWS)], pa.binary())
    values = pa.array([b'{"value":"side-%d"}' % number for number in range(_SIDE_ROWS)], pa.binary())
    times = np.full(_SIDE_ROWS, START_MS)
    return Batch("side", keys, values, times, partition_for_keys(keys, partitions))


def _parts(client: dict[str, str], topic: str, partitions: int) -> Iterator[list[tuple[bytes | None, bytes | None]]]:
    part: list[tuple[bytes | None, bytes | None]] = []
    for message in committed(client, topic, partitions):
        part.append((message.key(), message.value()))
        if len(part) == _PART:
            yield part
            part = []
    yield part


NEXMARK = tuple(Nexmark(query) for query in QUERIES)
