"""A call with the wrong arguments raises an error that shows the user's line and the arguments that the method takes.

Python's own message ("missing 1 required positional argument: 'mapper'") shows neither. It is only replaced if the call itself
failed. A `TypeError` from inside the method, or from a user's function, is raised unchanged.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from streams.errors import TopologyError
from streams.wording import counted

Kind = TypeVar("Kind", bound=type)
_FREE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def explain_wrong_arguments(kind: Kind) -> Kind:
    """Decorates a class: its own public methods raise `TopologyError` if they are called with the wrong arguments."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, _explaining(method))
    return kind


def _explaining(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            return method(*arguments, **keywords)
        except TypeError as error:
            # A traceback without a further frame means that the method has not begun.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            problem = _problem(method, arguments, keywords)
            if problem is None:
                raise
        raise TopologyError(problem)

    return call


def _problem(method: Callable[..., Any], arguments: Sequence[object], keywords: Mapping[str, object]) -> str | None:
    """Describes the argument that does not fit; None if names and number of the arguments are right."""
    _, *parameters = inspect.signature(method).parameters.values()
    plain = [one for one in parameters if one.kind not in _FREE]
    takes = f"{method.__name__}({', '.join(map(_shown, plain))})"
    by_place = [one for one in plain if one.kind is not one.KEYWORD_ONLY]
    given = {one.name for one in by_place[: len(arguments) - 1]} | set(keywords)
    names = set(keywords) if any(one.kind is one.VAR_KEYWORD for one in parameters) else {one.name for one in plain}
    if unknown := [name for name in keywords if name not in names]:
        return f"{method.__name__}() has no argument {unknown[0]!r}: {takes}."
    if missing := [one.name for one in plain if one.default is one.empty and one.name not in given]:
        return f"{method.__name__}() needs {' and '.join(map(repr, missing))}: {takes}."
    if len(arguments) - 1 > len(by_place):
        return (
            f"{method.__name__}() takes at most {counted(len(by_place), 'argument')} by position, "
            f"not {len(arguments) - 1}: {takes}."
        )
    return None


def _shown(one: inspect.Parameter) -> str:
    return one.name if one.default is one.empty else f"{one.name}=..."
