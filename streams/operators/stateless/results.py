"""Checks of the results of users' functions in stateless operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from streams.serdes.base import shown
from streams.users_code import line_of


def wrong_result(fn: Callable[..., Any], operator: str, wanted: str, gave: object) -> TypeError:
    """The error for a function's wrong result, with the line where the function begins."""
    line = line_of(fn)
    where = f" ({line})" if line else ""
    return TypeError(f"{operator} must give {wanted}, it gave {shown(gave)}{where}")


def pair(fn: Callable[..., Any], operator: str, wanted: str, gave: Any) -> tuple[Any, Any]:
    """Key and value of a result that is not a tuple: a list or another sequence of two; text and dicts are refused."""
    if not isinstance(gave, str | bytes | dict | set):
        try:
            key, value = gave
        except (TypeError, ValueError):
            pass
        else:
            return key, value
    raise wrong_result(fn, operator, wanted, gave)


def items(fn: Callable[..., Any], operator: str, wanted: str, gave: Iterable[Any]) -> Iterator[Any]:
    """The results of one record, one after the other."""
    try:
        return iter(gave)
    except TypeError:
        raise wrong_result(fn, operator, f"{wanted}, [] for none", gave) from None
