"""`agg`: the built-in aggregates as a program writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streams.errors import TopologyError
from streams.migration_hints import AnswersUnknownNames
from streams.model.aggregates import (
    Aggregate,
    Chosen,
    Collect,
    Count,
    CountDistinct,
    Field,
    First,
    Last,
    LastBy,
    Max,
    MaxBy,
    Mean,
    Min,
    MinBy,
    Ranked,
    Sum,
)
from streams.model.expressions import Expression, ValueFields, col, lit, when
from streams.model.sketches import ApproxCountDistinct, Quantile
from streams.wording import described

KEEPS_VALUES: Final = (Chosen, Ranked, Collect, CountDistinct, ApproxCountDistinct)
"""The built-in aggregates that keep values as they are, in their JSON form."""


def _read_where(field: Field, where: Expression | None) -> Field:
    """What an aggregate reads of the records for which a condition is true: null, which takes no part, of the others."""
    if where is None:
        return field
    if not isinstance(where, Expression):
        raise TopologyError(f"where=... takes a condition such as col('price') > 10, not {described(where)}.")
    return when(where, col(field) if isinstance(field, str) else field)


class AggregateFunctions(AnswersUnknownNames):
    """The built-in aggregates, available as `agg`: `aggregate(flights=agg.count(), delay=agg.mean("dep.delay"))`.

    With `where=`, a condition, only the records take part for which it is true, not false or null (SQL's FILTER):
    `agg.count(where=col("delay") > 15)`. Of the others, the field is not even computed, so that it cannot fail. It is short for
    `when(condition, field)` as the field, which also serves an aggregate of your own.
    """

    @staticmethod
    def count(field: Field | None = None, *, where: Expression | None = None) -> Aggregate:
        """Number of records, or with a field or an expression, of those in which it is there and not null.

        A condition as the field raises `TopologyError`, since false is not null: `agg.count(where=col("delay") > 15)` counts the
        true ones.
        """
        if where is not None:
            return Count(_read_where(lit(1) if field is None else field, where))
        return Count(field)

    @staticmethod
    def count_distinct(field: Field, *, where: Expression | None = None) -> Aggregate:
        """Number of the field's distinct values that are not null, exact; over all time, or in windows with a fixed start.

        Each value of each key is a row in a store of its own. In windows it is deleted with its window, otherwise never.
        """
        return CountDistinct(_read_where(field, where))

    @staticmethod
    def approx_count_distinct(field: Field, *, rsd: float = 0.02, where: Expression | None = None) -> Aggregate:
        """About how many distinct values the field has that are not null, in any windows; one row of at most 3 KB at this `rsd`.

        `rsd` is the relative standard deviation at most, from 0.005 to 0.1. Needs the extra `sketches` on the driver and on every
        executor; `ConfigError` if the driver does not have it.
        """
        return ApproxCountDistinct(_read_where(field, where), rsd)

    @staticmethod
    def quantile(
        field: Field, q: float | Iterable[float], *, accuracy: float = 0.01, where: Expression | None = None
    ) -> Aggregate:
        """A quantile of a field's numbers, a float: of 0.5 the median; with a list of quantiles, the list of them, in its order.

        The exact one, SQL's `percentile_disc`, is the smallest number that at least this share of the numbers do not exceed. The
        result is off by at most `accuracy`, a share of it, from 0.001 to 0.25. Needs the extra `sketches`, as
        `approx_count_distinct`.
        """
        return Quantile(_read_where(field, where), q, accuracy)

    @staticmethod
    def sum(field: Field, *, where: Expression | None = None) -> Aggregate:
        """Sum of a field; of whole numbers exact, whatever their size."""
        return Sum(_read_where(field, where))

    @staticmethod
    def min(field: Field, *, where: Expression | None = None) -> Aggregate:
        """Smallest number, text or time in a field; of times the result is the ISO text."""
        return Min(_read_where(field, where))

    @staticmethod
    def max(field: Field, *, where: Expression | None = None) -> Aggregate:
        """Largest number, text or time in a field; of times the result is the ISO text."""
        return Max(_read_where(field, where))

    @staticmethod
    def mean(field: Field, *, where: Expression | None = None) -> Aggregate:
        """Arithmetic mean of a field, a float."""
        return Mean(_read_where(field, where))

    @staticmethod
    def first(field: Field, *, where: Expression | None = None) -> Aggregate:
        """The field's first value that is not null, in order of processing."""
        return First(_read_where(field, where))

    @staticmethod
    def last(field: Field, *, where: Expression | None = None) -> Aggregate:
        """The field's last value that is not null, in order of processing."""
        return Last(_read_where(field, where))

    @staticmethod
    def max_by(value: Field | ValueFields, by: Field, *, where: Expression | None = None) -> Aggregate:
        """What the record with the largest number, text or time in the field `by` has; of equal ones the first.

        `value` is a field, an expression, or several fields: `agg.max_by(fields("auction", "price"), by="price")`. A record whose
        `by` is null takes no part; the value may be null. The arguments are in the order of PySpark's and SQL's `max_by`.
        """
        return MaxBy(_read_where(by, where), value)

    @staticmethod
    def min_by(value: Field | ValueFields, by: Field, *, where: Expression | None = None) -> Aggregate:
        """What the record with the smallest number, text or time in the field `by` has; of equal ones the first. See `max_by`."""
        return MinBy(_read_where(by, where), value)

    @staticmethod
    def last_by(value: Field | ValueFields, by: Field, *, where: Expression | None = None) -> Aggregate:
        """What the latest record by a time, number or text in the field `by` has; of equal ones the last. See `max_by`."""
        return LastBy(_read_where(by, where), value)

    @staticmethod
    def collect(field: Field, *, last: int, where: Expression | None = None) -> Aggregate:
        """The field's last values that are not null, as a list in order of processing, at most `last` of them."""
        return Collect(_read_where(field, where), last)


agg = AggregateFunctions

BUILT_IN: Final[frozenset[type[Aggregate]]] = frozenset(
    {Count, Sum, Min, Max, Mean, First, Last, MaxBy, MinBy, LastBy, Collect, Quantile, ApproxCountDistinct}
)
"""The classes of `agg` themselves; one that is derived from them may compute anything."""
