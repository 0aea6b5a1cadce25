"""`ReadingAhead`: windowed aggregations that process records one by one, but read the rows of all keys of a step at once.

Which rows a record of a session touches follows from what the records before it have left behind, so the
rule itself stays record by record. What the rule reads is known ahead: the rows around the times of a key's records.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np

from streams.operators.aggregate.aggregates import W, WindowedAggregation
from streams.operators.columnar import NULL_KEY, ColumnarBatch, Int64s
from streams.operators.stores.codec import Codec


class TimesOfKeys(NamedTuple):
    """The times of a step's records by key.

    Attributes:
        keys: The bytes of the keys, each once, in order.
        first: int64[n], the least time of each key's records, ms.
        last: int64[n], the largest one.
    """

    keys: list[bytes]
    first: Int64s
    last: Int64s

    @classmethod
    def of(cls, codec: Codec, batch: ColumnarBatch) -> TimesOfKeys:
        """Those of the records with a key.

        Raises:
            Exception: A key cannot be written.
        """
        known = np.flatnonzero(batch.keys.codes != NULL_KEY)
        data = codec.keys(batch.keys)
        present = np.unique(batch.keys.codes[known]).tolist()
        keys = sorted({data[code] for code in present})
        place_of = {key: place for place, key in enumerate(keys)}
        place = np.array([place_of.get(key, -1) for key in data] or [-1], np.int64)[batch.keys.codes[known]]
        first = np.full(len(keys), np.iinfo(np.int64).max)
        last = np.full(len(keys), np.iinfo(np.int64).min)
        np.minimum.at(first, place, batch.timestamps[known])
        np.maximum.at(last, place, batch.timestamps[known])
        return cls(keys, first, last)


class ReadingAhead(WindowedAggregation[W]):
    """Base of these aggregations."""

    def process_together(self, batch: ColumnarBatch) -> None:
        """`process` for all records of a step, with one pass over the store.

        Raises:
            Exception: A key cannot be written; there has been no effect.
        """
        times = TimesOfKeys.of(self.store.codec, batch)
        if times.keys:
            self.read_ahead(times)
        try:
            self.ctx.attempt_each(batch, self.process)
        finally:
            self.store.forget()

    @abstractmethod
    def read_ahead(self, times: TimesOfKeys) -> None:
        """Read all rows that the records of a step may touch."""
