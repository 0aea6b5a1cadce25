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
    """The field that an aggregate reads: null, which every aggregate leaves out, for records where the condition is not true."""
    if where is None:
        return field
    if not isinstance(where, Expression):
        raise TopologyError(f"where=... takes a condition such as col('price') > 10, not {described(where)}.")
    return when(where, col(field) if isinstance(field, str) else field)


class AggregateFunctions(AnswersUnknownNames):
    """The built-in aggregates, available as `agg`: `aggregate(flights=agg.count(), delay=agg.mean("dep.delay"))`.

    With `where=`, an aggregate takes only the records for which a condition is true, not false or null (SQL's FILTER):
    `agg.count(where=col("delay") > 15)`. For other records, the field is not even computed, so it cannot fail. `where=` is short
    for the field `when(condition, field)`, which you can also use with your own aggregates.
    """

    @staticmethod
    def count(field: Field | None = None, *, where: Expression | None = None) -> Aggregate:
        """Counts the records; with a field or an expression, counts the records in which it exists and is not null.

        A condition as the field raises `TopologyError`, since false is not null: `agg.count(where=col("delay") > 15)` counts the
        records for which the condition is true.
        """
        if where is not None:
            return Count(_read_where(lit(1) if field is None else field, where))
        return Count(field)

    @staticmethod
    def count_distinct(field: Field, *, where: Expression | None = None) -> Aggregate:
        """Counts the field's distinct values that are not null, exactly; over all time, or in windows with a fixed start.

        Each value of each key is a row in a separate store. In windows, it is deleted with its window, otherwise never.
        """
        return CountDistinct(_read_where(field, where))

    @staticmethod
    def approx_count_distinct(field: Field, *, rsd: float = 0.02, where: Expression | None = None) -> Aggregate:
        """Estimates the number of distinct values of the field that are not null, in any windows.

        A row has at most 3 KB at this `rsd`. `rsd` is the largest relative standard deviation of the estimate, from 0.005 to 0.1.
        Needs the extra `sketches` on the driver and on every executor; raises `ConfigError` if the driver does not have it.
        """
        return ApproxCountDistinct(_read_where(field, where), rsd)

    @staticmethod
    def quantile(
        field: Field, q: float | Iterable[float], *, accuracy: float = 0.01, where: Expression | None = None
    ) -> Aggregate:
        """A quantile of the numbers in a field, as a float (0.5 is the median). For a list of quantiles, a list in the same order.

        The exact quantile 0.9 is the smallest number that at least 90 % of the numbers do not exceed (SQL's `percentile_disc`). The
        result differs from it by at most the share `accuracy`, from 0.001 to 0.25: with 0.01, a result for 200 is between 198 and
        202. Needs the extra `sketches` on the driver and on every executor, as `approx_count_distinct` does.
        """
        return Quantile(_read_where(field, where), q, accuracy)

    @staticmethod
    def sum(field: Field, *, where: Expression | None = None) -> Aggregate:
        """Sum of a field; a sum of integers is exact, whatever its size."""
        return Sum(_read_where(field, where))

    @staticmethod
    def min(field: Field, *, where: Expression | None = None) -> Aggregate:
        """Smallest number, text or time in a field; a time is returned as ISO text."""
        return Min(_read_where(field, where))

    @staticmethod
    def max(field: Field, *, where: Expression | None = None) -> Aggregate:
        """Largest number, text or time in a field; a time is returned as ISO text."""
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
        """The `value` of the record whose field `by` is the largest (a number, a text or a time); among equal ones the first wins.

        `value` is a field, an expression, or several fields: `agg.max_by(fields("auction", "price"), by="price")`. A record whose
        `by` is null is left out; its value may be null. The arguments are in the order of PySpark's and SQL's `max_by`.
        """
        return MaxBy(_read_where(by, where), value)

    @staticmethod
    def min_by(value: Field | ValueFields, by: Field, *, where: Expression | None = None) -> Aggregate:
        """The `value` of the record whose field `by` is the smallest, the first of equal ones; arguments as for `max_by`."""
        return MinBy(_read_where(by, where), value)

    @staticmethod
    def last_by(value: Field | ValueFields, by: Field, *, where: Expression | None = None) -> Aggregate:
        """The `value` of the record whose field `by` is the largest, the last of equal ones; arguments as for `max_by`."""
        return LastBy(_read_where(by, where), value)

    @staticmethod
    def collect(field: Field, *, last: int, where: Expression | None = None) -> Aggregate:
        """The last values of the field that are not null, at most `last` of them, as a list in order of processing."""
        return Collect(_read_where(field, where), last)


agg = AggregateFunctions

BUILT_IN: Final[frozenset[type[Aggregate]]] = frozenset(
    {Count, Sum, Min, Max, Mean, First, Last, MaxBy, MinBy, LastBy, Collect, Quantile, ApproxCountDistinct}
)
"""The classes of the aggregates in `agg`. A subclass of one may compute anything."""
