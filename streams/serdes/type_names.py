"""Types in messages, as users write them."""

from __future__ import annotations

import types
import typing
from typing import Any

UNIONS = (typing.Union, types.UnionType)
"""`Union[int, str]` and `int | str` have different origins."""


def type_name(kind: Any) -> str:
    """A type as users write it, without modules: `Order`, `list[Order]`."""
    if kind is ...:
        return "..."
    if isinstance(kind, type) and not typing.get_args(kind):
        return kind.__qualname__.rpartition(".")[2]
    arguments = typing.get_args(kind)
    if not arguments:
        return repr(kind)
    names = [type_name(argument) for argument in arguments]
    if typing.get_origin(kind) in UNIONS:
        return " | ".join("None" if name == "NoneType" else name for name in names)
    return f"{type_name(typing.get_origin(kind))}[{', '.join(names)}]"
