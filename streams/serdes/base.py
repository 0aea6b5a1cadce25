"""The contract of a serde: one object that turns values into Kafka's bytes and back.

Invariants: ``None`` is never encoded (it is Kafka's null: a tombstone or a missing key), and every failure is a
``SerdeError`` that names the topic and shows a short, safe piece of the data. A serde is part of a topology, so it
must pickle, and equal settings must compare equal (frozen dataclasses do): joins check that both sides key alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from streams.errors import SerdeError

Headers: TypeAlias = "tuple[tuple[str, bytes | None], ...] | None"

_SHOWN = 60


@runtime_checkable
class Serde(Protocol):
    """Serialiser and deserialiser in one.

    ``headers`` are those of the record at hand, for serdes that keep a schema id or an encryption key there.
    """

    def serialize(self, topic: str, value: Any, headers: Headers = None) -> bytes | None:
        """Turns a value into bytes; ``None`` gives ``None``. Raises ``SerdeError``."""
        ...

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> Any:
        """Turns bytes into a value; ``None`` gives ``None``. Raises ``SerdeError``."""
        ...


def serde_identity(serde: Serde | None) -> str:
    """A stable text for a serde: class name and settings, never a memory address.

    It goes into the topology hash: another serde of a store is another format of its bytes. A serde whose settings do not
    all change the format (addresses, schemas that may evolve, versions) says itself what does, by a method ``identity()``.
    """
    if serde is None:
        return "none"
    own: Callable[[], str] | None = getattr(serde, "identity", None)
    if own is not None:
        return own()
    name = type(serde).__qualname__
    if not dataclasses.is_dataclass(serde):
        return name
    settings = []
    for field in dataclasses.fields(serde):
        value = getattr(serde, field.name)
        shown = serde_identity(value) if isinstance(value, Serde) else repr(value)
        settings.append(f"{field.name}={shown}")
    return f"{name}({', '.join(settings)})"


def shown(value: object) -> str:
    """A repr cut to a length that is fit for a message, and safe against a ``__repr__`` that raises."""
    try:
        text = repr(value[:_SHOWN] if isinstance(value, bytes | str) else value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def cannot_serialize(serde: object, topic: str, value: object, why: object = None) -> SerdeError:
    """The error for a value that a serde does not take."""
    return SerdeError(
        f"{type(serde).__name__} cannot write a {type(value).__name__} to topic '{topic}': {shown(value)}"
        + (f" ({why})" if why else "")
        + ". Give the operator the serde of what it is handed, or convert the value first."
    )


def cannot_deserialize(serde: object, topic: str, data: bytes, why: object = None) -> SerdeError:
    """The error for bytes that are not what a serde expects."""
    return SerdeError(
        f"{type(serde).__name__} cannot read {len(data)} bytes of topic '{topic}': {shown(data)}"
        + (f" ({why})" if why else "")
        + ". Use the serde that the topic was written with."
    )
