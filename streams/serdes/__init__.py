"""Serdes: convert keys and values to Kafka's bytes and back. Your own serde only needs two methods (`Serde`)."""

from streams.serdes.avro import AvroSerde
from streams.serdes.base import Headers, Serde
from streams.serdes.by_type import serde_for
from streams.serdes.json import JsonSerde
from streams.serdes.json_schema import JsonSchemaSerde
from streams.serdes.lists import ListSerde
from streams.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    Serdes,
    StringSerde,
    UuidSerde,
    VoidSerde,
)
from streams.serdes.protobuf import ProtobufSerde
from streams.serdes.registry import SchemaRegistry
from streams.serdes.tuples import TupleSerde
from streams.serdes.versioned import VersionedSerde
from streams.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

__all__ = [
    "AvroSerde",
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
