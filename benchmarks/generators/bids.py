"""Bids of an auction house, after Nexmark: some hot auctions and bidders get a large part of all bids.

The columns are `auction`, `bidder`, `price`, `n` and `timestamp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.generators.records import START_MS, Batch, Columns
from benchmarks.generators.text import padded, texts

_SAMPLE = padded('{"auction":AAAAAAA,"bidder":BBBBBBB,"price":PPPPPP', 120)
FIRST_ID = 1_000_000
"""The first auction and bidder: all ids have seven digits."""


@dataclass(frozen=True)
class Bids:
    """A topic of bids.

    Attributes:
        count: The number of bids.
        rate: Bids in a second of event time.
        live: How many auctions are open at a time; the oldest closes as a new one opens.
        bidders: The number of bidders.
        hot: The share of bids that go to one of the hot auctions: each hundredth one.
        seed: The seed of all random numbers.
    """

    count: int
    rate: int = 10_000
    live: int = 1_000
    bidders: int = 20_000
    hot: float = 0.5
    seed: int = 42

    def columns(self) -> Columns:
        """All bids, in the order in which they are sent: a thousandth up to 200 ms late."""
        random = np.random.default_rng(self.seed)
        n = np.arange(self.count, dtype=np.int64)
        opened = n // 20  # One auction opens for twenty bids.
        auction = opened + random.integers(0, self.live, self.count)
        is_hot = random.random(self.count) < self.hot
        auction = np.where(is_hot, auction // 100 * 100, auction)
        bidder = random.integers(0, self.bidders, self.count)
        bidder = np.where(random.random(self.count) < self.hot, bidder // 100 * 100, bidder)
        columns = Columns(
            {
                "auction": FIRST_ID + auction,
                "bidder": FIRST_ID + bidder,
                "price": random.integers(100_000, 1_000_000, self.count),
                "n": n,
                "timestamp": START_MS + n * 1_000 // self.rate,
            }
        )
        return columns.sent_late(np.random.default_rng([self.seed, 1]), 0.001, self.rate // 5)

    def batches(self, role: str) -> Iterator[Batch]:
        """The bids as bytes, keyed by the bidder."""
        for block in self.columns().blocks():
            numbers = {"AAAAAAA": block["auction"], "BBBBBBB": block["bidder"], "PPPPPP": block["price"]}
            keys = texts("b-BBBBBBB", {"BBBBBBB": block["bidder"]}, len(block))
            yield Batch(role, keys, texts(_SAMPLE, numbers, len(block)), block["timestamp"])
