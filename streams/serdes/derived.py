"""Serdes derived from types, for keys and values that are made by a function and whose serde is not named.

While the topology is built, a `DerivedSerde` is replaced by any serde that the program names upstream or downstream. Whatever the
default serdes can write (text as keys, plain JSON as values) has the same bytes with and without a derived serde.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streams.errors import SerdeError, TopologyError
from streams.serdes.base import Headers, Serde, a_value, cannot_serialize, serde_identity, shown
from streams.serdes.by_type import serde_text
from streams.serdes.primitives import StringSerde


@dataclass(frozen=True, slots=True)
class DerivedSerde(Serde[Any]):
    """A serde that is used only if no other is named.

    Attributes:
        inner: The serde; None: the type is known, but has no serde.
        problem: The error message if a serde is needed and `inner` is None.
    """

    inner: Serde[Any] | None
    problem: str = ""

    def taken(self) -> Serde[Any]:
        """The serde. Raises `TopologyError` if there is none."""
        if self.inner is None:
            raise TopologyError(self.problem)
        return self.inner

    def serialize(self, topic: str, value: Any, headers: Headers = None) -> bytes | None:
        """As the serde does."""
        return self.taken().serialize(topic, value, headers)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Any:
        """As the serde does."""
        return self.taken().deserialize(topic, data, headers)

    def identity(self) -> str:
        """That of the serde."""
        return serde_identity(self.inner)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DefaultKeySerde(StringSerde):
    """`StringSerde()` for keys that may be text: the same bytes, but with an error message that says which serde to name where.

    Attributes:
        made_by: The operator whose function made the keys.
        is_text: Whether the type of the keys is known, and is text.
    """

    made_by: str
    is_text: bool = False

    def serialize(self, topic: str, value: str | None, headers: Headers = None) -> bytes | None:
        """UTF-8 bytes. Raises `SerdeError` for anything but `str`."""
        if value is None:
            return None
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError as error:
                raise cannot_serialize(self, topic, value, error) from error
        serde = serde_text(value)
        raise SerdeError(
            f"'{self.made_by}' makes a key that is {a_value(value)}, {shown(value)}, and no serde is named for it: only text can "
            f"be written. Name the serde where the key is used, with key_serde={serde} in Grouped, Joined, StreamJoined, "
            f"Repartitioned or Produced; or annotate what the function returns; or make text of the key."
        )

    @property
    def label(self) -> str:
        """Its name in messages."""
        return "StringSerde"

    def identity(self) -> str:
        """That of `StringSerde()`."""
        return serde_identity(StringSerde())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StringSerde)

    def __hash__(self) -> int:
        return hash(StringSerde())

    def __repr__(self) -> str:
        return repr(StringSerde())
