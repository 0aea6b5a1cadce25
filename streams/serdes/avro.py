"""Avro with a schema registry: writes and reads dicts, and resolves records of older schemas to the reader's schema."""

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
        schema: The schema for writing, as JSON text or a `pathlib.Path` to it; None: the newest schema of the subject.
        reader_schema: The schema for reading (Avro's schema resolution: defaults fill fields that an old record lacks);
            None: `schema`, or the schema with which each record was written if there is none.
        to_dict: Converts your value to Avro's dict; None: values are dicts already.
        from_dict: Converts Avro's dict to your value; None: values are dicts.
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
