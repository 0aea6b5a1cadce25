"""Aggregates whose accumulators are sketches (the extra `sketches`). `sketch_forms` describes how these are stored."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any, Final

from streams.errors import RecordError, TopologyError
from streams.model.aggregates import BuiltIn, OfNumbers, countable, distinct_text, is_decimal, number_in
from streams.model.sketch_forms import (
    BucketCounts,
    Buckets,
    buckets,
    empty_hll,
    merged_hll,
    read_counts,
    read_hll,
    size_of,
    with_more,
    written_counts,
    written_hll,
)
from streams.wording import described


class Sketched(BuiltIn):
    """An aggregate whose accumulator is a sketch in its stored form (`streams.model.sketch_forms`)."""

    @abstractmethod
    def read(self, accumulator: Any) -> Any:
        """Reads the sketch from an accumulator."""

    @abstractmethod
    def written(self, sketch: Any) -> Any:
        """Writes a sketch as an accumulator."""

    @abstractmethod
    def item(self, value: Any) -> Any:
        """Converts a value to what the sketch stores. Raises `RecordError` for a value that it cannot take."""

    @abstractmethod
    def put(self, sketch: Any, item: Any) -> None:
        """Adds a converted value to a sketch."""

    @abstractmethod
    def shown(self, sketch: Any) -> Any:
        """Computes the result from a sketch."""

    def add(self, accumulator: Any, value: Any) -> Any:
        """Reads the sketch, adds a value, and writes it again."""
        sketch = self.read(accumulator)
        self.put(sketch, self.item(value))
        return self.written(sketch)

    def result(self, accumulator: Any) -> Any:
        """The result of the sketch."""
        return self.shown(self.read(accumulator))


@dataclass(frozen=True)
class Quantile(OfNumbers, Sketched):
    """Quantiles with a bounded relative error: counts of numbers in the buckets of a DDSketch.

    Attributes:
        q: The quantile, from 0 to 1, or several.
        accuracy: The largest error of a result, as a share of the exact quantile.
    """

    q: float | Iterable[float]
    accuracy: float
    takes_only = (Real, Decimal), "takes numbers (int, float, Decimal)"

    def __post_init__(self) -> None:
        super().__post_init__()
        wanted = tuple(self.q) if isinstance(self.q, Iterable) else (self.q,)
        found = [number for number in map(number_in, wanted) if number is not None and 0 <= number <= 1]
        if len(found) != len(wanted) or not wanted:
            raise TopologyError(
                f"{self.text}: a quantile is a number from 0 to 1 (0.5 is the median), or a list of such numbers."
            )
        object.__setattr__(self, "q", tuple(found) if isinstance(self.q, Iterable) else found[0])
        accuracy = number_in(self.accuracy)
        if accuracy is None or not _FINEST <= accuracy <= _COARSEST:
            raise TopologyError(
                f"{self.text}: accuracy= is the share of a value by which the result may be off, from {_FINEST} to {_COARSEST}. "
                f"With 0.01, a row holds at most 117 counts for all numbers from 1 to 10."
            )
        object.__setattr__(self, "accuracy", accuracy)
        buckets(accuracy)  # needs the library

    @cached_property
    def _shares(self) -> tuple[Fraction, ...]:
        """The quantiles as exact fractions of their digits, so that 0.07 of 100 numbers are exactly 7."""
        return tuple(Fraction(str(one)) for one in (self.q if isinstance(self.q, Iterable) else (self.q,)))

    @property
    def buckets(self) -> Buckets:
        """The buckets for the accuracy."""
        return buckets(self.accuracy)

    @property
    def text(self) -> str:
        """The aggregate as it is written in a program."""
        return f"agg.quantile({self.field!r}, {self.q!r}, accuracy={self.accuracy!r})"

    @property
    def identity(self) -> str:
        """The aggregate's name, field, quantiles and accuracy."""
        return f"quantile({self.field}, {self.q}, accuracy={self.accuracy})"

    def checked(self, value: Any) -> Any:
        """Returns an `int`, `float` or None as it is, and a Decimal as the nearest float. Raises `RecordError` for other values."""
        if not is_decimal(value):
            return super().checked(value)
        number = float(value)
        if math.isinf(number):
            raise self._beyond(value)
        return number

    def initial(self) -> list[int]:
        """The stored form without numbers."""
        return written_counts({})

    def read(self, accumulator: list[int]) -> BucketCounts:
        """Reads the counts from the stored form."""
        return read_counts(accumulator)

    def written(self, sketch: BucketCounts) -> list[int]:
        """Writes the counts in the stored form."""
        return written_counts(sketch)

    def item(self, value: Any) -> int:
        """The bucket of a number. Raises `RecordError` for a number that is too large; almost every float fits."""
        try:
            return self.buckets.of(value)
        except OverflowError:
            raise self._beyond(value) from None

    def _beyond(self, value: Any) -> RecordError:
        return RecordError(
            f"{self.text} is given {described(value)}, which is beyond its largest number, {self.buckets.largest:.3g}"
        )

    def put(self, sketch: BucketCounts, item: int) -> None:
        """Adds one to the count of a bucket."""
        sketch[item] = sketch.get(item, 0) + 1

    def add(self, accumulator: list[int], value: Any) -> list[int]:
        """Adds one to the count of the value's bucket."""
        return with_more(accumulator, self.item(value), 1)

    def remove(self, accumulator: list[int], value: Any) -> list[int]:
        """Subtracts one from the count of the value's bucket, exactly."""
        return with_more(accumulator, self.item(value), -1)

    def merge(self, earlier: list[int], later: list[int]) -> list[int]:
        """Adds up the counts of both."""
        counts = self.read(earlier)
        for bucket, count in self.read(later).items():
            counts[bucket] = counts.get(bucket, 0) + count
        return self.written(counts)

    def shown(self, sketch: BucketCounts) -> float | list[float] | None:
        """The quantile, or the list of several; None without any numbers."""
        if not sketch:
            return None
        found = self.buckets.quantiles(sketch, self._shares)
        return found if isinstance(self.q, Iterable) else found[0]


_FINEST: Final = 0.001
_COARSEST: Final = 0.25


@dataclass(frozen=True)
class ApproxCountDistinct(Sketched):
    """Estimates the number of distinct values that are not null, by a HyperLogLog of their JSON.

    Values are equal as in `CountDistinct`. The accumulator is None before the first value.

    Attributes:
        rsd: The largest relative standard deviation (Spark's name).
    """

    rsd: float

    def __post_init__(self) -> None:
        super().__post_init__()
        rsd = number_in(self.rsd)
        if rsd is None or not _LEAST_RSD <= rsd <= _MOST_RSD:
            raise TopologyError(
                f"{self.text}: rsd= is the relative standard deviation, from {_LEAST_RSD} to {_MOST_RSD}. "
                f"agg.count_distinct is exact."
            )
        object.__setattr__(self, "rsd", rsd)
        empty_hll(self._size)  # needs the library

    @property
    def _size(self) -> int:
        return size_of(self.rsd)

    @property
    def text(self) -> str:
        """The aggregate as it is written in a program."""
        return f"agg.approx_count_distinct({self.field!r}, rsd={self.rsd!r})"

    @property
    def identity(self) -> str:
        """The aggregate's name, field and deviation."""
        return f"approx_count_distinct({self.field}, rsd={self.rsd})"

    def checked(self, value: Any) -> Any:
        """Returns the value; a Decimal as `countable` gives it. Raises `RecordError` for NaN and infinity."""
        return countable(self, value)

    def initial(self) -> None:
        """None: there is no sketch yet."""

    def read(self, accumulator: str | None) -> Any:
        """Reads the HyperLogLog from its stored form."""
        return empty_hll(self._size) if accumulator is None else read_hll(accumulator)

    def written(self, sketch: Any) -> str | None:
        """Writes the HyperLogLog as text; None if it is empty."""
        return None if sketch.is_empty() else written_hll(sketch)

    def item(self, value: Any) -> str:
        """The value's JSON."""
        return distinct_text(value).decode()

    def put(self, sketch: Any, item: str) -> None:
        """Adds a value, which changes the sketch only if it is new."""
        sketch.update(item)

    def merge(self, earlier: str | None, later: str | None) -> str | None:
        """Merges the sketches of both."""
        if earlier is None or later is None:
            return later if earlier is None else earlier
        return merged_hll(self._size, earlier, later)

    def shown(self, sketch: Any) -> int:
        """The estimated number of values, rounded."""
        count: int = round(sketch.get_estimate())
        return count


_LEAST_RSD: Final = 0.005
_MOST_RSD: Final = 0.1
