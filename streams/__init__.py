"""Kafka Streams for Spark, in Python.

What a program needs to declare its topology is here; the rest has its own packages, in the order in which data flows:
``dsl`` builds a ``topology``, which is planned and run by ``application`` and ``spark``; ``operators`` process records
for ``runtime``, and ``testing`` runs a topology without Spark and Kafka.
"""

from streams.dsl.aggregates import Aggregate, AggregateFunctions, agg
from streams.dsl.branched import BranchedKStream
from streams.dsl.builder import StreamsBuilder
from streams.dsl.grouped import KGroupedStream, TimeWindowedKStream
from streams.dsl.kstream import KStream
from streams.dsl.ktable import KTable
from streams.dsl.options import (
    Branched,
    Consumed,
    Grouped,
    Joined,
    Materialized,
    Named,
    Produced,
    Repartitioned,
    StreamJoined,
)
from streams.dsl.windows import JoinWindows, TimeWindows
from streams.errors import (
    ApplicationFailedError,
    ConfigError,
    RecordError,
    SerdeError,
    StreamsError,
    TimestampError,
    TopologyError,
)
from streams.operators.record import Change, Record, RecordContext, ValueAndTimestamp, Window, Windowed
from streams.serdes import (
    BytesSerde,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    JsonSerde,
    Serde,
    SessionWindowedSerde,
    StringSerde,
    TimeWindowedSerde,
    UuidSerde,
)
from streams.topology.graph import Topology
from streams.topology.timestamps import (
    ConsumedRecord,
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    TimestampExtractor,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
    timestamp_field,
)

__all__ = [
    "Aggregate",
    "AggregateFunctions",
    "ApplicationFailedError",
    "Branched",
    "BranchedKStream",
    "BytesSerde",
    "Change",
    "ConfigError",
    "Consumed",
    "ConsumedRecord",
    "FailOnInvalidTimestamp",
    "Float32Serde",
    "Float64Serde",
    "Grouped",
    "Int16Serde",
    "Int32Serde",
    "Int64Serde",
    "JoinWindows",
    "Joined",
    "JsonSerde",
    "KGroupedStream",
    "KStream",
    "KTable",
    "LogAndSkipOnInvalidTimestamp",
    "Materialized",
    "Named",
    "Produced",
    "Record",
    "RecordContext",
    "RecordError",
    "Repartitioned",
    "Serde",
    "SerdeError",
    "SessionWindowedSerde",
    "StreamJoined",
    "StreamsBuilder",
    "StreamsError",
    "StringSerde",
    "TimeWindowedKStream",
    "TimeWindowedSerde",
    "TimeWindows",
    "TimestampError",
    "TimestampExtractor",
    "Topology",
    "TopologyError",
    "UsePartitionTimeOnInvalidTimestamp",
    "UuidSerde",
    "ValueAndTimestamp",
    "WallclockTimestampExtractor",
    "Window",
    "Windowed",
    "agg",
    "timestamp_field",
]
