"""Serdes of plain values, and of lists and tuples of them, in the exact format of Kafka's Java clients.

As in Java, the bytes of negative numbers sort above those of positive ones; ranges over such keys are ranges of bytes.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from math import isnan
from typing import Any, ClassVar, Generic, TypeVar

from streams.serdes.base import (
    Headers,
    Serde,
    T,
    a_value,
    cannot_deserialize,
    cannot_keep,
    cannot_serialize,
    check_serde,
    kept,
    kept_parts,
    serde_identity,
)

N = TypeVar("N", int, float)
S = TypeVar("S", bound="_Keeps[Any]")


@dataclass(frozen=True, slots=True)
class _Keeps(Serde[T]):
    """A serde that also writes values that are read back as another type: a subclass of text as plain text, a tuple as a list.

    Attributes:
        is_kept: Whether such values are refused, because the engine will read them back.
    """

    is_kept: bool = field(default=False, init=False, compare=False, repr=False)

    def _other_type(self, topic: str, value: object, takes: type | tuple[type, ...], reads: type) -> None:
        """Raises `SerdeError` for a value that is not of exactly the type that is read, unless conversion is allowed."""
        if isinstance(value, bool) or not isinstance(value, takes):
            raise cannot_serialize(self, topic, value)
        if self.is_kept:
            name = reads.__name__
            raise cannot_keep(
                self, topic, value, f"it is {a_value(value)}, which is read as a plain {name}: make {name} of it first"
            )


def _strict(serde: S) -> S:
    """The same serde for values that the engine reads back. It refuses every value that would come back as something else."""
    made = copy(kept_parts(serde))
    object.__setattr__(made, "is_kept", True)
    return made


@dataclass(frozen=True, slots=True)
class StringSerde(_Keeps[str]):
    """Text as UTF-8; the default serde of keys."""

    kept = _strict

    def serialize(self, topic: str, value: str | None, headers: Headers = None) -> bytes | None:
        """UTF-8 bytes. Raises `SerdeError` for anything but `str`."""
        if value is None:
            return None
        if type(value) is not str:
            self._other_type(topic, value, str, str)
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
class BytesSerde(_Keeps[bytes]):
    """Bytes, unchanged."""

    kept = _strict

    def serialize(self, topic: str, value: bytes | None, headers: Headers = None) -> bytes | None:
        """The bytes. Raises `SerdeError` for anything but `bytes`."""
        if value is not None and type(value) is not bytes:
            self._other_type(topic, value, bytes, bytes)
        return value

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> bytes | None:
        """The bytes."""
        return data


@dataclass(frozen=True, slots=True)
class UuidSerde(_Keeps[uuid.UUID]):
    """A `uuid.UUID` as its text of 36 characters, as Kafka's `UUIDSerializer` writes it."""

    kept = _strict

    def serialize(self, topic: str, value: uuid.UUID | None, headers: Headers = None) -> bytes | None:
        """The text's bytes. Raises `SerdeError` for anything but `uuid.UUID`."""
        if value is None:
            return None
        if type(value) is not uuid.UUID:
            self._other_type(topic, value, uuid.UUID, uuid.UUID)
        return str(value).encode()

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> uuid.UUID | None:
        """The UUID. Raises `SerdeError` if the bytes are not its text."""
        if data is None:
            return None
        try:
            return uuid.UUID(data.decode())
        except ValueError as error:
            raise cannot_deserialize(self, topic, data, error) from error


class _Number(_Keeps[N], Generic[N]):
    """A number of fixed length, big-endian."""

    __slots__ = ()
    packer: ClassVar[struct.Struct]
    takes: ClassVar[tuple[type, ...]]
    """The types that are written; the last one is read."""
    kept = _strict

    def serialize(self, topic: str, value: N | None, headers: Headers = None) -> bytes | None:
        """The number's bytes. Raises `SerdeError` for another type, or a number out of range."""
        if value is None:
            return None
        if type(value) is not self.takes[-1]:
            self._other_type(topic, value, self.takes, self.takes[-1])
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


@dataclass(frozen=True, slots=True)
class Int16Serde(_Number[int]):
    """A 16-bit integer, Java's `Short`."""

    packer: ClassVar = struct.Struct(">h")
    takes: ClassVar = (int,)


@dataclass(frozen=True, slots=True)
class Int32Serde(_Number[int]):
    """A 32-bit integer, Java's `Integer`."""

    packer: ClassVar = struct.Struct(">i")
    takes: ClassVar = (int,)


@dataclass(frozen=True, slots=True)
class Int64Serde(_Number[int]):
    """A 64-bit integer, Java's `Long`; the type of `count()`."""

    packer: ClassVar = struct.Struct(">q")
    takes: ClassVar = (int,)


@dataclass(frozen=True, slots=True)
class Float32Serde(_Number[float]):
    """A 32-bit float, Java's `Float`. What the engine reads back must be one already: 0.5 is, 0.1 is not."""

    packer: ClassVar = struct.Struct(">f")
    takes: ClassVar = (int, float)
    kept = _strict

    def serialize(self, topic: str, value: float | None, headers: Headers = None) -> bytes | None:
        """The number's bytes. Raises `SerdeError` for another type, or a number out of range."""
        data = _Number.serialize(self, topic, value, headers)
        if self.is_kept and value is not None and data is not None:
            back = self.packer.unpack(data)[0]
            if back != value and not isnan(value):
                why = f"of 32 bits, {value!r} is {back!r}: name Float64Serde(), or round the number"
                raise cannot_keep(self, topic, value, why)
        return data


@dataclass(frozen=True, slots=True)
class Float64Serde(_Number[float]):
    """A 64-bit float, Java's `Double`."""

    packer: ClassVar = struct.Struct(">d")
    takes: ClassVar = (int, float)


@dataclass(frozen=True, slots=True)
class BooleanSerde(Serde[bool]):
    """`True` as the byte 1, `False` as the byte 0 (`BooleanSerializer`)."""

    def kept(self) -> BooleanSerde:
        """The serde itself, since it always reads what it writes."""
        return self

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

    def kept(self) -> VoidSerde:
        """The serde itself, since it always reads what it writes."""
        return self

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


# --- Entries one behind the other, each behind its length: the form that `ListSerde` and `TupleSerde` share.
#
# Bytes: `length(4) ∥ entry` for each entry, big endian; a length of -1 is None (Kafka's `ListSerializer` for variable sizes).

_LENGTH = struct.Struct(">i")
_NULL = -1


def framed(entries: Iterable[bytes | None]) -> bytes:
    """The entries, each preceded by its length."""
    out: list[bytes] = []
    for entry in entries:
        out += [_LENGTH.pack(_NULL)] if entry is None else [_LENGTH.pack(len(entry)), entry]
    return b"".join(out)


def unframed(data: bytes, at: int, count: int) -> Iterator[bytes | None]:
    """The `count` entries from offset `at` to the end. Raises `ValueError` or `struct.error` if the bytes do not fit."""
    for _ in range(count):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if size == _NULL:
            yield None
            continue
        if size < 0 or len(data) < at + size:
            raise ValueError("cut off")
        yield data[at : at + size]
        at += size
    if at != len(data):
        raise ValueError("more bytes than entries")


# --- Lists in the exact format of Kafka's `ListSerializer` (KIP-466).
#
# The first byte distinguishes two forms. Entries of a fixed length follow one another, after the positions of the nulls; all other
# entries follow their lengths, -1 for a null. The serde of the entries alone decides the form, so equal lists have equal bytes.

_INT = struct.Struct(">i")
_CONSTANT_SIZE, _VARIABLE_SIZE = 0, 1
# ListSerializer.FIXED_LENGTH_SERIALIZERS, which does not contain the one for Boolean.
_SIZES: dict[type, int] = {
    Int16Serde: 2,
    Int32Serde: 4,
    Int64Serde: 8,
    Float32Serde: 4,
    Float64Serde: 8,
    UuidSerde: 36,
}


@dataclass(frozen=True, slots=True)
class ListSerde(_Keeps[list[T]]):
    """A `list` of values of one serde; entries may be None.

    Attributes:
        inner: The serde of the entries.
    """

    inner: Serde[T]
    kept = _strict

    def __post_init__(self) -> None:
        check_serde(self.inner, "ListSerde(inner)")

    def serialize(self, topic: str, value: list[T] | None, headers: Headers = None) -> bytes | None:
        """The list's bytes. Raises `SerdeError` for anything but a list or a tuple of what `inner` takes."""
        if value is None:
            return None
        if type(value) is not list:
            self._other_type(topic, value, (list, tuple), list)
        entries = [self.inner.serialize(topic, entry, headers) for entry in value]
        if type(self.inner) in _SIZES:
            nulls = [at for at, entry in enumerate(entries) if entry is None]
            head = [bytes((_CONSTANT_SIZE,)), _INT.pack(len(nulls)), *map(_INT.pack, nulls)]
            return b"".join([*head, _INT.pack(len(entries)), *(entry for entry in entries if entry is not None)])
        return bytes((_VARIABLE_SIZE,)) + _INT.pack(len(entries)) + framed(entries)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> list[T] | None:
        """The list. Raises `SerdeError` for invalid bytes."""
        if data is None:
            return None
        constant = type(self.inner) in _SIZES
        if not data or data[0] != (_CONSTANT_SIZE if constant else _VARIABLE_SIZE):
            raise cannot_deserialize(self, topic, data, "another form than that of its entries' serde")
        try:
            entries = list(self._constant(data) if constant else self._variable(data))
        except (struct.error, ValueError) as error:
            raise cannot_deserialize(self, topic, data, error) from error
        # Entries may be None, but the types do not say so: otherwise every use of a list of texts would have to handle None.
        values: list[Any] = [self.inner.deserialize(topic, entry, headers) for entry in entries]
        return values

    def _constant(self, data: bytes) -> Iterator[bytes | None]:
        count, at = _INT.unpack_from(data, 1)[0], 1 + _INT.size
        nulls = set(struct.unpack_from(f">{max(count, 0)}i", data, at))
        at += count * _INT.size
        (length,) = _INT.unpack_from(data, at)
        at += _INT.size
        size = _SIZES[type(self.inner)]
        if len(data) != at + size * (length - len(nulls)):
            raise ValueError("its length does not fit the number of entries")
        for entry in range(length):
            if entry in nulls:
                yield None
            else:
                yield data[at : at + size]
                at += size

    def _variable(self, data: bytes) -> Iterator[bytes | None]:
        (length,) = _INT.unpack_from(data, 1)
        return unframed(data, 1 + _INT.size, length)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class TupleSerde(_Keeps[tuple[Any, ...]]):
    """A `tuple` with one entry for each serde; entries may be None. Bytes: `length(4) ∥ entry` for each, -1 for None.

    For example:

        TupleSerde(StringSerde(), Int64Serde()).serialize("t", ("eu", 7))

    Raises:
        TopologyError: There is no serde, or an argument is not a serde.
    """

    entries: tuple[Serde[Any], ...]

    def __init__(self, *entries: Serde[Any]) -> None:
        for number, entry in enumerate(entries, 1):
            check_serde(entry, f"Entry {number} of TupleSerde")
        object.__setattr__(self, "entries", entries)
        object.__setattr__(self, "is_kept", False)

    def kept(self) -> TupleSerde:
        """The same serde for values that the engine reads back. It refuses every value that would come back as something else."""
        made = TupleSerde(*map(kept, self.entries))
        object.__setattr__(made, "is_kept", True)
        return made

    def serialize(self, topic: str, value: tuple[Any, ...] | None, headers: Headers = None) -> bytes | None:
        """The tuple's bytes. Raises `SerdeError` for anything but a tuple of this length."""
        if value is None:
            return None
        if type(value) is not tuple:
            self._other_type(topic, value, tuple, tuple)
        if len(value) != len(self.entries):
            raise cannot_serialize(self, topic, value, f"expected {len(self.entries)} entries, not {len(value)}")
        return framed(serde.serialize(topic, entry, headers) for serde, entry in zip(self.entries, value, strict=True))

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> tuple[Any, ...] | None:
        """The tuple. Raises `SerdeError` if the bytes have another number of entries."""
        if data is None:
            return None
        try:
            parts = list(unframed(data, 0, len(self.entries)))
        except (struct.error, ValueError) as error:
            raise cannot_deserialize(self, topic, data, error) from error
        return tuple(serde.deserialize(topic, part, headers) for serde, part in zip(self.entries, parts, strict=True))

    def identity(self) -> str:
        """The entries' formats, in order."""
        return f"TupleSerde({', '.join(map(serde_identity, self.entries))})"

    def __repr__(self) -> str:
        return f"TupleSerde({', '.join(map(repr, self.entries))})"
