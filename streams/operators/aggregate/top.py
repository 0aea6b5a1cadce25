"""`top`: the best n values of each group of a stream, and their ranks, value by value (`top_columns` has them for columns)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams.errors import RecordError
from streams.model.expressions import Expression, gives_decimals, reads_record
from streams.model.scores import NUMBER, Score, check_alike, inverted, order_bytes, score_of
from streams.operators.aggregate.functions import AggregationFunctions
from streams.wording import described


class TopAggregator:
    """Inserts a value into the ordered list of the best n; among equal scores, the earlier value stays ahead."""

    def __init__(self, n: int, by: Callable[[Any], Any], largest: bool, ties: bool) -> None:
        self.n = n
        self.by = by
        self.largest = largest
        self.ties = ties

    def __call__(self, key: Any, value: Any, best: list[Any]) -> list[Any]:
        """Returns the list of the best values with this one inserted. Raises `RecordError` for a score that cannot be compared."""
        score = None if value is None else self.by(value)
        if score is None:
            return best
        if not best or not _are_numbers(score, self.by(best[0])):
            ranked = score_of(score)
            if best and ranked is not None:
                check_alike(ranked, self._score(best[0]))
        at = bisect_right(best, self._rank(value), key=self._rank)
        return self._first([*best[:at], value, *best[at:]])

    def merge(self, key: Any, earlier: list[Any], later: list[Any]) -> list[Any]:
        """Returns the best n of two merged sessions' lists. Raises `RecordError` if their scores cannot be compared."""
        if earlier and later:
            check_alike(self._score(later[0]), self._score(earlier[0]))
        return self._first(sorted((*earlier, *later), key=self._rank))

    def _first(self, ordered: list[Any]) -> list[Any]:
        if not self.ties or len(ordered) <= self.n:
            return ordered[: self.n]
        return ordered[: bisect_right(ordered, self._rank(ordered[self.n - 1]), key=self._rank)]

    def _score(self, value: Any) -> Score:
        score = score_of(self.by(value))
        assert score is not None, "only what has a score is in the list"
        return score

    def _rank(self, value: Any) -> Any:
        number = self.by(value)
        if type(number) is not int and type(number) is not float:
            score = self._score(value)
            if score.kind != NUMBER:
                data = order_bytes(score)
                return inverted(data) if self.largest else data
            number = score.value
        return -number if self.largest else number


@dataclass(frozen=True)
class WithRanks:
    """Adds a rank to each value of a list that `top` has made.

    Attributes:
        field: The name of the field that gets the rank.
        by: Computes the score, so that equal scores share a rank; None: every value has its own rank.
    """

    field: str
    by: Callable[[Any], Any] | None

    def __call__(self, best: list[Any]) -> list[Any]:
        """Returns new values with ranks. Raises `RecordError` for values that are not JSON objects."""
        ranks, by = list(range(1, len(best) + 1)), self.by
        if by is not None:
            scores = [score_of(by(value)) for value in best]
            for at in range(1, len(best)):
                if scores[at] == scores[at - 1]:
                    ranks[at] = ranks[at - 1]
        return [{**self._fields(value), self.field: rank} for value, rank in zip(best, ranks, strict=True)]

    def _fields(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise RecordError(
                f"top(rank={self.field!r}) adds a field to JSON objects (dict), not to {described(value)}: first turn the "
                f"values into objects with map_values(...)"
            )
        return value


def _are_numbers(one: Any, other: Any) -> bool:
    """Whether two scores are plain numbers, as almost all scores are."""
    plain = (int, float)
    return type(one) in plain and type(other) in plain and one == one  # noqa: PLR0124 - NaN is not


def score_in_columns(by: Callable[[Any], Any] | None) -> Expression | None:
    """The score as an expression that columns can compute from fields; None for functions and Decimals."""
    if not isinstance(by, Expression) or not by.paths or gives_decimals(by) or reads_record(by):
        return None
    return by


def ranks_columns(functions: AggregationFunctions) -> bool:
    """Whether functions are those of a `top` whose scores columns can compute."""
    aggregator = functions.aggregator
    return isinstance(aggregator, TopAggregator) and score_in_columns(aggregator.by) is not None
