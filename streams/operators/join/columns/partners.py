"""The pairs of a step: each record with the earlier records of other nodes in its reach, of this step and from the stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.operators.columnar import Int64s
from streams.operators.join.columns.kernels import grouped, pairs, ranges
from streams.operators.join.columns.records import Bools, StoreKeys
from streams.operators.stores.window import TypedWindowStore


@dataclass(frozen=True, slots=True)
class Reach:
    """Where records look for partners.

    Attributes:
        asking: Which records look.
        stores: int64[n], the index of the store in which each record looks.
        lower: int64[n], the time of the oldest partner, ms.
        upper: int64[n], the time of the newest partner, ms.
    """

    asking: Bools
    stores: Int64s
    lower: Int64s
    upper: Int64s


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of a record and an earlier partner, in the order of the records, and of their partners' times, then arrival.

    Attributes:
        rows: int64[m], the record.
        partners: int64[m], the partner; -1 - n for row n of the stores.
        times: int64[m], the partner's time, ms.
        stored: Values of the stores' rows as bytes.
        places: int64[k], a number for each row of the stores; rows of one store, key and time have the same.
    """

    rows: Int64s
    partners: Int64s
    times: Int64s
    stored: pa.BinaryArray
    places: Int64s


class Partners:
    """Finds pairs.

    Args:
        stores: The window stores of the nodes, by index.
        keys: The keys of the step's records in each of the stores.
        timestamps: int64[n], of the records.
        latest: For each store a time that none of its rows is newer than, ms.
    """

    def __init__(
        self,
        stores: Sequence[TypedWindowStore],
        keys: Sequence[StoreKeys],
        timestamps: Int64s,
        latest: Sequence[int],
    ) -> None:
        self._stores = stores
        self._latest = np.array(latest, np.int64)
        self._keys = keys
        self._timestamps = timestamps
        # The groups of all stores are numbered through.
        self._bounds = np.cumsum([0, *(len(one.cells) for one in keys)])
        self._count = int(self._bounds[-1])

    def find(self, kept: Bools, nodes: Int64s, reach: Reach) -> Pairs:
        """The pairs.

        Args:
            kept: Which records are put into the stores.
            nodes: int64[n], the index of the store that each record is put into.
            reach: Where records look.
        """
        looking = self._groups(reach.stores)
        asking = np.flatnonzero(reach.asking)
        groups, times, stored = self._fetched(looking, asking, reach)
        by_time = np.flatnonzero(kept & (self._timestamps >= np.array([one.oldest_ms for one in self._stores])[nodes]))
        by_time = by_time[np.argsort(self._timestamps[by_time], kind="stable")]
        new, starts = grouped(self._groups(nodes), by_time, self._count)
        ends = np.cumsum(np.bincount(groups + 1, minlength=self._count + 1))
        rows, partners = pairs(
            asking, looking, reach.lower, reach.upper, (new, self._timestamps[new], starts), (times, ends)
        )
        from_step = partners >= 0
        partner_times = np.empty(len(rows), np.int64)
        partner_times[from_step] = self._timestamps[partners[from_step]]
        partner_times[~from_step] = times[-1 - partners[~from_step]]
        places = np.append(0, np.cumsum((np.diff(groups) != 0) | (np.diff(times) != 0)))[: len(groups)]
        return Pairs(rows, partners, partner_times, stored, places)

    def _groups(self, stores: Int64s) -> Int64s:
        """The group of each record's key in a store; meaningless without a key."""
        codes = np.stack([one.codes for one in self._keys])[stores, np.arange(len(stores))]
        groups: Int64s = np.maximum(codes, 0) + self._bounds[stores]
        return groups

    def _fetched(self, looking: Int64s, asking: Int64s, reach: Reach) -> tuple[Int64s, Int64s, pa.BinaryArray]:
        """Group, time and value of the rows of the stores that any record may meet, sorted by group, time and arrival."""
        upper = np.minimum(reach.upper, self._latest[reach.stores])
        by_lower = asking[np.argsort(reach.lower[asking], kind="stable")]
        groups, lows, highs = ranges(*grouped(looking, by_lower, self._count), reach.lower, upper)
        found = []
        for index, (store, keys) in enumerate(zip(self._stores, self._keys, strict=True)):
            here = slice(*np.searchsorted(groups, self._bounds[index : index + 2]))
            cells = keys.cells.take(pa.array(groups[here] - self._bounds[index]))
            rows = store.fetch_ranges(cells, lows[here], highs[here])
            found.append((groups[here][rows.requests], rows.starts, rows.values))
        return (
            np.concatenate([group for group, _, _ in found]),
            np.concatenate([start for _, start, _ in found]),
            pa.concat_arrays([value for _, _, value in found]),
        )
