"""The stored forms of the sketches with which `agg.quantile` and `agg.approx_count_distinct` summarise many values.

The algorithms are those of libraries (the extra `sketches`), without random numbers: the same values in the same order give the
same bytes. Each form begins with its version. A sketch that is read back continues exactly as the sketch that was written.

* The buckets of a DDSketch (Masson, Rim and Lee, VLDB 2019), numbered as in Datadog's `ddsketch`. The library's own sketch counts
  in floats and has no exact form, so the counts are stored here, as `[1, bucket, count, gap, count, gap, count...]`: the buckets in
  ascending order, each but the first one as the difference from the bucket before. Counts of 5 in bucket 10 and 7 in bucket 12 are
  `[1, 10, 5, 2, 7]`.
* A HyperLogLog (`hll_sketch` of Apache DataSketches) of type HLL_4, as the Base64 text of a byte 1 and the library's updatable
  form. The compact form omits the order in its hash table, so a sketch read from it would continue with other bytes.
"""

from __future__ import annotations

import importlib
import math
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate, chain
from operator import sub
from typing import Any, Final, TypeAlias

from state.errors import RestoreError
from streams.errors import ConfigError

_VERSION: Final = 1


@cache
def library(module: str) -> Any:
    """Imports a module of one of the libraries. Raises `ConfigError` if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"agg.quantile and agg.approx_count_distinct need the extra 'sketches': pip install 'streams-on-spark[sketches]', on "
            f"the driver and on every executor ({error})."
        ) from error


def _check_version(found: object) -> None:
    if found != _VERSION:
        raise RestoreError(
            f"a sketch of agg.quantile or agg.approx_count_distinct has the format {found}, and this version knows {_VERSION}: "
            f"a newer release wrote it. Run that one, or use `streams reset`"
        )


# --- Quantiles.

BucketCounts: TypeAlias = dict[int, int]
"""Bucket -> the number of values in it."""


class Buckets:
    """The buckets of a DDSketch: bucket 0 holds zero, positive buckets hold positive numbers, negative buckets negative ones.

    The numbers in a bucket differ from its middle by at most the share `accuracy`.
    """

    def __init__(self, accuracy: float) -> None:
        self.mapping = library("ddsketch.mapping").CubicallyInterpolatedMapping(accuracy)
        self.smallest: float = self.mapping.min_possible
        self.largest: float = self.mapping.max_possible
        self.below_first: int = self.mapping.key(self.smallest) - 1

    def of(self, number: float) -> int:
        """The bucket of a number. Raises `OverflowError` for a number beyond `largest`."""
        size = abs(float(number))
        if size < self.smallest:
            return 0
        if size > self.largest:
            raise OverflowError
        bucket: int = self.mapping.key(size) - self.below_first
        return bucket if number > 0 else -bucket

    def middle(self, bucket: int) -> float:
        """The number that represents all numbers in a bucket."""
        if bucket == 0:
            return 0.0
        return math.copysign(self.mapping.value(abs(bucket) + self.below_first), bucket)

    def quantiles(self, counts: BucketCounts, shares: Sequence[Fraction]) -> list[float]:
        """For each share, the middle of the first bucket at which the buckets so far contain at least that share of the numbers."""
        rising = sorted(counts)
        totals = list(accumulate(map(counts.__getitem__, rising)))
        ranks = (max(1, math.ceil(share * totals[-1])) for share in shares)
        return [self.middle(rising[bisect_left(totals, rank)]) for rank in ranks]


buckets = cache(Buckets)
"""The buckets for an accuracy."""


def written_counts(counts: BucketCounts) -> list[int]:
    """Converts counts to the form in which they are stored."""
    rising = sorted(counts)
    gaps = map(sub, rising, chain((0,), rising))
    return [_VERSION, *chain.from_iterable(zip(gaps, map(counts.__getitem__, rising), strict=True))]


def read_counts(written: Sequence[int]) -> BucketCounts:
    """Reads counts from their stored form. Raises `RestoreError` for another version of it."""
    _check_version(written[0])
    return dict(zip(accumulate(written[1::2]), written[2::2], strict=True))


def with_more(written: Sequence[int], bucket: int, more: int) -> list[int]:
    """Adds `more` to a bucket's count in the stored form; a count of 0 is left out. Raises the same errors as `read_counts`."""
    _check_version(written[0])
    rising = list(accumulate(written[1::2]))
    at = bisect_left(rising, bucket)
    if at < len(rising) and rising[at] == bucket and (count := written[2 * at + 2] + more):
        found = list(written)  # most buckets already exist, so no gap changes
        found[2 * at + 2] = count
        return found
    counts = read_counts(written)
    counts[bucket] = counts.get(bucket, 0) + more
    return written_counts({bucket: count for bucket, count in counts.items() if count})


# --- Distinct values.


def size_of(rsd: float) -> int:
    """The binary logarithm of the number of registers with which a HyperLogLog deviates by at most `rsd`, even after merges."""
    return max(_SMALLEST_SIZE, math.ceil(2 * math.log2(_DEVIATION / rsd)))


_DEVIATION: Final = 1.04
"""This number divided by the root of the number of registers is the relative standard deviation (Flajolet et al. 2007)."""
_SMALLEST_SIZE: Final = 7
"""The smallest size that the library accepts here."""


def empty_hll(size: int) -> Any:
    """A HyperLogLog without values."""
    datasketches = library("datasketches")
    return datasketches.hll_sketch(size, datasketches.HLL_4)


def written_hll(sketch: Any) -> str:
    """Converts a HyperLogLog to the form in which it is stored."""
    return b64encode(bytes([_VERSION]) + sketch.serialize_updatable()).decode()


def read_hll(written: str) -> Any:
    """Reads a HyperLogLog from its stored form. Raises `RestoreError` for another version of it."""
    data = b64decode(written)
    _check_version(data[0])
    return library("datasketches").hll_sketch.deserialize(data[1:])


def merged_hll(size: int, earlier: str, later: str) -> str:
    """Merges two stored HyperLogLogs; returns the stored form."""
    datasketches = library("datasketches")
    both = datasketches.hll_union(size)
    both.update(read_hll(earlier))
    both.update(read_hll(later))
    return written_hll(both.get_result(datasketches.HLL_4))
