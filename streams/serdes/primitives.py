"""Serdes of plain values in the exact format of Kafka's Java clients: big-endian numbers, UTF-8 text.

As in Java, the bytes of negative numbers sort above those of positive ones; ranges over such keys are ranges of bytes.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from streams.serdes.base import Headers, Serde, cannot_deserialize, cannot_serialize

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class StringSerde(Serde[str]):
    """Text as UTF-8; the default serde of keys."""

    def serialize(self, topic: str, value: str | None, headers: Headers = None) -> bytes | None:
        """UTF-8 bytes. Raises `SerdeError` for anything but `str`."""
        if value is None:
            return None
        if not isinstance(value, str):
            raise cannot_serialize(self, topic, value)
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise cannot_serialize(self, topic, value, error) from error

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> str | None:
        """The text. Raises `SerdeError` if the bytes are not UTF-8."""
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise cannot_deserialize(self, topic, data, error) from error


@dataclass(frozen=True, slots=True)
class BytesSerde(Serde[bytes]):
    """Bytes, unchanged."""

    def serialize(self, topic: str, value: bytes | None, headers: Headers = None) -> bytes | None:
        """The bytes. Raises `SerdeError` for anything but `bytes`."""
        if value is None or isinstance(value, bytes):
            return value
        raise cannot_serialize(self, topic, value)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> bytes | None:
        """The bytes."""
        return data


@dataclass(frozen=True, slots=True)
class UuidSerde(Serde[uuid.UUID]):
    """A `uuid.UUID` as its text of 36 characters, as Kafka's `UUIDSerializer` writes it."""

    def serialize(self, topic: str, value: uuid.UUID | None, headers: Headers = None) -> bytes | None:
        """The text's bytes. Raises `SerdeError` for anything but `uuid.UUID`."""
        if value is None:
            return None
        if not isinstance(value, uuid.UUID):
            raise cannot_serialize(self, topic, value)
        return str(value).encode()

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> uuid.UUID | None:
        """The UUID. Raises `SerdeError` if the bytes are not its text."""
        if data is None:
            return None
        try:
            return uuid.UUID(data.decode())
        except ValueError as error:
            raise cannot_deserialize(self, topic, data, error) from error


class _Number(Serde[N], Generic[N]):
    """A number of fixed length, big-endian."""

    __slots__ = ()
    packer: ClassVar[struct.Struct]
    takes: ClassVar[tuple[type, ...]]

    def serialize(self, topic: str, value: N | None, headers: Headers = None) -> bytes | None:
        """The number's bytes. Raises `SerdeError` for another type, or a number out of range."""
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, self.takes):
            raise cannot_serialize(self, topic, value)
        try:
            return self.packer.pack(value)
        except (struct.error, OverflowError) as error:
            raise cannot_serialize(self, topic, value, error) from error

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> N | None:
        """The number. Raises `SerdeError` if the number of bytes is wrong."""
        if data is None:
            return None
        if len(data) != self.packer.size:
            raise cannot_deserialize(self, topic, data, f"expected {self.packer.size} bytes")
        number: N = self.packer.unpack(data)[0]
        return number


@dataclass(frozen=True)
class Int16Serde(_Number[int]):
    """A 16-bit integer, Java's `Short`."""

    packer: ClassVar = struct.Struct(">h")
    takes: ClassVar = (int,)


@dataclass(frozen=True)
class Int32Serde(_Number[int]):
    """A 32-bit integer, Java's `Integer`."""

    packer: ClassVar = struct.Struct(">i")
    takes: ClassVar = (int,)


@dataclass(frozen=True)
class Int64Serde(_Number[int]):
    """A 64-bit integer, Java's `Long`; the type of `count()`."""

    packer: ClassVar = struct.Struct(">q")
    takes: ClassVar = (int,)


@dataclass(frozen=True)
class Float32Serde(_Number[float]):
    """A 32-bit float, Java's `Float`."""

    packer: ClassVar = struct.Struct(">f")
    takes: ClassVar = (int, float)


@dataclass(frozen=True)
class Float64Serde(_Number[float]):
    """A 64-bit float, Java's `Double`."""

    packer: ClassVar = struct.Struct(">d")
    takes: ClassVar = (int, float)


@dataclass(frozen=True, slots=True)
class BooleanSerde(Serde[bool]):
    """`True` as the byte 1, `False` as the byte 0 (`BooleanSerializer`)."""

    def serialize(self, topic: str, value: bool | None, headers: Headers = None) -> bytes | None:
        """One byte. Raises `SerdeError` for anything but `bool`."""
        if value is None:
            return None
        if not isinstance(value, bool):
            raise cannot_serialize(self, topic, value)
        return b"\x01" if value else b"\x00"

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> bool | None:
        """The truth value. Raises `SerdeError` for any other byte."""
        if data is None:
            return None
        if data not in (b"\x00", b"\x01"):
            raise cannot_deserialize(self, topic, data, "expected the byte 0 or 1")
        return data == b"\x01"


@dataclass(frozen=True, slots=True)
class VoidSerde(Serde[None]):
    """A serde for keys or values that are always null (`VoidSerializer`)."""

    def serialize(self, topic: str, value: None, headers: Headers = None) -> None:
        """None. Raises `SerdeError` for anything but None."""
        if value is not None:
            raise cannot_serialize(self, topic, value)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> None:
        """None. Raises `SerdeError` if there are bytes."""
        if data is not None:
            raise cannot_deserialize(self, topic, data, "expected none at all")


class Serdes:
    """Kafka Streams' names of the serdes: `Serdes.String()` is `StringSerde()`."""

    String = string = StringSerde
    Bytes = bytes = ByteArray = byte_array = ByteBuffer = byte_buffer = BytesSerde
    Short = short = Int16Serde
    Integer = integer = Int32Serde
    Long = long = Int64Serde
    Float = float = Float32Serde
    Double = double = Float64Serde
    UUID = uuid = UuidSerde
    Boolean = boolean = BooleanSerde
    Void = void = VoidSerde
