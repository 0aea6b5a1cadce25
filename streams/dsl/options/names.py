"""Names of operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from streams.dsl.options.base import Option


@dataclass(frozen=True, init=False, repr=False)
class Named(Option):
    """The name of an operator. A plain string is accepted wherever a `Named` is."""

    name: str

    def __init__(self, name: str) -> None:
        self._fill((), {"name": name})


NameLike: TypeAlias = str | Named | None
