"""The records of a step that come to the nodes of a join, in one order, and the groups in which they may meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streams.operators.columnar import NULL_KEY, ColumnarBatch, Int64s, KeyColumn, concatenated
from streams.operators.encoded_values import null_values
from streams.operators.stores.codec import Codec

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class JoinRecords:
    """The records of all nodes of a join, in the order of the step.

    Attributes:
        batch: The records.
        nodes: int64[n], the index of each record's node.
        has_value: Which records have a value.
    """

    batch: ColumnarBatch
    nodes: Int64s
    has_value: Bools

    @classmethod
    def of(cls, batches: Sequence[ColumnarBatch]) -> JoinRecords:
        """The records of one batch for each node."""
        whole = concatenated(batches)
        order = np.argsort(whole.order, kind="stable")
        batch = whole.take(order)
        nodes = np.repeat(np.arange(len(batches)), [len(one) for one in batches])[order]
        return cls(batch, nodes, ~null_values(batch.values))

    def __len__(self) -> int:
        return len(self.nodes)

    def by_node(self, columns: Sequence[Any]) -> Int64s:
        """For each record the number that its node has, or the number of its row in the column of its node."""
        left: Int64s = np.where(self.nodes == 1, columns[1], columns[0])
        return left

    @property
    def complete(self) -> Bools:
        """Which records have a key and a value."""
        complete: Bools = (self.batch.keys.codes != NULL_KEY) & self.has_value
        return complete


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """The keys of a step's records in one store.

    Attributes:
        cells: The distinct keys, sorted: in this order reading them is fastest.
        codes: int64[n], the index in `cells` of each record's key; -1 for none.
    """

    cells: pa.BinaryArray
    codes: Int64s


def store_keys(keys: KeyColumn, codecs: Sequence[Codec]) -> list[StoreKeys]:
    """The keys in the stores of these codecs."""
    found: list[StoreKeys] = []
    known: list[list[bytes]] = []
    for codec in codecs:
        data = codec.keys(keys)
        # Serdes get the name of the store, but hardly any puts it into the bytes.
        if data in known:
            found.append(found[known.index(data)])
        else:
            found.append(_sorted(keys, data))
        known.append(data)
    return found


def _sorted(keys: KeyColumn, data: Sequence[bytes]) -> StoreKeys:
    distinct = pa.array(data, pa.binary()).dictionary_encode()
    by_bytes = pc.array_sort_indices(distinct.dictionary)
    ranks = np.empty(len(by_bytes) + 1, np.int64)
    ranks[by_bytes.to_numpy()] = np.arange(len(by_bytes))
    ranks[-1] = NULL_KEY
    codes = np.append(ranks[distinct.indices.fill_null(-1).to_numpy()], NULL_KEY)[keys.codes]
    if (codes[keys.codes != NULL_KEY] == NULL_KEY).any():
        raise ValueError("a null key cannot be looked up or stored")
    return StoreKeys(distinct.dictionary.take(by_bytes), codes)


def read_by(which: npt.NDArray[Any], codecs: Sequence[Codec], data: Sequence[bytes | None]) -> list[Any]:
    """The values that bytes from several stores stand for.

    Args:
        which: The index of the store of each cell.
        codecs: How to read, by store.
        data: The bytes.
    """
    readers = [codec.reader for codec in codecs]
    if all(reader is readers[0] for reader in readers):
        return list(map(readers[0], data))
    return [readers[index](cell) for index, cell in zip(which.tolist(), data, strict=True)]


def placed(parts: Sequence[tuple[ColumnarBatch, Int64s]]) -> tuple[ColumnarBatch, Int64s]:
    """Results in order.

    Args:
        parts: Results, and the place of each one: results with equal places are in the order of the parts.

    Returns:
        The results, and their places.
    """
    parts = [part for part in parts if len(part[0])] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    places = np.concatenate([place for _, place in parts])
    order = np.argsort(places, kind="stable")
    return concatenated([batch for batch, _ in parts]).take(order), places[order]


def runs(*columns: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Start and end of each run of rows that are equal in all columns."""
    if not len(columns[0]):
        return []
    changes = np.zeros(len(columns[0]) - 1, np.bool_)
    for column in columns:
        changes |= column[1:] != column[:-1]
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(columns[0])]
    return list(pairwise(bounds))
