"""JSON with a schema in a registry: like `JsonSerde`, but values that violate the schema are neither written nor read.

Invariant: a schema refers only to itself, to its registered references, or to the drafts of JSON Schema. Confluent's client would
fetch any other `$ref` over HTTP, so anyone who may register a schema could make the workers call arbitrary addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streams.serdes.registry import RegistrySerde, client_of, load


@dataclass(frozen=True)
class JsonSchemaSerde(RegistrySerde):
    """JSON values that are checked against a JSON Schema and prefixed with its id, in the format of Confluent's serialisers.

    Attributes:
        schema: The schema to check values with when they are written, as JSON text with a `title` (the record's name), or a
            `pathlib.Path` to it.
        reader_schema: The schema to check values with when they are read; None: the schema with which each was written.
    """

    schema: str | Path
    reader_schema: str | Path | None = None

    def _client_module(self) -> Any:
        return load("confluent_kafka.schema_registry.json_schema")

    def _make_writer(self) -> Callable[[Any, Any], bytes | None]:
        writer: Callable[[Any, Any], bytes | None] = _closed(self._client_module().JSONSerializer)(
            self.schema,
            client_of(self.registry),
            conf=self._settings(**{"auto.register.schemas": self.auto_register}),
        )
        return writer

    def _make_reader(self) -> Callable[[bytes, Any], Any]:
        reader: Callable[[bytes, Any], Any] = _closed(self._client_module().JSONDeserializer)(
            self.reader_schema, schema_registry_client=client_of(self.registry), conf=self._settings()
        )
        return reader


def _closed(kind: type[Any]) -> type[Any]:
    """The client's serialiser or deserialiser, which fetches no references over HTTP."""
    referencing, drafts = load("referencing"), load("jsonschema_specifications").REGISTRY

    class Closed(kind):  # type: ignore[misc]
        def __call__(self, *given: Any) -> Any:
            try:
                return super().__call__(*given)
            except referencing.exceptions.Unresolvable as error:
                raise LookupError(
                    f"its schema refers to {error.ref}, which is not fetched: register that, and name it among the "
                    f"references of the schema"
                ) from error

        def _get_parsed_schema(self, schema: Any) -> tuple[Any, Any]:
            known: dict[Any, tuple[Any, Any]] = self.__dict__.setdefault("_closed", {})
            if schema not in known:
                parsed, registered = super()._get_parsed_schema(schema)
                if registered is not None:
                    registered = referencing.Registry().with_resources({**drafts, **registered}.items())
                known[schema] = parsed, registered
            return known[schema]

    return Closed
