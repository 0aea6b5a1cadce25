"""Checks that a user's supplier makes processors or transformers, and that the engine can call their methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from streams.errors import TopologyError
from streams.operators.processor import Processor

_METHODS = {
    "init": ("ctx",),
    "process": ("record",),
    "transform": ("key", "value"),
    "advance": ("elapsed_ms", "limit"),
    "flush": (),
    "close": (),
}
"""Name of a method that the engine calls on a `Processor` or a `ValueTransformer` -> its arguments."""


_CHECKED: WeakSet[type[Any]] = WeakSet()


def check_supplier(supplier: Callable[[], Any]) -> None:
    """Raises an error if a supplier cannot make processors.

    Raises:
        TopologyError: It is a processor itself, is not callable, needs arguments, or its class has other methods.
    """
    if isinstance(supplier, Processor) or not callable(supplier):
        raise TopologyError(
            f"process takes a supplier of processors, such as the class or a lambda, not {supplier!r}: every task makes "
            f"processors of its own, a new one for each micro-batch."
        )
    missing = _missing_arguments(supplier)
    if missing:
        name, arguments = getattr(supplier, "__name__", repr(supplier)), ", ".join(missing)
        instead = (
            f"lambda: {name}({arguments})" if isinstance(supplier, type) else "a class, or lambda: MyProcessor(...)"
        )
        raise TopologyError(
            f"process makes processors by calling {name} without arguments, but it wants {arguments}: give {instead}."
        )
    if isinstance(supplier, type):
        if not issubclass(supplier, Processor):
            raise TopologyError(f"process takes processors: let the class {supplier.__name__} inherit from Processor.")
        check_methods(supplier)


def check_processor(made: object) -> Processor:
    """Checks and returns the processor that a supplier made.

    Raises:
        TopologyError: The object is not a processor, or its methods cannot be called.
    """
    if not isinstance(made, Processor):
        raise TopologyError(
            f"A supplier of processors gave {made!r}: it must give an object of a class that inherits from Processor."
        )
    check_methods(type(made))
    return made


def check_methods(kind: type[Any]) -> None:
    """Raises an error if the methods of a class cannot be called as the engine calls them.

    Raises:
        TopologyError: A method takes other arguments.
    """
    if kind in _CHECKED:
        return
    for name, arguments in _METHODS.items():
        method = getattr(kind, name, None)
        if method is None or not inspect.isfunction(method):
            continue
        try:
            inspect.signature(method).bind(None, *arguments)
        except TypeError:
            wanted = ", ".join(("self", *arguments))
            hint = " A Record has the key, the value, the timestamp and the headers." if name == "process" else ""
            raise TopologyError(
                f"{kind.__name__}.{name}{inspect.signature(method)} cannot be called: it is def {name}({wanted}).{hint}"
            ) from None
    _CHECKED.add(kind)


def _missing_arguments(supplier: Callable[..., Any]) -> list[str]:
    """The names of the arguments that have no default."""
    try:
        parameters = inspect.signature(supplier).parameters.values()
    except (TypeError, ValueError):
        return []  # a builtin without a signature
    wanted = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    return [one.name for one in parameters if one.kind in wanted and one.default is inspect.Parameter.empty]
