"""The engine's data source with micro-batches that end where a script says, instead of where the topics end.

Only the planning is replaced: offsets are logged, ranges read and batches repeated as always.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from streams.driver.source import KafkaSource, KafkaStreamReader
from streams.engine.source.offsets import SourceOffsets
from streams.engine.step.job import QueryJob


def first_beyond(start: SourceOffsets, ends: Sequence[SourceOffsets]) -> SourceOffsets | None:
    """The first of the ends that lies beyond a position; None if there is none."""
    return next((end for end in ends if start.ranges_to(end)), None)


class ScriptedReader(KafkaStreamReader):
    """Plans one micro-batch up to each end of the script."""

    def __init__(self, planning: bytes, job: bytes, ends: Sequence[SourceOffsets]) -> None:
        super().__init__(planning, job)
        self._ends = ends

    def prepareForTriggerAvailableNow(self) -> None:
        """The script is all that there is."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The next end; `start` after the last one."""
        end = first_beyond(SourceOffsets.from_json(start), self._ends)
        return start if end is None else end.to_json()


class ScriptedSource(KafkaSource):
    """Base of the data sources that `scripted` makes."""

    ends: Sequence[SourceOffsets] = ()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader."""
        return ScriptedReader(self.planning, self.job, self.ends)


def scripted(made: type[DataSource], job: QueryJob, ends: Sequence[SourceOffsets]) -> type[DataSource]:
    """The class that `streams.driver.source.source_class` made, with a script."""
    own = {name: made.__dict__[name] for name in ("planning", "job", "name")}
    return type(f"ScriptedSourceOf{job.sub.index}", (ScriptedSource,), {**own, "ends": tuple(ends)})
