"""Pairs of records with a long delay between them: each left record has a key of its own, half of them get a right one later.

Event time is compressed: a run covers four and a half days, more than the join's window, so that expiry works at the end.
The columns are `key`, `n` and `timestamp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.generators.events import FIRST_NUMBER
from benchmarks.generators.records import START_MS, Batch, Columns
from benchmarks.generators.text import padded, texts

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
_SAMPLE = padded('{"n":NNNNNNNN', 200)


@dataclass(frozen=True)
class Pairs:
    """Two topics.

    Attributes:
        lefts: The number of left records.
        days: The event time that they cover.
        most_days: The longest delay of a right record.
        seed: The seed of all random numbers.
    """

    lefts: int
    days: float = 4.5
    most_days: float = 3.0
    seed: int = 42

    def columns(self) -> tuple[Columns, Columns]:
        """The left and the right records, each in the order in which they are sent; one right record in twenty is late."""
        random = np.random.default_rng(self.seed)
        keys = np.arange(self.lefts, dtype=np.int64)
        times = START_MS + (keys * (self.days * DAY_MS / self.lefts)).astype(np.int64)
        left = Columns({"key": keys, "n": keys + FIRST_NUMBER, "timestamp": times})
        matched = np.flatnonzero(random.random(self.lefts) < 0.5)
        delay = random.lognormal(np.log(6 * HOUR_MS), 1.2, len(matched))
        arrives = times[matched] + np.minimum(delay, self.most_days * DAY_MS).astype(np.int64)
        late = np.where(random.random(len(matched)) < 0.05, random.integers(60_000, HOUR_MS, len(matched)), 0)
        right = Columns({"key": matched, "n": np.arange(len(matched)) + FIRST_NUMBER, "timestamp": arrives})
        return left, right.take(np.argsort(arrives + late, kind="stable"))

    def batches(self) -> Iterator[Batch]:
        """The records as bytes."""
        for role, columns in zip(("left", "right"), self.columns(), strict=True):
            for block in columns.blocks():
                keys = texts("L-KKKKKKKKKK", {"KKKKKKKKKK": block["key"]}, len(block))
                yield Batch(role, keys, texts(_SAMPLE, {"NNNNNNNN": block["n"]}, len(block)), block["timestamp"])
