"""Events: records with a random key, a number and a measured value, at a steady rate of event time.

The columns are `key` (a number), `n` (the record's number), `milli` (thousandths of `v`) and `timestamp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.generators.records import START_MS, Batch, Columns, Ints
from benchmarks.generators.text import padded, texts

FIRST_NUMBER = 10_000_000
"""The number of the first record: all numbers have eight digits."""


@dataclass(frozen=True)
class Events:
    """A topic of events.

    Attributes:
        count: The number of records.
        keys: The number of keys, chosen at random.
        rate: Records in a second of event time.
        seed: The seed of all random numbers.
        late_share: The share of records that are sent later than their timestamp's place.
        late_ms: How late these are at most, event time.
        width: Bytes of a value.
        skew: The exponent of a Zipf distribution of the keys; 0: all keys are equally frequent.
    """

    count: int
    keys: int
    rate: int
    seed: int = 42
    late_share: float = 0.001
    late_ms: int = 200
    width: int = 100
    skew: float = 0.0

    def columns(self) -> Columns:
        """All records, in the order in which they are sent."""
        random = np.random.default_rng(self.seed)
        n = np.arange(self.count, dtype=np.int64)
        columns = Columns(
            {
                "key": self._keys(random),
                "n": n + FIRST_NUMBER,
                "milli": random.integers(10_000, 100_000, self.count),
                "timestamp": START_MS + n * 1000 // self.rate,
            }
        )
        most = self.late_ms * self.rate // 1000
        return columns.sent_late(np.random.default_rng([self.seed, 1]), self.late_share, most)

    def _keys(self, random: np.random.Generator) -> Ints:
        if not self.skew:
            return random.integers(0, self.keys, self.count)
        shares = np.cumsum(np.arange(1, self.keys + 1) ** -self.skew)
        ranks = np.searchsorted(shares, random.random(self.count) * shares[-1]).astype(np.int64)
        # The frequent keys are spread over the partitions.
        spread: Ints = random.permutation(self.keys)[ranks]
        return spread

    def batches(self, role: str) -> Iterator[Batch]:
        """The records as bytes."""
        for block in self.columns().blocks():
            yield Batch(role, key_names(block["key"]), self.values(block), block["timestamp"])

    def values(self, block: Columns) -> pa.BinaryArray:
        """The values' bytes."""
        sample = padded('{"n":NNNNNNNN,"v":VV.WWW', self.width)
        fields = {"NNNNNNNN": block["n"], "VV": block["milli"] // 1000, "WWW": block["milli"] % 1000}
        return texts(sample, fields, len(block))


def key_names(keys: Ints) -> pa.BinaryArray:
    """The keys' bytes: `k-0000123`."""
    return texts("k-KKKKKKK", {"KKKKKKK": keys}, len(keys))
