"""The fixed cost of a small live step, as a number of calls, which is the same on any machine and at any load."""

import sys
from contextlib import ExitStack

import pytest

from benchmarks.small_step import TOPOLOGIES, Bench, Given

MOST_CALLS = {"lambda": 2_150, "windows": 3_300, "table": 1_950, "join": 2_850, "stateless": 1_550}
"""For one record: a seventh more than there were with Python 3.11 on 2026-11-28. Before, there were a third to a half more."""


def calls_of(function):
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_step_of_one_record_takes_few_calls(tmp_path, name):
    with ExitStack() as opened:
        bench = Bench(TOPOLOGIES[name](), tmp_path, opened)
        counts = []
        for _ in range(5):
            bench.give(1)
            counts.append(calls_of(bench.step))
    # The first steps compile and look up what all others know.
    assert min(counts) <= MOST_CALLS[name], counts


def test_a_reader_gives_no_more_than_it_is_asked_for_in_the_order_of_offsets() -> None:
    reader, found = Given("in", 0), list[int]()
    reader.give(5, 1)
    for most in (2, 4, 9):
        reader.give(3, 1)
        given = [offset for columns in reader.poll(most) for offset in columns.offsets.tolist()]
        assert len(given) <= most
        found += given
    assert found == list(range(14))
    assert reader.at_end
    assert reader.position == 14
