"""The cases' functions of values (F) and predicates (P), by name: plain Python, made once per topology.

An F is ``fn(key, value) -> value``, a P is ``fn(key, value) -> bool``. A name or a parameter that is unknown is a
``CaseError``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from streams import Windowed
from tests.conformance.case import CaseError
from tests.conformance.json_values import same, text_of

F = Callable[[Any, Any], Any]
P = Callable[[Any, Any], bool]
_SPACES = re.compile(r"[ \t\n\x0b\f\r]+")


def is_number(value: Any) -> bool:
    """A JSON number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """A whole JSON number."""
    return isinstance(value, int) and not isinstance(value, bool)


def number(value: Any) -> Any:
    """The number, 0 for anything else."""
    return value if is_number(value) else 0


def as_text(value: Any) -> str:
    """A text as it is, anything else as compact JSON, null as ``null``."""
    return value if isinstance(value, str) else text_of(value)


def plain_key(key: Any) -> Any:
    """The key as JSON: that of a window is an object."""
    if isinstance(key, Windowed):
        return {"key": key.key, "window": {"start": key.window.start, "end": key.window.end}}
    return key


def split_spec(spec: Any, what: str) -> tuple[str, dict[str, Any]]:
    """Name and parameters; ``"name"`` is short for ``{"fn": "name"}``."""
    if isinstance(spec, str):
        return spec, {}
    if not isinstance(spec, dict) or "fn" not in spec:
        raise CaseError(f"no {what}: {spec!r}")
    return spec["fn"], {name: value for name, value in spec.items() if name != "fn"}


def find(table: dict[str, Any], spec: Any, what: str) -> Any:
    """What the table's maker of that name makes of the parameters."""
    name, parameters = split_spec(spec, what)
    if name not in table:
        raise CaseError(f"unknown {what} {name!r}")
    try:
        return table[name](**parameters)
    except TypeError as error:
        raise CaseError(f"{what} {name!r}: {error}") from error


def value_function(spec: Any) -> F:
    """The F of a specification."""
    made: F = find(_VALUES, spec, "function")
    return made


def predicate(spec: Any) -> P:
    """The P of a specification."""
    made: P = find(_PREDICATES, spec, "predicate")
    return made


# Functions of values ----------------------------------------------------------------------------------------------


def _of_value(fn: Callable[[Any], Any]) -> Callable[[], F]:
    """A function of the value alone, for which null stays null."""
    return lambda: lambda key, value: None if value is None else fn(value)


def _window(part: Callable[[Windowed], Any], otherwise: Callable[[Any], Any]) -> Callable[[], F]:
    return lambda: lambda key, value: part(key) if isinstance(key, Windowed) else otherwise(key)


def _index(i: int) -> F:
    return lambda key, value: value[i] if isinstance(value, list) and 0 <= i < len(value) else None


def _field(name: str) -> F:
    return lambda key, value: value.get(name) if isinstance(value, dict) else None


def _mod(n: int) -> F:
    return lambda key, value: value % n if is_whole(value) else None


def _length(value: Any) -> Any:
    return len(value) if isinstance(value, str | list | dict) else None


def _words() -> F:
    return lambda key, value: [word for word in _SPACES.split(value) if word] if isinstance(value, str) else []


def _affix(prefix: str = "", suffix: str = "") -> F:
    return lambda key, value: None if value is None else prefix + as_text(value) + suffix


def _before(sep: str) -> F:
    return lambda key, value: value.partition(sep)[0] if isinstance(value, str) else None


def _after(sep: str) -> F:
    return lambda key, value: value.partition(sep)[2] if isinstance(value, str) and sep in value else None


def _array(of: list[Any]) -> F:
    parts = [value_function(one) for one in of]
    return lambda key, value: [part(key, value) for part in parts]


def _object(fields: dict[str, Any]) -> F:
    parts = {name: value_function(one) for name, one in fields.items()}
    return lambda key, value: {name: part(key, value) for name, part in parts.items()}


def _compose(of: list[Any]) -> F:
    parts = [value_function(one) for one in of]

    def run(key: Any, value: Any) -> Any:
        for part in parts:
            value = part(key, value)
        return value

    return run


def _if(predicate: Any, then: Any, **other: Any) -> F:
    holds, yes, no = _PREDICATE(predicate), value_function(then), value_function(other.pop("else"))
    if other:
        raise CaseError(f"function 'if': unknown parameters {sorted(other)}")
    return lambda key, value: yes(key, value) if holds(key, value) else no(key, value)


def _arithmetic(fn: Callable[[Any, Any], Any]) -> Callable[[Any], F]:
    return lambda n: lambda key, value: fn(value, n) if is_number(value) else None


_PREDICATE = predicate
_VALUES: dict[str, Callable[..., F]] = {
    "identity": lambda: lambda key, value: value,
    "value": lambda: lambda key, value: value,
    "key": lambda: lambda key, value: plain_key(key),
    "window_key": _window(lambda key: key.key, lambda key: key),
    "window_start": _window(lambda key: key.window.start, lambda key: None),
    "window_end": _window(lambda key: key.window.end, lambda key: None),
    "const": lambda value: lambda key, _: value,
    "null": lambda: lambda key, value: None,
    "field": lambda name: _field(name),
    "index": lambda i: _index(i),
    "add": _arithmetic(lambda value, n: value + n),
    "mul": _arithmetic(lambda value, n: value * n),
    "neg": lambda: lambda key, value: -value if is_number(value) else None,
    "mod": _mod,
    "words": _words,
    "upper": _of_value(lambda value: value.upper() if isinstance(value, str) else None),
    "lower": _of_value(lambda value: value.lower() if isinstance(value, str) else None),
    "length": _of_value(_length),
    "text": lambda: lambda key, value: as_text(value),
    "affix": _affix,
    "before": _before,
    "after": _after,
    "array": _array,
    "object": _object,
    "compose": _compose,
    "if": _if,
    "range": lambda: lambda key, value: list(range(value)) if is_whole(value) else [],
    "repeat": lambda n: lambda key, value: [value] * n,
}


# Predicates -------------------------------------------------------------------------------------------------------


def _compare(fn: Callable[[Any, Any], bool]) -> Callable[[Any], P]:
    return lambda n: lambda key, value: is_number(value) and fn(value, n)


def _all_of(of: list[Any]) -> P:
    parts = [predicate(one) for one in of]
    return lambda key, value: all(part(key, value) for part in parts)


def _any_of(of: list[Any]) -> P:
    parts = [predicate(one) for one in of]
    return lambda key, value: any(part(key, value) for part in parts)


def _not(of: Any) -> P:
    part = predicate(of)
    return lambda key, value: not part(key, value)


def _on(of: Any, **other: Any) -> P:
    fn, part = value_function(of), predicate(other.pop("is"))
    if other:
        raise CaseError(f"predicate 'on': unknown parameters {sorted(other)}")
    return lambda key, value: part(key, fn(key, value))


_PREDICATES: dict[str, Callable[..., P]] = {
    "always": lambda: lambda key, value: True,
    "never": lambda: lambda key, value: False,
    "is_null": lambda: lambda key, value: value is None,
    "not_null": lambda: lambda key, value: value is not None,
    "gt": _compare(lambda value, n: value > n),
    "ge": _compare(lambda value, n: value >= n),
    "lt": _compare(lambda value, n: value < n),
    "le": _compare(lambda value, n: value <= n),
    "eq": lambda value: lambda key, other: same(value, other),
    "ne": lambda value: lambda key, other: not same(value, other),
    "even": lambda: lambda key, value: is_whole(value) and value % 2 == 0,
    "odd": lambda: lambda key, value: is_whole(value) and value % 2 == 1,
    "has_field": lambda name: lambda key, value: isinstance(value, dict) and name in value,
    "starts_with": lambda prefix: lambda key, value: isinstance(value, str) and value.startswith(prefix),
    "not": _not,
    "and": _all_of,
    "or": _any_of,
    "on": _on,
}
