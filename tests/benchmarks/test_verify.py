"""The verifiers' recomputations beside loops that say the same in the plainest way, and the differences that they find."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.generators.records import Columns
from benchmarks.verify.compare import compare, table_of
from benchmarks.verify.joins import as_of, stream_join
from benchmarks.verify.windows import hopping, sessions, sliding

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(1_000, 1_060), st.integers(0, 9_999)), min_size=1, max_size=25)
Row = tuple[int, int, int]


def columns(rows: list[Row], third: str) -> Columns:
    return Columns(dict(zip(("key", "timestamp", third), np.array(rows, np.int64).T, strict=True)))


def as_rows(table) -> dict[tuple[int, ...], tuple[int, float]]:
    identities = zip(*(table[name].tolist() for name in table if name not in ("count", "mean")), strict=True)
    return dict(zip(identities, zip(table["count"].tolist(), table["mean"].tolist(), strict=True), strict=True))


def counted(windows: dict[tuple[int, ...], list[int]]) -> dict[tuple[int, ...], tuple[int, float]]:
    return {
        window: (len(values), pytest.approx(sum(values) / 1000 / len(values))) for window, values in windows.items()
    }


@given(ROWS, st.sampled_from([(10, 10), (10, 2), (10, 3), (7, 5)]))
def test_windows_that_hop(rows: list[Row], window: tuple[int, int]) -> None:
    size, advance = window
    expected = defaultdict(list)
    for key, time, value in rows:
        for start in range(0, 1_100, advance):
            if start <= time < start + size:
                expected[key, start].append(value)
    read = columns(rows, "milli")
    assert as_rows(hopping(read["key"], read["timestamp"], read["milli"], size, advance)) == counted(expected)


@given(ROWS, st.integers(0, 12))
def test_sessions(rows: list[Row], gap: int) -> None:
    expected = {}
    for key in {row[0] for row in rows}:
        mine = sorted((time, value) for other, time, value in rows if other == key)
        breaks = [0, *(n + 1 for n, (a, b) in enumerate(pairwise(mine)) if b[0] - a[0] > gap), len(mine)]
        for begin, end in pairwise(breaks):
            expected[key, mine[begin][0], mine[end - 1][0]] = [value for _, value in mine[begin:end]]
    read = columns(rows, "milli")
    assert as_rows(sessions(read["key"], read["timestamp"], read["milli"], gap)) == counted(expected)


@given(ROWS, st.integers(1, 12), st.booleans())
def test_sliding_windows(rows: list[Row], difference: int, only_left: bool) -> None:
    expected = {}
    for key, time, _ in rows:
        for start in [time - difference] if only_left else [time - difference, time + 1]:
            inside = [value for other, at, value in rows if other == key and start <= at <= start + difference]
            if inside:
                expected[key, start] = inside
    read = columns(rows, "milli")
    found = sliding(read["key"], read["timestamp"], read["milli"], difference, only_left=only_left)
    assert as_rows(found) == counted(expected)


@given(ROWS, ROWS, st.integers(0, 9), st.integers(0, 9), st.booleans())
def test_stream_joins(lefts: list[Row], rights: list[Row], before: int, after: int, outer: bool) -> None:
    lefts = [(key, time, n) for n, (key, time, _) in enumerate(lefts)]
    rights = [(key, time, n) for n, (key, time, _) in enumerate(rights)]
    expected = []
    for key, time, left in lefts:
        matches = [right for other, at, right in rights if other == key and time - before <= at <= time + after]
        expected += [(left, right) for right in matches or ([-1] if outer else [])]
    table = stream_join(columns(lefts, "n"), columns(rights, "n"), before, after, outer=outer)
    assert sorted(zip(table["l"].tolist(), table["r"].tolist(), strict=True)) == sorted(expected)


@given(ROWS, ROWS, st.sampled_from(["left", "right"]))
def test_a_table_as_of_a_records_time(stream: list[Row], table: list[Row], tie: str) -> None:
    versions = [(key, time, n) for n, (key, time, _) in enumerate(sorted(table, key=lambda row: row[1]))]
    expected = []
    for key, time, _ in stream:
        earlier = [n for other, at, n in versions if other == key and (at < time or (at == time and tie == "right"))]
        expected.append(earlier[-1] if earlier else -1)
    assert as_of(columns(stream, "n"), columns(versions, "version"), tie=tie).tolist() == expected


EXPECTED = table_of([(1, 10, 2.5), (1, 20, 3.5), (2, 10, 1.0)], ["key", "start", "mean"])


def differences(*rows: tuple[float, ...], duplicates: bool = False) -> list[str]:
    return compare(EXPECTED, table_of(rows, ["key", "start", "mean"]), ["key", "start"], duplicates=duplicates)


def test_equal_tables_in_any_order_have_no_differences() -> None:
    assert differences((2, 10, 1.0), (1, 20, 3.5 + 1e-9), (1, 10, 2.5)) == []


def test_rows_that_are_missing_or_not_expected_are_named() -> None:
    assert differences((1, 10, 2.5), (1, 20, 3.5), (3, 10, 1.0)) == [
        "missing: {'key': 2, 'start': 10}",
        "missing: 1 in all",
        "not expected: {'key': 3, 'start': 10}",
        "not expected: 1 in all",
    ]


def test_no_rows_at_all_are_not_right() -> None:
    assert differences()[-1] == "missing: 3 in all"


def test_a_wrong_value_is_named() -> None:
    assert differences((1, 10, 2.5), (1, 20, 3.6), (2, 10, 1.0)) == [
        "{'key': 1, 'start': 20} mean: expected 3.5, found 3.6",
        "mean: 1 wrong values in all",
    ]


def test_a_result_twice_is_wrong_unless_the_guarantee_allows_it() -> None:
    rows = [(1, 10, 2.5), (1, 20, 3.5), (2, 10, 1.0), (2, 10, 1.0)]
    assert differences(*rows) == ["more than once: {'key': 2, 'start': 10}", "more than once: 1 in all"]
    assert differences(*rows, duplicates=True) == []
