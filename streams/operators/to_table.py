"""`to_table`: a stream read as a table (Kafka Streams: `KStreamToTable`)."""

from __future__ import annotations

from streams.operators.table_source import TableSource


class ToTable(TableSource):
    """The rules of a table's source, for the records of a stream."""
