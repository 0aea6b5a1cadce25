"""Stores outside Kafka that a stream or table can be written to with `to_sink`, exactly once: each is one file."""

from streams.sinks.files import FilesSink, JsonLinesSink, ParquetSink
from streams.sinks.iceberg import IcebergSink
from streams.sinks.sink import Sink, SinkTable
from streams.sinks.sql import PostgresSink, SqliteSink, SqlSink

__all__ = [
    "FilesSink",
    "IcebergSink",
    "JsonLinesSink",
    "ParquetSink",
    "PostgresSink",
    "Sink",
    "SinkTable",
    "SqlSink",
    "SqliteSink",
]
