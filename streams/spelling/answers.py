"""Sentences for missing attributes, as in "KStream has no 'mapValues': here it is map_values(...)".

`AnswersUnknownNames` is a base class for what users build topologies with. Python asks it only for attributes that do not
exist, so `hasattr`, `copy` and `pickle` find what they always find, and names that exist cost nothing here. It is not for
classes that work on every record: an attribute of a class with `__getattr__` is a little slower to read.
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
from streams.spelling.operators import CONTEXTS, OPERATORS
from streams.spelling.package import PACKAGE
from streams.spelling.settings import SETTINGS

_ANSWERS: dict[str, Mapping[str, str]] = {**OPERATORS, **SETTINGS, **CONTEXTS}
_HOW_MANY = 3


def answer(kind: type, name: str) -> str | None:
    """What to write instead of a name that the class does not have; None if nothing is like it."""
    snake = snake_case(name)
    for base in kind.__mro__:
        answers = _ANSWERS.get(base.__name__, {})
        # `with` and `as` are words of Python's own, so libraries write `with_`.
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
    """What to write instead, where code of the user's has asked an object of the engine's for what it does not have.

    For objects that are asked for something with every record, and so have no `__getattr__` to answer with.
    """
    if not isinstance(error, AttributeError) or isinstance(error, UnknownNameError) or error.name is None:
        return None
    kind = type(error.obj)
    return answer(kind, error.name) if kind.__module__.startswith("streams.") else None


def _sentence(owner: str, name: str, instead: str | None) -> str:
    text = f"{owner} has no '{name}': {instead or f'help({owner}) shows what it has'}"
    return text if text.endswith("?") else f"{text}."


def snake_case(name: str) -> str:
    """`mapValues` as `map_values`; the underscore that keeps a name apart from a keyword of Python's stays."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _as_written(kind: type, name: str) -> str:
    found = inspect.getattr_static(kind, name)
    return f"{name}(...)" if callable(found) or isinstance(found, classmethod | staticmethod) else name


def _alike(name: str, there: Collection[str]) -> str | None:
    close = difflib.get_close_matches(name, there, _HOW_MANY)
    *others, last = close or [""]
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if close else None


class _AnsweringType(ABCMeta):
    """Answers for the class itself, as in `Consumed.with_`; abstract base classes can be among its own bases."""

    if not TYPE_CHECKING:  # a type checker would believe that every name exists

        def __getattr__(cls, name: str) -> Any:
            raise _missing(cls, name, f"type object {cls.__name__!r}")


class AnswersUnknownNames(metaclass=_AnsweringType):
    """A class whose missing attributes, and those of its objects, are answered by a sentence."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _missing(type(self), name, f"{type(self).__name__!r} object")


def _missing(kind: type, name: str, owner: str) -> AttributeError:
    """Names with an underscore in front are Python's own questions, or the engine's."""
    return (
        AttributeError(f"{owner} has no attribute {name!r}") if name.startswith("_") else no_such_attribute(kind, name)
    )


def names_of_package(package: str, names: Collection[str], late: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a package, which answers `from streams import Serdes` and `streams.Serdes`.

    Args:
        package: The package's name.
        names: The names that it has.
        late: Name -> module of the names that are imported on their first use only.
    """

    def missing(name: str) -> Any:
        if name in late:
            return getattr(importlib.import_module(late[name]), name)
        # Modules and Python's own questions are no names of classes.
        if not name[:1].isupper():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        error = UnknownNameError(_sentence(package, name, PACKAGE.get(name) or _alike(name, names)), name)
        if sys._getframe(1).f_code.co_name == "_handle_fromlist":
            # An AttributeError would be swallowed by the import, which then says less.
            raise ImportError(str(error), name=name) from None
        raise error

    return missing
