"""A source outside Kafka, as a topology declares it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams.serdes.base import Serde
from streams.serdes.primitives import StringSerde

INGEST = "-ingest"
"""What the name of a source ends in where the name of a sub-topology would be."""


@dataclass(frozen=True, slots=True)
class Ingest:
    """A source outside Kafka: rows of a DataFrame, which a query of its own writes to an internal topic.

    Attributes:
        name: The source's name, which its internal topic, its commits and its checkpoint are called after.
        partitions: The number of partitions of the internal topic, and of the tasks that write it.
        frame: `frame(spark)` makes the DataFrame, streaming or static.
        key: The columns of the key; empty: records without a key.
        key_serde: How keys are written.
        value_serde: How values are written.
        timestamp: The column of the timestamp; None: the time of the change, or of the batch.
        change_feed: Whether rows are changes, as Delta's change data feed names them.
        delta: Whether a Delta table is read.
    """

    name: str
    partitions: int
    frame: Callable[[Any], Any]
    key: tuple[str, ...]
    key_serde: Serde
    value_serde: Serde
    timestamp: str | None = None
    change_feed: bool = False
    delta: bool = False

    @property
    def lasting_name(self) -> str:
        """The name of its commits topic (`<app>-<this>-commits`), transactional ids and checkpoint folder."""
        return self.name + INGEST

    @property
    def plain_key(self) -> bool:
        """Whether the key is the text of one column."""
        return len(self.key) == 1 and isinstance(self.key_serde, StringSerde)
