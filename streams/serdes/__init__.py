"""Serdes: how keys and values become Kafka's bytes and back. Write your own: two methods (``Serde``)."""

from streams.serdes.base import Serde
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import (
    BytesSerde,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    StringSerde,
    UuidSerde,
)
from streams.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

__all__ = [
    "BytesSerde",
    "Float32Serde",
    "Float64Serde",
    "Int16Serde",
    "Int32Serde",
    "Int64Serde",
    "JsonSerde",
    "Serde",
    "SessionWindowedSerde",
    "StringSerde",
    "TimeWindowedSerde",
    "UuidSerde",
]
