"""Serdes: convert keys and values to Kafka's bytes and back. Your own serde only needs two methods (`Serde`)."""

from streams.serdes.avro.values import AvroFixed, AvroRecord, AvroSymbol
from streams.serdes.base import Headers, Serde
from streams.serdes.by_type import serde_for
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    ListSerde,
    Serdes,
    StringSerde,
    TupleSerde,
    UuidSerde,
    VoidSerde,
)
from streams.serdes.registry import AvroSerde, JsonSchemaSerde, ProtobufSerde, SchemaRegistry
from streams.serdes.wrappers import SessionWindowedSerde, TimeWindowedSerde, VersionedSerde

__all__ = [
    "AvroFixed",
    "AvroRecord",
    "AvroSerde",
    "AvroSymbol",
    "BooleanSerde",
    "BytesSerde",
    "Float32Serde",
    "Float64Serde",
    "Headers",
    "Int16Serde",
    "Int32Serde",
    "Int64Serde",
    "JsonSchemaSerde",
    "JsonSerde",
    "ListSerde",
    "ProtobufSerde",
    "SchemaRegistry",
    "Serde",
    "Serdes",
    "SessionWindowedSerde",
    "StringSerde",
    "TimeWindowedSerde",
    "TupleSerde",
    "UuidSerde",
    "VersionedSerde",
    "VoidSerde",
    "serde_for",
]
