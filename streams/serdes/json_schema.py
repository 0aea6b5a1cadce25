"""JSON with a schema in a registry: like ``JsonSerde``, but what does not fit the schema is neither written nor read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams.serdes.registry import RegistrySerde, client_of, load


@dataclass(frozen=True)
class JsonSchemaSerde(RegistrySerde):
    """JSON values that are checked against a JSON Schema, behind its id, as Confluent's serialisers write them.

    Attributes:
        schema: what values are checked with when they are written, as JSON text with a ``title`` (the record's name).
        reader_schema: what they are checked with when they are read; None: the schema that each was written with.
    """

    schema: str
    reader_schema: str | None = None

    def _client_module(self) -> Any:
        return load("confluent_kafka.schema_registry.json_schema")

    def _make_writer(self) -> Callable[[Any, Any], bytes | None]:
        writer: Callable[[Any, Any], bytes | None] = self._client_module().JSONSerializer(
            self.schema,
            client_of(self.registry),
            conf=self._settings(**{"auto.register.schemas": self.auto_register}),
        )
        return writer

    def _make_reader(self) -> Callable[[bytes, Any], Any]:
        reader: Callable[[bytes, Any], Any] = self._client_module().JSONDeserializer(
            self.reader_schema, schema_registry_client=client_of(self.registry), conf=self._settings()
        )
        return reader
