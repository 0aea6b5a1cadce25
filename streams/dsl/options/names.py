"""Names of operators and of branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, overload

from streams.dsl.options.base import Option
from streams.errors import TopologyError
from streams.model.typing import K, V

if TYPE_CHECKING:
    from streams.dsl.kstream import KStream


@dataclass(frozen=True, init=False, repr=False)
class Named(Option):
    """The name of an operator. Wherever a ``Named`` is taken, a plain string is too."""

    name: str

    def __init__(self, name: str) -> None:
        self._fill((), {"name": name})


@dataclass(frozen=True, init=False, repr=False)
class Branched(Option, Generic[K, V]):
    """What becomes of a branch.

    Attributes:
        name: its name in the resulting dict, behind the split's name; default: its number, 0 for the default branch.
        function: gets the branch's stream; the stream it gives back takes the branch's place in the dict.
        consumer: gets the branch's stream, which is then left out of the dict.
    """

    name: str | None = None
    function: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None
    consumer: Callable[[KStream[K, V]], object] | None = None

    @overload
    def __init__(
        self,
        name: str | None = None,
        function: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
        consumer: Callable[[KStream[K, V]], object] | None = None,
    ) -> None: ...

    @overload
    def __init__(self, function: Callable[[KStream[K, V]], KStream[K, V] | None], /) -> None: ...

    def __init__(self, *given: Any, **settings: Any) -> None:
        self._fill(given, settings)

    def _check(self) -> None:
        super()._check()
        if self.function is not None and self.consumer is not None:
            raise TopologyError(
                "A branch has either a function or a consumer: Branched(function=...) or Branched(consumer=...)."
            )


NameLike: TypeAlias = str | Named | None
