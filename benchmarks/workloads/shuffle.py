"""B3: a port of ShuffleBench: a fifth of the records go to one of a million consumers each, which count them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from benchmarks.generators.records import BLOCK, START_MS, Batch
from benchmarks.generators.text import binary
from benchmarks.verify.compare import Verdict, compare, table_of
from benchmarks.workloads.base import Output, RunConfig, Workload, number_of
from streams import BytesSerde, Consumed, Grouped, StreamsBuilder, Topology

_WIDTH = 1_024
_RULES = 1_000_000
_MATCHING = 200_000


class Shuffle(Workload):
    """Records without a key, of 1024 random bytes, of which the first eight decide who gets them."""

    name = "shuffle"
    title = "B3: ShuffleBench, 1 KiB records, selectivity 0.2"
    sizes = {"smoke": 20_000, "small": 2_000_000, "full": 10_000_000}
    consumers = {"smoke": 100, "small": 100_000, "full": 1_000_000}

    def hashes(self, size: str) -> npt.NDArray[np.uint64]:
        """The first eight bytes of each record."""
        return np.random.default_rng(42).integers(0, 2**63, self.sizes[size], np.uint64)

    def parameters_of(self, size: str) -> dict[str, int]:
        return {"consumers": self.consumers[size]}

    def batches(self, size: str) -> Iterator[Batch]:
        hashes = self.hashes(size)
        payload = np.random.default_rng(43).integers(0, 256, _WIDTH, np.uint8)
        for begin in range(0, len(hashes), BLOCK):
            block = hashes[begin : begin + BLOCK]
            data = np.empty((len(block), _WIDTH), np.uint8)
            data[:] = payload
            data[:, :8] = block.astype(">u8")[:, None].view(np.uint8)
            n = np.arange(begin, begin + len(block), dtype=np.int64)
            yield Batch("events", None, binary(data), START_MS + n // 250, (n % self.partitions).astype(np.int32))

    def topology(self, config: RunConfig) -> Topology:
        consumers = config.parameters["consumers"]
        builder = StreamsBuilder()
        events = builder.stream(config.topics["events"], consumed=Consumed(value_serde=BytesSerde()))
        matching = events.filter(lambda key, value: _hash(value) % _RULES < _MATCHING)
        by_consumer = matching.group_by(
            lambda key, value: f"c-{_hash(value) // _RULES % consumers:07d}", grouped=Grouped(value_serde=BytesSerde())
        )
        by_consumer.count().map_values(lambda count: {"count": count}).to_stream().to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        hashes = self.hashes(size)
        chosen = hashes[hashes % np.uint64(_RULES) < _MATCHING]
        consumers = (chosen // np.uint64(_RULES) % np.uint64(found.config.parameters["consumers"])).astype(np.int64)
        keys, counts = np.unique(consumers, return_counts=True)
        values, records = found.last_values()
        rows = [(number_of(key), value["count"]) for key, value in values.items()]
        return Verdict(compare({"key": keys, "count": counts}, table_of(rows, ["key", "count"]), ["key"]), records)


def _hash(value: bytes) -> int:
    return int.from_bytes(value[:8], "big")
