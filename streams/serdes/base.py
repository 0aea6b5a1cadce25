"""The contract of a serde: one object that converts values to Kafka's bytes and back.

Invariants: `None` is never encoded (it is Kafka's null: a tombstone or a missing key), and every failure is a
`SerdeError` that names the topic and shows a short, safe piece of the data. A serde is part of a topology, so it
must be picklable, and serdes with equal settings must compare equal (frozen dataclasses do), because joins check that both
sides have the same key serde.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeAlias, runtime_checkable

from typing_extensions import TypeVar

from state.secrets import redact_identity
from streams.errors import SerdeError, TopologyError

T = TypeVar("T", default=Any)

Headers: TypeAlias = "tuple[tuple[str, bytes | None], ...] | None"

_SHOWN = 60
_PLAIN = (str, int, float, bool, type(None))
"""Types whose repr shows the value and nothing else."""


@runtime_checkable
class Serde(Protocol[T]):
    """Serialiser and deserialiser of values of one type, in one object.

    Your own serde is any object with these two methods; inheritance from this class is not required:

        class UpperCase:
            def serialize(self, topic: str, value: str | None, headers: Headers = None) -> bytes | None:
                return None if value is None else value.upper().encode()

            def deserialize(self, topic: str, data: bytes | None, headers: Headers = None) -> str | None:
                return None if data is None else data.decode()

    `headers` are those of the record, for serdes that find a schema id or an encryption key in them.
    """

    __slots__ = ()

    def serialize(self, topic: str, value: T | None, headers: Headers = None, /) -> bytes | None:
        """Converts a value to bytes; `None` stays `None`. Raises `SerdeError`."""
        ...

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = None, /) -> T | None:
        """Converts bytes to a value; `None` stays `None`. Raises `SerdeError`."""
        ...


_SIGNATURES = {"serialize": "(self, topic, value, headers=None)", "deserialize": "(self, topic, data, headers=None)"}


def check_serde(serde: object, what: str = "a serde") -> None:
    """Checks, while the topology is built, that an object can be called like a serde.

    Args:
        serde: The object.
        what: The setting that the message begins with: `Consumed(key_serde=...)`.

    Raises:
        TopologyError: The object is a class, lacks one of the two methods, or has one that does not take the headers.
    """
    name = serde.__qualname__ if isinstance(serde, type) else type(serde).__qualname__
    if isinstance(serde, type):
        instead = f"{name}()" if isinstance(serde, Serde) else "a serde such as StringSerde()"
        raise TopologyError(f"{what} takes an object, not the class {name}: write {instead}.")
    methods = {method: getattr(serde, method, None) for method in _SIGNATURES}
    missing = [method for method, found in methods.items() if not callable(found)]
    if missing:
        raise TopologyError(
            f"{what} takes a serde such as StringSerde(), not {shown(serde)}: {name} has no {' and no '.join(missing)}. "
            f"A serde has two methods: " + ", ".join(f"{method}{_SIGNATURES[method]}" for method in _SIGNATURES) + "."
        )
    for method, found in methods.items():
        try:
            signature = inspect.signature(found)  # type: ignore[arg-type]
        except (TypeError, ValueError):  # written in C
            continue
        try:
            signature.bind("topic", b"", None)
        except TypeError:
            raise TopologyError(
                f"{name}.{method}{signature} cannot be called as a serde is, with topic, data and the record's headers: "
                f"write def {method}{_SIGNATURES[method]}."
            ) from None


def serde_identity(serde: Serde[Any] | None) -> str:
    """A stable text for a serde: class name and settings, never a memory address or a secret.

    The text is part of the topology hash, because another serde of a store means another format of its bytes. The text is
    also stored and shown (`topology.json`, `streams describe`, `streams diff`). For a dataclass, fields with `repr=False` are
    left out; the value of a field named like a secret (`password`) is masked; values that are not plain (a function, a client,
    a dict) are represented by their type alone. A serde whose format depends on something else defines a method `identity()`.
    """
    if serde is None:
        return "none"
    own: Callable[[], str] | None = getattr(serde, "identity", None)
    if own is not None:
        return own()
    name = type(serde).__qualname__
    if not dataclasses.is_dataclass(serde):
        return name
    settings = {field.name: _setting(getattr(serde, field.name)) for field in dataclasses.fields(serde) if field.repr}
    return f"{name}({', '.join(f'{field}={shown}' for field, shown in redact_identity(settings).items())})"


def _setting(value: object) -> str:
    """A field of a serde, as text that is the same at every start of the program."""
    if isinstance(value, Serde) and not isinstance(value, type):
        return serde_identity(value)
    if type(value) is tuple:
        parts = [_setting(part) for part in value]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if isinstance(value, Enum):
        return repr(value) if type(value.value) in _PLAIN else f"<{type(value).__qualname__}.{value.name}>"
    return repr(value) if type(value) in _PLAIN else f"<{type(value).__qualname__}>"


class Itself(Generic[T]):
    """An object as the key of a cache: equal to nothing else, whether or not it can be hashed."""

    __slots__ = ("one",)

    def __init__(self, one: T) -> None:
        self.one = one

    def __hash__(self) -> int:
        return id(self.one)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and self.one is other.one


def shown(value: object) -> str:
    """A repr short enough for a message, and safe against a `__repr__` that raises."""
    try:
        text = repr(value[:_SHOWN] if isinstance(value, bytes | str) else value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def a_value(value: object) -> str:
    """A value's type with its article: `a str`, `an int`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _short(serde: object) -> str:
    """A serde's name in messages: its `label`, or else the name of its class."""
    return getattr(serde, "label", type(serde).__name__)


def cannot_serialize(serde: object, topic: str, value: object, why: object = None) -> SerdeError:
    """The error for a value that a serde cannot write."""
    return SerdeError(
        f"{_short(serde)} cannot write {a_value(value)} to topic '{topic}': {shown(value)}"
        + (f" ({why})" if why else "")
        + ". Give the operator the serde of what it is handed, or convert the value first."
    )


def cannot_keep(serde: object, topic: str, value: object, why: object) -> SerdeError:
    """The error for a value that would not come back unchanged from its bytes; `why` names the alternative."""
    return SerdeError(
        f"{_short(serde)} cannot keep {a_value(value)} for '{topic}', because functions would get something else back: {why}."
    )


def kept(serde: Serde[T]) -> Serde[T]:
    """The serde for values that the engine reads back. It refuses every value that would come back as something else.

    It writes the same bytes as the serde itself, and is equal to it. A serde offers it by a method `kept()`. A serde without this
    method is taken as it is: a value that is read back may differ from the written one, so functions only get values that were read
    (`comes_back`).
    """
    strict: Callable[[], Serde[T]] | None = getattr(serde, "kept", None)
    return serde if strict is None else strict()


def comes_back(serde: object) -> bool:
    """Whether every value that `kept(serde)` writes is read as an equal value of equal types."""
    if not getattr(serde, "is_inverse", True):  # because functions of the user's convert values
        return False
    entries = getattr(serde, "entries", ())  # of a `TupleSerde`
    kind: Any = type(serde)
    return _promises(kind) and all(map(comes_back, (*_parts(serde).values(), *entries)))


@lru_cache(256)
def _promises(kind: Any) -> bool:
    """Whether a class has `kept`, and no subclass of that class overrides how values are written and read."""
    mro = [vars(one) for one in kind.__mro__]
    kept, *others = (
        next((at for at, names in enumerate(mro) if name in names), len(mro))
        for name in ("kept", "serialize", "deserialize")
    )
    return kept < len(mro) and kept <= min(others)


S = TypeVar("S")


def kept_parts(serde: S) -> S:
    """The `kept` of a dataclass that is made of other serdes: the same dataclass with the `kept` of each part."""
    parts: Any = {name: kept(part) for name, part in _parts(serde).items()}
    return typing.cast("S", dataclasses.replace(typing.cast("Any", serde), **parts)) if parts else serde


def _parts(serde: object) -> dict[str, Serde[Any]]:
    """The serdes that a serde consists of, by the names of its fields."""
    if not dataclasses.is_dataclass(serde):
        return {}
    values = {one.name: getattr(serde, one.name) for one in dataclasses.fields(serde)}
    return {name: part for name, part in values.items() if isinstance(part, Serde) and not isinstance(part, type)}


def cannot_deserialize(
    serde: object,
    topic: str,
    data: bytes,
    why: object = None,
    *,
    cure: str = "Use the serde that the topic was written with",
) -> SerdeError:
    """The error for bytes that a serde cannot read."""
    return SerdeError(
        f"{_short(serde)} cannot read {len(data)} bytes of topic '{topic}': {shown(data)}"
        + (f" ({why})" if why else "")
        + f". {cure}."
    )


UNIONS = (typing.Union, types.UnionType)
"""`Union[int, str]` and `int | str` have different origins."""


def type_name(kind: Any) -> str:
    """A type as users write it, without modules: `Order`, `list[Order]`."""
    if kind is ...:
        return "..."
    if isinstance(kind, type) and not typing.get_args(kind):
        return kind.__qualname__.rpartition(".")[2]
    arguments = typing.get_args(kind)
    if not arguments:
        return repr(kind)
    names = [type_name(argument) for argument in arguments]
    if typing.get_origin(kind) in UNIONS:
        return " | ".join("None" if name == "NoneType" else name for name in names)
    return f"{type_name(typing.get_origin(kind))}[{', '.join(names)}]"
