"""Every name that a program needs to declare a topology, in one place; `streams` has them too, and imports them when one is used.

What a name needs (numpy, pyarrow, compiled kernels) takes the better part of a second to import. The command line's help and the
processes in which Spark inspects a query's source import the package, but use none of its names.
"""

from streams.dsl.builder import StreamsBuilder
from streams.dsl.grouped import (
    CogroupedKStream,
    KGroupedStream,
    KGroupedTable,
    SessionWindowedCogroupedKStream,
    SessionWindowedKStream,
    TimeWindowedCogroupedKStream,
    TimeWindowedKStream,
)
from streams.dsl.kstream import Branched, BranchedKStream, KStream
from streams.dsl.ktable import GlobalKTable, KTable
from streams.dsl.options import (
    Consumed,
    Grouped,
    Joined,
    Materialized,
    Named,
    Produced,
    Repartitioned,
    Retry,
    StreamJoined,
)
from streams.dsl.stores import Stores
from streams.dsl.suppressed import BufferConfig, Suppressed
from streams.dsl.topology_builder import TopologyBuilder
from streams.errors import (
    ApplicationFailedError,
    ConfigError,
    EnrichError,
    RecordError,
    RegistryError,
    SerdeError,
    StreamsError,
    TimestampError,
    TopologyError,
    ValueNotPicklableError,
)
from streams.model.aggregates import Aggregate, AggregateFunctions, NumericAggregate, agg
from streams.model.custom_windows import CalendarWindows, UnlimitedWindows
from streams.model.expressions.expression import Expression, col, lit
from streams.model.expressions.fields import fields
from streams.model.record import Change, Record, RecordContext, RecordMetadata, ValueAndTimestamp, Window, Windowed
from streams.model.timestamps import (
    ConsumedRecord,
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    TimestampExtractor,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
    timestamp_field,
)
from streams.model.windows import EmitStrategy, JoinWindows, SessionWindows, SlidingWindows, TimeWindows, Windows
from streams.operators.process.key_value_store import KeyValueStore, ReadOnlyKeyValueStore, TimestampedKeyValueStore
from streams.operators.process.session_store import SessionStore
from streams.operators.process.versioned_store import VersionedKeyValueStore
from streams.operators.process.window_store import TimestampedWindowStore, WindowStore
from streams.operators.processor import Processor, ProcessorContext
from streams.operators.punctuation import Cancellable, PunctuationType
from streams.operators.table.table_transform_values import ValueTransformer
from streams.operators.wrapped import WrappedProcessor
from streams.serdes import (
    AvroSerde,
    BooleanSerde,
    BytesSerde,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    JsonSchemaSerde,
    JsonSerde,
    ListSerde,
    ProtobufSerde,
    SchemaRegistry,
    Serde,
    Serdes,
    SessionWindowedSerde,
    StringSerde,
    TimeWindowedSerde,
    TupleSerde,
    UuidSerde,
    VersionedSerde,
    VoidSerde,
    serde_for,
)
from streams.topology.topology import Topology

__all__ = [
    "Aggregate",
    "AggregateFunctions",
    "ApplicationFailedError",
    "AvroSerde",
    "BooleanSerde",
    "Branched",
    "BranchedKStream",
    "BufferConfig",
    "BytesSerde",
    "CalendarWindows",
    "Cancellable",
    "Change",
    "CogroupedKStream",
    "ConfigError",
    "Consumed",
    "ConsumedRecord",
    "EmitStrategy",
    "EnrichError",
    "Expression",
    "FailOnInvalidTimestamp",
    "Float32Serde",
    "Float64Serde",
    "GlobalKTable",
    "Grouped",
    "Int16Serde",
    "Int32Serde",
    "Int64Serde",
    "JoinWindows",
    "Joined",
    "JsonSchemaSerde",
    "JsonSerde",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KeyValueStore",
    "ListSerde",
    "LogAndSkipOnInvalidTimestamp",
    "Materialized",
    "Named",
    "NumericAggregate",
    "Processor",
    "ProcessorContext",
    "Produced",
    "ProtobufSerde",
    "PunctuationType",
    "ReadOnlyKeyValueStore",
    "Record",
    "RecordContext",
    "RecordError",
    "RecordMetadata",
    "RegistryError",
    "Repartitioned",
    "Retry",
    "SchemaRegistry",
    "Serde",
    "SerdeError",
    "Serdes",
    "SessionStore",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindowedSerde",
    "SessionWindows",
    "SlidingWindows",
    "Stores",
    "StreamJoined",
    "StreamsBuilder",
    "StreamsError",
    "StringSerde",
    "Suppressed",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TimeWindowedSerde",
    "TimeWindows",
    "TimestampError",
    "TimestampExtractor",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "Topology",
    "TopologyBuilder",
    "TopologyError",
    "TupleSerde",
    "UnlimitedWindows",
    "UsePartitionTimeOnInvalidTimestamp",
    "UuidSerde",
    "ValueAndTimestamp",
    "ValueNotPicklableError",
    "ValueTransformer",
    "VersionedKeyValueStore",
    "VersionedSerde",
    "VoidSerde",
    "WallclockTimestampExtractor",
    "Window",
    "WindowStore",
    "Windowed",
    "Windows",
    "WrappedProcessor",
    "agg",
    "col",
    "fields",
    "lit",
    "serde_for",
    "timestamp_field",
]
