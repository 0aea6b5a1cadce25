"""`TreeUsage`: what a tree of processes uses, and how its memory and descriptors grow."""

from __future__ import annotations

import os
import time

from benchmarks.usage import MEMORY_SAMPLE_S, TreeUsage

MB = 2**20


def test_growth_compares_the_first_quarter_of_a_time_with_the_last() -> None:
    usage = TreeUsage(set())
    usage.series = [(float(at), at * MB, 10 * at) for at in range(100)]
    assert usage.growth(20, 60) == {
        "pss_mb_first_quarter": 24,
        "pss_mb_last_quarter": 54,
        "descriptors_first_quarter": 245,
        "descriptors_last_quarter": 545,
    }
    assert usage.growth(200, 300) == {}


def test_descriptors_and_memory_that_stay_are_seen() -> None:
    kept: list[int] = []
    with TreeUsage(set()) as usage:
        began = time.monotonic()
        for _ in range(4):
            time.sleep(MEMORY_SAMPLE_S)
            kept += [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
        time.sleep(MEMORY_SAMPLE_S)
        found = usage.growth(began, time.monotonic())
    for one in kept:
        os.close(one)
    assert found["descriptors_last_quarter"] - found["descriptors_first_quarter"] >= 40
    assert found["pss_mb_first_quarter"] > 0
