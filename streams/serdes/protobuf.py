"""Protobuf with a schema registry: writes and reads messages of a generated class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams.serdes.base import T
from streams.serdes.registry import RegistrySerde, client_of, load


@dataclass(frozen=True)
class ProtobufSerde(RegistrySerde[T]):
    """Messages of one class, in the format of Confluent's serialisers: schema id, index of the message in its file, message.

    Attributes:
        message: The class that `protoc` generated; workers must be able to import it. Records of older or newer schemas
            are read as this class, by Protobuf's own rules.
    """

    message: type[T]

    def _client_module(self) -> Any:
        return load("confluent_kafka.schema_registry.protobuf")

    def _make_writer(self) -> Callable[[Any, Any], bytes | None]:
        writer: Callable[[Any, Any], bytes | None] = self._client_module().ProtobufSerializer(
            self.message,
            client_of(self.registry),
            self._settings(**{"auto.register.schemas": self.auto_register, "use.deprecated.format": False}),
        )
        return writer

    def _make_reader(self) -> Callable[[bytes, Any], Any]:
        reader: Callable[[bytes, Any], Any] = self._client_module().ProtobufDeserializer(
            self.message, self._settings(**{"use.deprecated.format": False}), client_of(self.registry)
        )
        return reader

    def identity(self) -> str:
        """Format, use, and the message's full name."""
        descriptor: Any = self.message.DESCRIPTOR  # type: ignore[attr-defined]
        return f"ProtobufSerde(is_key={self.is_key}, message={descriptor.full_name})"
