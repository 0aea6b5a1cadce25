"""`VersionedSerde`: stored values with a version tag, and functions that convert old versions to new ones.

State outlives the program: stores and changelogs have values that an older program wrote. `VersionedSerde` wraps the serde of a
store's values, tags each written value with a version, and upcasts each value read, so that operators only ever see the newest
form. Nothing is rewritten ahead of time: a row gets the new form when it is next written.

Invariants: version 0 is the inner serde's format without a tag, so state from before the wrapper stays readable; the wrapper is not
part of the topology hash, so a new version can use the old state; an older program refuses values of a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streams.errors import TopologyError
from streams.serdes.base import Headers, Serde, T, cannot_deserialize, check_serde, serde_identity

_TAG = b"\xff\xfeSTREAMS"
"""No text (0xff is not UTF-8), no registry's value (those begin with 0), and longer than any number."""
_HIGHEST = 255

Upcaster = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class VersionedSerde(Serde[T]):
    """The bytes of `inner`, prefixed with `0xff 0xfe 'STREAMS' version(1)` from version 1 on.

    Example::

        def with_currency(order):                    # version 0 -> 1
            return {**order, "currency": "EUR"}

        def in_cents(order):                         # version 1 -> 2
            return {**order, "price": round(order["price"] * 100)}

        serde = VersionedSerde(JsonSerde(), version=2, upcasters={1: with_currency, 2: in_cents})
        Materialized(name="orders", value_serde=serde)

    Attributes:
        inner: The serde of the values themselves, the same for all versions.
        version: The version of written values, 0 to 255.
        upcasters: Version -> function that converts a value of the previous version to this one. Old functions may be
            removed once no older value is left.

    Raises:
        TopologyError: A version is out of range, or an upcaster is missing.
    """

    inner: Serde[T]
    version: int
    upcasters: Mapping[int, Upcaster] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_serde(self.inner, "VersionedSerde(inner)")
        if not 0 <= self.version <= _HIGHEST:
            raise TopologyError(f"VersionedSerde(version={self.version}): a version is a number from 0 to {_HIGHEST}.")
        known = sorted(self.upcasters)
        if known != list(range(self.version - len(known) + 1, self.version + 1)) or (known and known[0] < 1):
            raise TopologyError(
                f"VersionedSerde(version={self.version}) has upcasters to the versions {known}: give one to each version "
                f"from the oldest you still read, up to {self.version}, without gaps."
            )

    def serialize(self, topic: str, value: T | None, headers: Headers = None) -> bytes | None:
        """The value, tagged with the version. Raises `SerdeError` as the inner serde does."""
        data = self.inner.serialize(topic, value, headers)
        # Version 0 has no tag, unless its bytes could be taken for one.
        if data is None or (self.version == 0 and not data.startswith(_TAG)):
            return data
        return b"".join((_TAG, bytes((self.version,)), data))

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> T | None:
        """The value in its newest form.

        Raises:
            SerdeError: A newer program wrote the value, or an upcaster is missing or has failed.
        """
        if data is None:
            return None
        version, inner = 0, data
        if data.startswith(_TAG) and len(data) > len(_TAG):
            version, inner = data[len(_TAG)], data[len(_TAG) + 1 :]
        if version > self.version:
            raise cannot_deserialize(
                self, topic, data, f"a newer program wrote it: version {version}, this one knows up to {self.version}"
            )
        value: Any = self.inner.deserialize(topic, inner, headers)
        for step in range(version + 1, self.version + 1):
            value = self._upcast(topic, data, value, step)
        newest: T | None = value
        return newest

    def _upcast(self, topic: str, data: bytes, value: Any, to: int) -> Any:
        if value is None:  # JSON's null
            return None
        upcaster = self.upcasters.get(to)
        if upcaster is None:
            raise cannot_deserialize(
                self, topic, data, f"it is of version {to - 1}, and no upcaster makes {to} of that"
            )
        try:
            return upcaster(value)
        except Exception as error:
            why = f"the upcaster to version {to} failed with {type(error).__name__}: {error}"
            raise cannot_deserialize(self, topic, data, why) from error

    def identity(self) -> str:
        """That of the inner serde: all versions are one format of a store."""
        return serde_identity(self.inner)
