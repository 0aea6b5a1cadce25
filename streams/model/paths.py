"""Paths of fields: `customer.name` is the field `name` in the object `customer`, and `v.0` the first element of the array `v`.

A field with a dot in its own name is written in backticks, as in Spark: the path "`bid.price`.cents" has two names, `bid.price` and
`cents`. Inside backticks, a backtick is doubled. A backtick that is not at the beginning of a name is an ordinary character.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Final

_NAME: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.][^.]*)")
"""Matches one name: in backticks, or up to the next dot."""

IS_A_FIELD: Final = (
    "a field is a name, or names joined by single dots, and a name that contains a dot is enclosed in backticks"
)
"""Describes what a path looks like, for messages about a text that is not a path."""


@lru_cache(4096)
def names_of(path: str) -> tuple[str, ...]:
    """The names in a path, from the outermost to the innermost.

    Raises:
        ValueError: A name is empty, or its closing backtick is missing or followed by more characters.
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
    """Whether the argument is a valid path."""
    try:
        return isinstance(given, str) and bool(names_of(given))
    except ValueError:
        return False


def name_in_path(name: str) -> str:
    """Writes a field's name as it appears in a path, in backticks if needed."""
    return f"`{name.replace('`', '``')}`" if "." in name or name.startswith("`") else name


@lru_cache(4096)
def path_of(names: tuple[str, ...]) -> str:
    """Joins names to a path."""
    return ".".join(map(name_in_path, names))


def first_and_rest(path: str) -> tuple[str, str]:
    """The outermost name, and the path of the others, which is empty if there are none."""
    names = names_of(path)
    return names[0], path_of(names[1:])


def dotted_name(names: Sequence[str], there: Container[object]) -> str:
    """A hint if the first names of a missing path, joined by dots, are the name of an existing field; otherwise an empty text."""
    for count in range(len(names), 1, -1):
        if (name := ".".join(names[:count])) in there:
            return f" There is a field {name!r}: a name that contains a dot is enclosed in backticks, as in col('`{name}`')."
    return ""
