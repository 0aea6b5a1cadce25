"""Stores outside Kafka to which `to_sink` writes a stream or table exactly once. Each kind of store is one file."""

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
