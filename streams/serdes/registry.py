"""The common part of all schema registry serdes: connection, names of subjects, and classification of failures.

Confluent's client does the work (the extra `registry`): a value is the byte 0, the 4 bytes of its schema's id, and the data. The
client asks the registry once per schema and caches the answer, so a record costs no request.

Invariants: a connection is made in the process that uses it and is never pickled. A serde's identity has nothing that may change
while the format stays the same (address, schema, strategy). An address is shown without its password. If the registry does not
answer or refuses to register, no record is at fault: that is a `RegistryError`, to which no skip policy applies.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from typing_extensions import Self

from streams.errors import ConfigError, RegistryError, SerdeError, StreamsError
from streams.serdes.avro.asked import AskedFor
from streams.serdes.avro.reading import reader_of
from streams.serdes.avro.writing import writer_of
from streams.serdes.base import Headers, Serde, T, cannot_deserialize, cannot_keep, cannot_serialize
from streams.serdes.json_text import NotKept, dumps, keep, loads

Subject: TypeAlias = Literal["topic", "record", "topic-record"] | Callable[[str, bool, str | None], str]
"""The naming of a schema's subject; a function gets the topic, whether it is for keys, and the record's name."""

_STRATEGIES = {
    "topic": "topic_subject_name_strategy",
    "record": "record_subject_name_strategy",
    "topic-record": "topic_record_subject_name_strategy",
}
_CLIENT = "confluent_kafka.schema_registry"
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True, repr=False)
class SchemaRegistry:
    """A schema registry: its address and how to connect.

    For example:

        registry = SchemaRegistry("https://registry:8081", {"basic.auth.user.info": os.environ["REGISTRY_LOGIN"]})

    Attributes:
        url: The registry's address, or several, separated by commas.
        config: Further properties of Confluent's client (`basic.auth.user.info`, `ssl.ca.location`, `timeout` in s, ...).
    """

    url: str
    config: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.url)

    def __repr__(self) -> str:
        addresses = (urlsplit(one) for one in self.url.split(","))
        shown = ",".join(f"{one.scheme}://{one.netloc.rpartition('@')[2]}" for one in addresses)
        return f"SchemaRegistry({shown!r})"


@dataclass(frozen=True)
class RegistrySerde(Serde[T], ABC):
    """The common base of all serdes with schemas in a registry.

    Attributes:
        registry: The schema registry.
        is_key: Whether the serde is for keys, whose subjects end in `-key` instead of `-value`.
        subject: `"topic"`: `<topic>-value`; `"record"`: the schema's own name; `"topic-record"`: both; or a function
            `fn(topic, is_key, record_name)`. Stores have topics, too: their values' subject is `<changelog>-value`.
        auto_register: Whether a schema is registered if the subject does not have it; otherwise it must exist.
        ids_in_headers: Whether the schema's id may also be in the record's headers, where newer producers can put it. For
            sources only: this serde always writes the id before the data, and an old header would contradict it.
    """

    registry: SchemaRegistry
    is_key: bool = field(default=False, kw_only=True)
    subject: Subject = field(default="topic", kw_only=True)
    auto_register: bool = field(default=True, kw_only=True)
    ids_in_headers: bool = field(default=False, kw_only=True)
    _exact: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.subject, str) and self.subject not in _STRATEGIES:
            raise ConfigError(
                f"subject={self.subject!r}: take one of {', '.join(map(repr, _STRATEGIES))}, or a function."
            )
        for name in ("schema", "reader_schema"):
            if isinstance(path := getattr(self, name, None), Path):
                object.__setattr__(self, name, _read_schema(path))
        self._client_module()  # fails while the topology is built, not later in a worker

    @abstractmethod
    def _client_module(self) -> Any:
        """The client's module for this format. Raises `ConfigError` if it is not installed."""

    @abstractmethod
    def _make_writer(self, exact: bool) -> Callable[[Any, Any], bytes | None]:
        """The function that writes values. With `exact`, it writes only values that are read back unchanged, in value and type."""

    @abstractmethod
    def _make_reader(self) -> Callable[[bytes, Any], Any]: ...

    def serialize(self, topic: str, value: T | None, headers: Headers = None) -> bytes | None:
        """The schema's id, followed by the value.

        Raises:
            SerdeError: The value does not fit the schema.
            RegistryError: The registry does not answer, or rejects the schema.
        """
        if value is None:
            return None
        try:
            return _writer(self, self._exact)(value, self._context(topic, None))
        except StreamsError:
            raise
        except Exception as error:
            if is_registrys_fault(error):
                raise self._registry_error("writing to", topic, error) from error
            if type(value) is AskedFor:
                raise SerdeError(str(error)) from error
            told = cannot_keep if isinstance(error, NotKept) else cannot_serialize
            raise told(self, topic, value, error) from error

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> T | None:
        """The value.

        Raises:
            SerdeError: The bytes are not in the registry's format, their schema is unknown, or they do not fit the schema.
            RegistryError: The registry does not answer.
        """
        if data is None:
            return None
        try:
            value: T = _reader(self)(data, self._context(topic, headers if self.ids_in_headers else None))
            return value
        except StreamsError:
            raise
        except Exception as error:
            # An id that the registry does not know is the record's fault.
            if is_registrys_fault(error) and getattr(error, "http_status_code", None) != _NOT_FOUND:
                raise self._registry_error("reading from", topic, error) from error
            raise cannot_deserialize(self, topic, data, error) from error

    def kept(self) -> Self:
        """The same serde for values that will be read back. It refuses a value that would come back as another value or type."""
        variant = copy(self)
        object.__setattr__(variant, "_exact", True)
        return variant

    def identity(self) -> str:
        """The format and whether it is for keys; schemas may evolve within a format."""
        return f"{type(self).__qualname__}(is_key={self.is_key})"

    def _settings(self, **more: Any) -> dict[str, Any]:
        """The client's settings for subjects; without a strategy, the client would ask the registry for one."""
        subject = self.subject
        if isinstance(subject, str):
            return {"subject.name.strategy": getattr(load(_CLIENT), _STRATEGIES[subject]), **more}
        is_key = self.is_key

        def named(context: Any, record_name: str | None) -> str:
            return subject(context.topic, is_key, record_name)

        return {"subject.name.strategy": named, **more}

    def _context(self, topic: str, headers: Headers) -> Any:
        serialization = load("confluent_kafka.serialization")
        part = serialization.MessageField.KEY if self.is_key else serialization.MessageField.VALUE
        return serialization.SerializationContext(topic, part, list(headers or ()))

    def _registry_error(self, doing: str, topic: str, error: Exception) -> RegistryError:
        return RegistryError(
            f"{self.registry!r} failed while {doing} topic '{topic}': {type(error).__name__}: {error}. No record was "
            f"skipped: check its address and login, and the subject's compatibility, then start again."
        )


def _read_schema(path: Path) -> str:
    """The text of a schema's file, read in the program's process, since workers may not have the file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"The schema cannot be read from '{path}': {error.strerror}.") from error


@cache
def client_of(registry: SchemaRegistry) -> Any:
    """The process' one `SchemaRegistryClient` for a registry."""
    return load(_CLIENT).SchemaRegistryClient({"url": registry.url, **registry.config})


@cache
def load(module: str) -> Any:
    """A module of the client. Raises `ConfigError` if the module or one of its dependencies is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"Serdes with a schema registry need the extra 'registry': pip install 'streams-on-spark[registry]' ({error})."
        ) from error


def is_registrys_fault(error: Exception) -> bool:
    """Whether a failure was caused by the registry or the network, and not by the value."""
    errors = load(f"{_CLIENT}.error")
    # By name, because the client may use httpx or its successor.
    network = any(
        base.__name__ == "TransportError" and base.__module__.startswith("httpx") for base in type(error).__mro__
    )
    return network or isinstance(error, errors.SchemaRegistryError | errors.OAuthTokenError)


@cache
def _writer(serde: RegistrySerde, exact: bool) -> Callable[[Any, Any], bytes | None]:
    # `exact` is a separate argument, because a serde and its variant for stored values are equal as keys of the cache.
    return serde._make_writer(exact)


@cache
def _reader(serde: RegistrySerde) -> Callable[[bytes, Any], Any]:
    return serde._make_reader()


@dataclass(frozen=True)
class AvroSerde(RegistrySerde):
    """Values of an Avro schema, as Confluent's serialisers write them.

    A value is checked as in Java: a float for a long, a datetime without a zone, a field that the schema does not have and the like
    are errors that name the field. A value for a sink may be converted without loss (an int for a double, a tuple for an array, a
    field left out that has a default). A value in a store or an internal topic has to be exactly what reading returns.

    In a union of records with the same fields, a record is an `AvroRecord`: a dict that knows its branch, so that it is written as
    it was read. All other records are plain dicts. A default of the schema for reading is a value of the field's type.

    For example:

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

    @property
    def is_inverse(self) -> bool:
        """Whether reading returns what was written. It is unknown, so False, if `to_dict` and `from_dict` convert values."""
        return self.to_dict is None and self.from_dict is None

    def _client_module(self) -> Any:
        return load("confluent_kafka.schema_registry.avro")

    def _make_writer(self, exact: bool) -> Callable[[Any, Any], bytes | None]:
        latest = self.schema is None
        settings = self._settings(
            **{"auto.register.schemas": self.auto_register and not latest, "use.latest.version": latest}
        )
        # If the user's functions convert values, the program's functions see them as they are read, so conversion is harmless.
        kind = _checking(self._client_module().AvroSerializer, exact and self.is_inverse)
        writer: Callable[[Any, Any], bytes | None] = kind(client_of(self.registry), self.schema, self.to_dict, settings)
        return writer

    def _make_reader(self) -> Callable[[bytes, Any], Any]:
        reader: Callable[[bytes, Any], Any] = _resolving(self._client_module().AvroDeserializer)(
            client_of(self.registry), self.reader_schema or self.schema, self.from_dict, self._settings()
        )
        return reader


def _checking(kind: type[Any], exact: bool) -> type[Any]:
    """The client's serialiser of Avro, with values checked against the schema that they are written with."""

    class Checking(kind):  # type: ignore[misc]
        def __init__(self, client: Any, schema: str | None, convert: Callable[[Any], Any] | None, conf: Any) -> None:
            super().__init__(client, schema, self._checked, conf)
            self._convert = convert
            self._checks: dict[Any, Callable[[Any], Any]] = {}
            self._own = None if schema is None else self._check_of(self._parsed_schema)

        def _check_of(self, schema: Any) -> Callable[[Any], Any]:
            check = writer_of(schema, exact=exact)
            return lambda value: check(value.value(schema) if type(value) is AskedFor else value)

        def _checked(self, value: Any, _: Any) -> Any:
            # A value that is given by its JSON form is an Avro value already.
            found = value if self._convert is None or type(value) is AskedFor else self._convert(value)
            return found if self._own is None else self._own(found)

        def _execute_rules(self, context: Any, subject: Any, mode: Any, source: Any, target: Any, *more: Any) -> Any:
            # The newest schema of a subject is known only here, and its rules may change the value.
            found = super()._execute_rules(context, subject, mode, source, target, *more)
            if target not in self._checks:
                self._checks[target] = self._check_of(self._get_parsed_schema(target))
            return self._checks[target](found)

    return Checking


def _resolving(kind: type[Any]) -> type[Any]:
    """The client's deserialiser of Avro, with Avro's schema resolution instead of fastavro's."""
    schema_id = load(f"{_CLIENT}.serde").SchemaId

    class Resolving(kind):  # type: ignore[misc]
        def __init__(self, client: Any, schema: str | None, convert: Callable[[Any], Any] | None, conf: Any) -> None:
            super().__init__(client, schema, None if convert is None else lambda found, _: convert(found), conf=conf)
            self._convert = convert
            self._readers: dict[Any, Callable[[BytesIO], Any]] = {}

        def __call__(self, data: bytes, context: Any) -> Any:
            found = schema_id("AVRO")
            payload = self._schema_id_deserializer(data, context, found)
            more = (self._registry, self._subject_name_conf) if self._strategy_accepts_client else ()
            written = self._get_writer_schema(found, self._subject_name_func(context, None, *more))
            if written.rule_set is not None:
                # Rules (encryption and the like) belong to the client, which offers no place between them and the reading.
                return super().__call__(data, context)
            place = (found.id, found.guid)
            if place not in self._readers:
                parsed = self._get_parsed_schema(written)
                self._readers[place] = reader_of(parsed, parsed if self._reader_schema is None else self._reader_schema)
            value = self._readers[place](payload)
            return value if self._convert is None else self._convert(value)

    return Resolving


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

    def _make_writer(self, exact: bool) -> Callable[[Any, Any], bytes | None]:
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


# --- JSON with a schema in a registry: like `JsonSerde`, but values that violate the schema are neither written nor read.
#
# Invariant: a schema refers only to itself, to its registered references, or to the drafts of JSON Schema. Confluent's client would
# fetch any other `$ref` over HTTP, so anyone who may register a schema could make the workers call arbitrary addresses.


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

    def _make_writer(self, exact: bool) -> Callable[[Any, Any], bytes | None]:
        writer: Callable[[Any, Any], bytes | None] = _closed(self._client_module().JSONSerializer)(
            self.schema,
            client_of(self.registry),
            conf=self._settings(**{"auto.register.schemas": self.auto_register}),
            json_encode=keep if exact else dumps,
        )
        return writer

    def _make_reader(self) -> Callable[[bytes, Any], Any]:
        reader: Callable[[bytes, Any], Any] = _closed(self._client_module().JSONDeserializer)(
            self.reader_schema,
            schema_registry_client=client_of(self.registry),
            conf=self._settings(),
            json_decode=loads,
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
