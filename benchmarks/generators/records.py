"""Columns of an input topic, and the batches of bytes that are loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

START_MS = 1_700_000_000_000
"""The event time of a workload's first record."""
BLOCK = 250_000
"""Records that become bytes at once."""


@dataclass(frozen=True)
class Batch:
    """Some records of one topic, as bytes.

    Attributes:
        role: The role of the topic in the workload.
        keys: binary[n], or None: no keys.
        values: binary[n].
        timestamps: int64[n], epoch ms.
        partitions: int32[n]; None: by the keys.
    """

    role: str
    keys: pa.BinaryArray | None
    values: pa.BinaryArray
    timestamps: Ints
    partitions: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.timestamps)


class Columns:
    """Columns of equal length, by name; each row is a record, in the order in which the records are sent."""

    def __init__(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def take(self, rows: npt.NDArray[Any] | slice) -> Columns:
        """The given rows, in the given order."""
        return Columns({name: column[rows] for name, column in self._columns.items()})

    def blocks(self) -> Iterator[Columns]:
        """All rows, in parts of `BLOCK` rows."""
        for begin in range(0, len(self), BLOCK):
            yield self.take(slice(begin, begin + BLOCK))

    def sent_late(self, random: np.random.Generator, share: float, most: int) -> Columns:
        """The same records, of which a share is sent up to `most` positions later."""
        position = np.arange(len(self)) * 2
        chosen = np.flatnonzero(random.random(len(self)) < share)
        position[chosen] += random.integers(1, most + 1, len(chosen)) * 2 + 1
        return self.take(np.argsort(position, kind="stable"))
