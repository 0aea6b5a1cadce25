"""The data source of a lake sink's query: exact ranges of the internal topic, as rows of the table's columns.

Planning is that of `streams.spark.source`. Like there, Spark starts Python processes that only inspect this class, so what reads
is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from streams.spark.source import BatchPartition, KafkaStreamReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from streams.source.planner import SourceSpec
    from streams.spark.lake.rows_job import RowsJob


class RowsReader(KafkaStreamReader):
    """Plans as for a sub-topology, and reads rows."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from streams.spark.lake.read import read_rows

        assert isinstance(partition, BatchPartition)
        return read_rows(self._job, partition.planned)


class LakeSource(DataSource):
    """The base of the data source classes that `lake_source` creates."""

    planning: bytes = b""
    job: bytes = b""
    columns: str = ""

    def schema(self) -> str:
        return self.columns

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return RowsReader(self.planning, self.job)


def lake_source(query: str, source: SourceSpec, job: RowsJob) -> type[DataSource]:
    """A new data source class for a sink's query."""
    from streams.lake.writer import sql_schema

    name = f"streams-lake-{query}"

    def source_name(cls: type[DataSource]) -> str:
        return name

    attributes: dict[str, Any] = {
        "planning": cloudpickle.dumps((dict(job.client), source, job.logs)),
        "job": cloudpickle.dumps(job),
        "columns": sql_schema(job.layout),
        "name": classmethod(source_name),
    }
    return type("LakeSourceOfSink", (LakeSource,), attributes)
