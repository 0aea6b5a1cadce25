"""The data source of a live query, in a module of its own, because the processes of Spark that plan import nothing else of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from streams.spark.shuffle import shuffle_keys


class _Slots(InputPartition):
    """The one input partition: it names the slots."""


class LeaseReader(DataSourceStreamReader):
    """Gives each slot a row, and so a call, in each micro-batch."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._leases = 0

    def initialOffset(self) -> dict[str, int]:
        return {"leases": 0}

    def latestOffset(self) -> dict[str, int]:
        self._leases += 1
        return {"leases": self._leases}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [_Slots(None)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter([(key,) for key in shuffle_keys(self._slots)])

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is behind an offset."""


class LeaseSource(DataSource):
    """The base of the data source of a live query."""

    slots = 1

    def schema(self) -> str:
        return "slot INT"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return LeaseReader(self.slots)
