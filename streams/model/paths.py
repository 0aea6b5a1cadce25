"""Paths of fields: `customer.name` is the field `name` in the object `customer`, and `v.0` the first element of the array `v`.

A field whose own name has a dot stands between backticks, as in Spark: the path "`bid.price`.cents" has two names, `bid.price` and
`cents`. Between backticks, two of them are one. A backtick elsewhere than at the begin of a name is an ordinary character.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Final

_NAME: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.][^.]*)")
"""One name: between backticks, or up to the next dot."""

IS_A_FIELD: Final = (
    "a field is a name, or names joined by single dots, and a name that has a dot itself stands between backticks"
)
"""What a message says of text that is not a path."""


@lru_cache(4096)
def names_of(path: str) -> tuple[str, ...]:
    """The names of a path, from the outer one to the inner one.

    Raises:
        ValueError: A name is empty, or its second backtick is missing or not the name's end.
    """
    names, at = list[str](), 0
    while True:
        found = _NAME.match(path, at)
        if found is None or path[found.end() : found.end() + 1] not in ("", "."):
            raise ValueError(f"{path!r} is not a path")
        quoted, plain = found.groups()
        names.append(plain if quoted is None else quoted.replace("``", "`"))
        if found.end() == len(path):
            return tuple(names)
        at = found.end() + 1


def is_path(given: object) -> bool:
    """Whether something is a path."""
    try:
        return isinstance(given, str) and bool(names_of(given))
    except ValueError:
        return False


def name_in_path(name: str) -> str:
    """A field's name as a path has it: between backticks where that is needed."""
    return f"`{name.replace('`', '``')}`" if "." in name or name.startswith("`") else name


@lru_cache(4096)
def path_of(names: tuple[str, ...]) -> str:
    """The path of some names."""
    return ".".join(map(name_in_path, names))


def first_and_rest(path: str) -> tuple[str, str]:
    """The outer name, and the path of the others; empty: there are no others."""
    names = names_of(path)
    return names[0], path_of(names[1:])


def dotted_name(names: Sequence[str], there: Container[object]) -> str:
    """A hint where the first names of a path, which are missing, are one name with dots that is there; else nothing."""
    for count in range(len(names), 1, -1):
        if (name := ".".join(names[:count])) in there:
            return f" There is a field {name!r}: a name that has a dot itself stands between backticks, as in col('`{name}`')."
    return ""
