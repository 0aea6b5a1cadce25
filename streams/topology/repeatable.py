"""Finds functions of a program whose results differ in each attempt: random numbers, the clock, new UUIDs.

A step may be repeated after a failure. If such a function computes a key, the repeated record goes to another task, and the engine
stops with `RoutingMismatchError`. The search reads compiled code and calls nothing.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import random
import types
from collections.abc import Iterator, Mapping
from typing import Any

_CHANGING = {
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "os.urandom",
    "time.monotonic",
    "time.perf_counter",
    "time.time",
    "time.time_ns",
    "uuid.uuid1",
    "uuid.uuid4",
}
_CHANGING_MODULES = ("random.", "secrets.", "numpy.random.")
_OURS = ("streams.", "state.")
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_DEEPEST = 12


@dataclasses.dataclass(frozen=True, slots=True)
class ChangingCall:
    """A call whose result differs in each attempt.

    Attributes:
        called: The called function, such as `random.random`.
        place: File and line of the calling function.
    """

    called: str
    place: str


def changing_calls(node: Any) -> list[ChangingCall]:
    """The calls in the functions and classes that a program has passed to a node."""
    found = {call: None for function in _functions(node, set(), 0) for call in _calls(function)}
    return list(found)


def _functions(value: Any, seen: set[int], depth: int) -> Iterator[types.FunctionType]:
    """The program's own functions within a value: itself, or in classes, partials, containers and the engine's closures."""
    if id(value) in seen or depth > _DEEPEST:
        return
    seen.add(id(value))
    if isinstance(value, types.FunctionType) and not _is_ours(value.__module__):
        yield value
        return
    for part in _parts(value):
        yield from _functions(part, seen, depth + 1)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, types.FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if _is_full(cell))
        yield from value.__defaults__ or ()
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, type):
        if not _is_ours(value.__module__):
            yield from vars(value).values()
    elif isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif dataclasses.is_dataclass(value):
        yield from (getattr(value, field.name, None) for field in dataclasses.fields(value))
    elif callable(value) and hasattr(value, "__dict__"):
        yield from (type(value), *vars(value).values())


def _is_ours(module: str | None) -> bool:
    return (f"{module}.").startswith(_OURS)


def _is_full(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _calls(function: types.FunctionType) -> Iterator[ChangingCall]:
    code = function.__code__
    for called in _changing(code, function.__globals__):
        yield ChangingCall(called, f"{code.co_filename}, line {code.co_firstlineno}")


def _changing(code: types.CodeType, names: Mapping[str, Any]) -> Iterator[str]:
    value: Any = None
    for step in dis.get_instructions(code):
        if step.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            value = names.get(str(step.argval))
        elif step.opname in _ATTRIBUTES and value is not None:
            value = getattr(value, str(step.argval), None)
        elif step.opname not in {"CACHE", "PUSH_NULL"}:
            value = None
        if (called := _name(value)) is not None:
            yield called
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _changing(constant, names)


def _name(value: Any) -> str | None:
    """The full name of a function whose results change; None for everything else."""
    if not callable(value) or isinstance(value, type):
        return None
    owner = getattr(value, "__self__", None)
    if isinstance(owner, random.Random):
        name = f"random.{value.__name__}"
    elif isinstance(owner, type):
        name = f"{owner.__module__}.{owner.__qualname__}.{value.__name__}"
    else:
        name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    name = name.replace("posix.", "os.")
    return name if name in _CHANGING or name.startswith(_CHANGING_MODULES) else None
