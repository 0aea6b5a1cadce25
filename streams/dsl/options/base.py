"""The base class of all options: construction and `repr`.

Positional arguments are recognised by their types: each goes to the first free field that accepts its type.

`Grouped("by-region")`, `Grouped(StringSerde(), JsonSerde())` and `Grouped("by-region", StringSerde())` are all accepted. None
fills the next free field, whatever its type, so `Consumed(None, JsonSerde())` has a value serde.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING
from datetime import timedelta
from inspect import Parameter, Signature, get_annotations
from typing import Any, ClassVar

from streams.errors import TopologyError
from streams.serdes.base import check_serde
from streams.spelling.answers import AnswersUnknownNames, no_such_attribute
from streams.topology.naming import check_name
from streams.wording import described

OFFSET_RESETS = ("earliest", "latest", "none")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_serde(value: object) -> bool:
    # A class, or an object with only some of the methods, was meant as a serde; the check of serdes says what is wrong.
    return hasattr(value, "serialize") or hasattr(value, "deserialize")


def _is_duration(value: object) -> bool:
    return isinstance(value, timedelta | int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, type)


def _is_extractor(value: object) -> bool:
    # The class of an extractor was meant as an extractor; the builder says what is wrong.
    return hasattr(value, "extract") or _is_function(value)


def _is_offset_reset(value: object) -> bool:
    return value in OFFSET_RESETS if isinstance(value, str) else _is_duration(value)


_TAKES: dict[str, Callable[[object], bool]] = {
    "name": _is_text,
    "store_name": _is_text,
    "key_serde": _is_serde,
    "value_serde": _is_serde,
    "other_value_serde": _is_serde,
    "timestamp_extractor": _is_extractor,
    "offset_reset": _is_offset_reset,
    "partitioner": _is_function,
    "function": _is_function,
    "consumer": _is_function,
    "partitions": _is_number,
    "retention": _is_duration,
    "history_retention": _is_duration,
    "ttl": _is_duration,
    "grace": _is_duration,
    "caching": _is_switch,
    "logging": _is_switch,
    "persistent": _is_switch,
    "changelog_config": lambda value: isinstance(value, Mapping),
}
"""Field -> whether a value could be meant for it."""


def settings_of(option: object) -> Iterator[tuple[str, Any, Any]]:
    """Name, value and default of each field; `MISSING` is the default of a required field."""
    for name, default in _defaults(type(option)).items():
        yield name, getattr(option, name), default


def place(kind: type, given: tuple[object, ...], settings: Mapping[str, object]) -> dict[str, object]:
    """The fields of an option of this kind.

    Args:
        kind: The class of the option.
        given: Positional arguments.
        settings: Keyword arguments.

    Raises:
        TopologyError: No free field accepts an argument, or no field has the name of a keyword.
    """
    defaults = _defaults(kind)
    if unknown := settings.keys() - defaults:
        raise no_such_attribute(kind, min(unknown))
    fields = {**defaults, **settings}
    free = [name for name in defaults if name not in settings]
    serdes = [name for name in free if name.endswith("_serde")]
    if len(given) == len(serdes) and all(value is None or _is_serde(value) for value in given):
        free = serdes  # `Materialized(None, JsonSerde())`: no serde for keys, rather than no name
    for value in given:
        fitting = next((name for name in free if value is None or _TAKES[name](value)), None)
        if fitting is None:
            raise _no_place(kind, value, fields)
        free.remove(fitting)
        fields[fitting] = value
    if MISSING in fields.values():
        raise TopologyError(f"{kind.__name__} needs {' and '.join(n for n, v in fields.items() if v is MISSING)}=...")
    return fields


def _defaults(kind: type) -> dict[str, Any]:
    return {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in dataclasses.fields(kind)
    }


def _shown_default(declared: Any) -> Any:
    """What a signature shows as a default, of what the class body assigns: a value, or a `dataclasses.field`."""
    if isinstance(declared, dataclasses.Field):
        declared = declared.default if declared.default_factory is MISSING else declared.default_factory()
    return Parameter.empty if declared is MISSING else declared


def _no_place(kind: type, value: object, named: Mapping[str, object]) -> TopologyError:
    name = kind.__name__
    if hasattr(value, "spec"):
        how = (
            ", and how it is stored, such as history_retention=... for a versioned table"
            if "persistent" in named
            else ""
        )
        return TopologyError(
            f"{name} takes no store: give the store's name, as in {name}('{getattr(value, 'name', 'name')}'){how}."
        )
    if taken := [field for field in named if _TAKES[field](value)]:
        third = " The other side of the join has its own serde." if name == "Joined" and _is_serde(value) else ""
        return TopologyError(
            f"{name} was given more than one {' and '.join(taken)}: {described(value)} is too many.{third}"
        )
    return TopologyError(f"{name} takes {', '.join(f'{field}=...' for field in named)}, but not {described(value)}.")


class Option(AnswersUnknownNames):
    """A frozen dataclass whose arguments may be positional in any order: `__init__` passes all of them to `_fill`."""

    __signature__: ClassVar[Signature]

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Shown by `help`, because the signature of `__init__` is not informative.
        fields = [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=_shown_default(vars(cls).get(name, MISSING)),
                annotation=annotation,
            )
            for name, annotation in get_annotations(cls).items()
        ]
        cls.__signature__ = Signature([Parameter("given", Parameter.VAR_POSITIONAL), *fields])

    @classmethod
    def with_(cls, *given: Any, **settings: Any) -> Any:
        """Another way to write the constructor, for those who know `Consumed.with(...)` of Kafka Streams."""
        make: Callable[..., Any] = cls
        return make(*given, **settings)

    @classmethod
    def as_(cls, name: str, **settings: Any) -> Any:
        """The same with a name, `Materialized.as(...)` of Kafka Streams."""
        return cls.with_(name, **settings)

    def _fill(self, given: tuple[object, ...], settings: Mapping[str, object]) -> None:
        """Sets all fields, from positional and keyword arguments."""
        for setting, value in place(type(self), given, settings).items():
            object.__setattr__(self, setting, value)
        self._check()

    def _check(self) -> None:
        """Raises `TopologyError` for an invalid setting."""
        for setting, value, default in settings_of(self):
            if setting in ("name", "store_name") and value is not default:
                check_name(value)
            if setting.endswith("_serde") and value is not default:
                check_serde(value, f"{type(self).__name__}({setting}=...)")

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value, default in settings_of(self) if value != default)
        return f"{type(self).__name__}({', '.join(shown)})"
