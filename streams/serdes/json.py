"""JSON, by orjson: the default serde of values."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from streams.serdes.base import Headers, Serde, T, cannot_deserialize, cannot_serialize

# Keys of ints and the like become text, as in every JSON library; NumPy scalars come out of user code on data frames.
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


@dataclass(frozen=True, slots=True)
class JsonSerde(Serde[T]):
    """Any JSON value; UTF-8, no spaces, fields in the order in which they were put in (never sorted).

    Dataclasses, datetimes and UUIDs are written as orjson writes them, and read back as plain objects and text.
    JSON's ``null`` is read as None; None itself is written as Kafka's null.
    """

    def serialize(self, topic: str, value: T | None, headers: Headers = None) -> bytes | None:
        """JSON text of the value. Raises ``SerdeError`` where JSON has no form for it."""
        if value is None:
            return None
        try:
            return orjson.dumps(value, option=_OPTIONS)
        except TypeError as error:
            raise cannot_serialize(self, topic, value, error) from error

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> T | None:
        """The value. Raises ``SerdeError`` if the bytes are not JSON."""
        if data is None:
            return None
        try:
            value: T = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise cannot_deserialize(self, topic, data, error) from error
        return value
