"""Finds the functions that a program has passed to a node, and whether another version of the program has the same ones.

Nothing is called. The search looks into classes, partials, containers and the engine's closures.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import state

_ENGINE = ("streams.", f"{state.__name__}.")
_DEEPEST = 12
_PLAIN = (bool, int, float, str, bytes, type(None))


def users_functions(node: Any) -> Iterator[types.FunctionType]:
    """The program's own functions within a value, such as a node or its spec."""
    return _functions_in(node, set(), 0)


def code_digest(value: Any) -> str | None:
    """A digest of the code of a program's functions within a value, and of the plain values that it uses. None: no functions.

    It does not depend on a function's position in its file, nor on the code of other functions of the program that it calls. It
    begins with the version of Python, because another version compiles the same text differently.
    """
    found = [_described(function) for function in users_functions(value)]
    if not found:
        return None
    version = ".".join(map(str, sys.version_info[:2]))
    return f"{version}:{hashlib.blake2b(repr(found).encode(), digest_size=8).hexdigest()}"


def _described(function: types.FunctionType) -> list[Any]:
    code = function.__code__
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]
    used = [(name, function.__globals__.get(name)) for name in _names(code)]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    return [_code(code), _plain(cells), _plain(used), _plain(defaults)]


def _code(code: types.CodeType) -> list[Any]:
    constants = [
        _code(one) if isinstance(one, types.CodeType) else sorted(map(repr, one)) if isinstance(one, frozenset) else one
        for one in code.co_consts
    ]
    return [code.co_code.hex(), constants, code.co_names]


def _names(code: types.CodeType) -> list[str]:
    inner = [_names(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return [*code.co_names, *(name for names in inner for name in names)]


def _plain(values: list[Any]) -> list[Any]:
    """Keeps the values whose text is the same at every start."""
    return [one for one in values if _is_plain(one)]


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(map(_is_plain, value)))


def _functions_in(value: Any, seen: set[int], depth: int) -> Iterator[types.FunctionType]:
    """The program's own functions within a value: itself, or in classes, partials, containers and the engine's closures."""
    if id(value) in seen or depth > _DEEPEST:
        return
    seen.add(id(value))
    if isinstance(value, types.FunctionType) and not _is_ours(value.__module__):
        yield value
        return
    for part in _parts(value):
        yield from _functions_in(part, seen, depth + 1)


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
    return f"{module}.".startswith(_ENGINE)


def _is_full(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
