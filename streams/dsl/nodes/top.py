"""`top`: the best n of each group, for streams (values are only added) and tables (rows change and are deleted)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import Any

from streams.dsl import functions
from streams.errors import TopologyError


class TopAggregator:
    """Puts a value into the ordered list of the best n; among equal scores the earlier one stays ahead.

    Args:
        n: The length of the list.
        by: `(value) -> score`; a value whose score is None is not ranked.
        largest: Whether the largest score is the best.
    """

    def __init__(self, n: int, by: Callable[[Any], Any], largest: bool) -> None:
        self.n = n
        self.by = by
        self.largest = largest

    def __call__(self, key: Any, value: Any, best: list[Any]) -> list[Any]:
        """The list with one more value."""
        if value is None or self.by(value) is None:
            return best
        insort(best, value, key=self._rank)
        return best[: self.n]

    def merge(self, key: Any, earlier: list[Any], later: list[Any]) -> list[Any]:
        """The best n of two lists, for sessions that are merged."""
        return sorted((*earlier, *later), key=self._rank)[: self.n]

    def _rank(self, value: Any) -> Any:
        score = self.by(value)
        return -score if self.largest else score


def checked_top(n: int, by: functions.Function) -> Callable[[Any], Any]:
    """The score function, checked. Raises `TopologyError`."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise TopologyError(f"top takes how many rows there are to be, at least 1, not {n!r}.")
    return functions.value_only(by, "score")
