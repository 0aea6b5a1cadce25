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


def after_next_sample(usage: TreeUsage) -> float:
    """Waits for the next sample, which a busy machine may take late, and returns its time."""
    samples = len(usage.series)
    while len(usage.series) == samples:
        time.sleep(MEMORY_SAMPLE_S / 20)
    return usage.series[samples][0]


def test_descriptors_and_memory_that_stay_are_seen() -> None:
    kept: list[int] = []
    with TreeUsage(set()) as usage:
        began = after_next_sample(usage)
        for _ in range(4):
            kept += [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
            after_next_sample(usage)
        found = usage.growth(began, time.monotonic())
    for one in kept:
        os.close(one)
    assert found["descriptors_last_quarter"] - found["descriptors_first_quarter"] >= 40
    assert found["pss_mb_first_quarter"] > 0
