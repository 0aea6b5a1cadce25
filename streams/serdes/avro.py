"""Avro with a schema registry: dicts in and out, and records of older schemas resolved to the reader's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streams.serdes.registry import RegistrySerde, client_of, load


@dataclass(frozen=True)
class AvroSerde(RegistrySerde):
    """Values of an Avro schema, as Confluent's serialisers write them.

    Example::

        AvroSerde(registry, '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}')

        AvroSerde(registry, Path("order.avsc"), to_dict=dataclasses.asdict, from_dict=lambda found: Order(**found))

    Attributes:
        schema: What values are written with, as JSON text, or a `pathlib.Path` to it; None: the newest one that the subject has.
        reader_schema: What values are read as (Avro's schema resolution: defaults fill what an old record lacks);
            None: `schema`, and without that the one that each was written with.
        to_dict: Makes Avro's dict of a value of yours; None: values are that already.
        from_dict: The way back.
    """

    schema: str | Path | None = None
    reader_schema: str | Path | None = None
    to_dict: Callable[[Any], dict[str, Any]] | None = None
    from_dict: Callable[[dict[str, Any]], Any] | None = None

    def _client_module(self) -> Any:
        return load("confluent_kafka.schema_registry.avro")

    def _make_writer(self) -> Callable[[Any, Any], bytes | None]:
        convert = self.to_dict
        latest = self.schema is None
        settings = self._settings(
            **{"auto.register.schemas": self.auto_register and not latest, "use.latest.version": latest}
        )
        writer: Callable[[Any, Any], bytes | None] = self._client_module().AvroSerializer(
            client_of(self.registry),
            self.schema,
            None if convert is None else lambda value, _: convert(value),
            settings,
        )
        return writer

    def _make_reader(self) -> Callable[[bytes, Any], Any]:
        convert = self.from_dict
        reader: Callable[[bytes, Any], Any] = self._client_module().AvroDeserializer(
            client_of(self.registry),
            self.reader_schema or self.schema,
            None if convert is None else lambda found, _: convert(found),
            conf=self._settings(),
        )
        return reader
