"""Sentences for missing attributes, as in "KStream has no 'mapValues': here it is map_values(...)".

`AnswersUnknownNames` is a base class for the classes that users build topologies with. Python calls `__getattr__` only for missing
attributes, so `hasattr`, `copy` and `pickle` work as always, and existing names cost nothing. Classes that process every record
do not inherit from it, because attributes of a class with `__getattr__` are a little slower to read.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import sys
from abc import ABCMeta
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from streams.errors import UnknownNameError
from streams.spelling.operators import BUILT_IN, CALLS, CONTEXTS, OPERATORS
from streams.spelling.package import PACKAGE
from streams.spelling.settings import SETTINGS

_ANSWERS: dict[str, Mapping[str, str]] = {**OPERATORS, **SETTINGS, **CONTEXTS}
_HOW_MANY = 3


def answer(kind: type, name: str) -> str | None:
    """What to write instead of a name that the class does not have; None if nothing is similar."""
    snake = snake_case(name)
    for base in kind.__mro__:
        answers = _ANSWERS.get(base.__name__, {})
        # `with` and `as` are Python keywords, so libraries write `with_`.
        if found := answers.get(name) or answers.get(snake) or answers.get(f"{snake}_"):
            return found
    settings = [one.name for one in _parameters(kind) if one.kind is one.KEYWORD_ONLY]
    if snake.removeprefix("with_") in settings:
        return f"here it is {kind.__name__}({snake.removeprefix('with_')}=...)"
    there = [one for one in dir(kind) if not one.startswith("_")]
    if snake != name and snake in there:
        return f"here it is {_as_written(kind, snake)}"
    return _alike(snake, {*there, *settings})


def _parameters(kind: type) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(kind).parameters.values()
    except ValueError:  # a class written in C
        return ()


def no_such_attribute(kind: type, name: str) -> UnknownNameError:
    """The error for a name that neither the class nor its objects have."""
    return UnknownNameError(_sentence(kind.__name__, name, answer(kind, name)), name)


def answer_to(error: BaseException) -> str | None:
    """What to write instead if a user's code has read a missing attribute of one of the engine's objects.

    This is for objects that are used for every record, and therefore have no `__getattr__`.
    """
    if isinstance(error, TypeError):
        return next((instead for said, instead in CALLS.items() if str(error).endswith(said)), None)
    if not isinstance(error, AttributeError) or isinstance(error, UnknownNameError) or error.name is None:
        return None
    kind = type(error.obj)
    if (found := BUILT_IN.get(kind.__name__, {}).get(snake_case(error.name))) is not None:
        return found
    return answer(kind, error.name) if kind.__module__.startswith("streams.") else None


def _sentence(owner: str, name: str, instead: str | None) -> str:
    text = f"{owner} has no '{name}': {instead or f'help({owner}) shows what it has'}"
    return text if text.endswith("?") else f"{text}."


def snake_case(name: str) -> str:
    """`mapValues` as `map_values`; the underscore that distinguishes a name from a Python keyword stays."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _as_written(kind: type, name: str) -> str:
    found = inspect.getattr_static(kind, name)
    return f"{name}(...)" if callable(found) or isinstance(found, classmethod | staticmethod) else name


def _alike(name: str, there: Collection[str]) -> str | None:
    close = difflib.get_close_matches(name, there, _HOW_MANY)
    *others, last = close or [""]
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if close else None


class _AnsweringType(ABCMeta):
    """Answers for attributes of the class itself, as in `Consumed.with_`; works with abstract base classes."""

    if not TYPE_CHECKING:  # a type checker would believe that every name exists

        def __getattr__(cls, name: str) -> Any:
            raise _missing(cls, name, f"type object {cls.__name__!r}")


class AnswersUnknownNames(metaclass=_AnsweringType):
    """A base class whose missing attributes, and those of its objects, raise an error with a suggestion."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _missing(type(self), name, f"{type(self).__name__!r} object")


def _missing(kind: type, name: str, owner: str) -> AttributeError:
    """The error for a missing name. Names that begin with an underscore are used by Python or the engine."""
    return (
        AttributeError(f"{owner} has no attribute {name!r}") if name.startswith("_") else no_such_attribute(kind, name)
    )


def names_of_package(
    package: str, home: str, late: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names are imported on first use (PEP 562).

    For a name that does not exist, as in `from streams import Serdes` or `streams.Serdes`, the error has a suggestion.
    """

    def names() -> list[str]:
        return sorted([*importlib.import_module(home).__all__, *late])

    def get(name: str) -> Any:
        if name == "__all__":
            return [one for one in names() if not one.startswith("_")]
        if name not in late and name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(late.get(name, home))
        if name not in late and name not in module.__all__:
            raise_missing(name)
        found = getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    def raise_missing(name: str) -> None:
        # Names of modules and of Python's protocols are not names of classes.
        if not name[:1].isupper():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        error = UnknownNameError(_sentence(package, name, PACKAGE.get(name) or _alike(name, names())), name)
        if sys._getframe(2).f_code.co_name == "_handle_fromlist":
            # The import would replace an AttributeError with a less informative error.
            raise ImportError(str(error), name=name) from None
        raise error

    return get, lambda: sorted({*vars(sys.modules[package]), *names()})
