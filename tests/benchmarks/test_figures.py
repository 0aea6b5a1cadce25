"""The steady state: what is measured of a run, and from which commit on."""

import numpy as np

from benchmarks.harness.figures import steady
from benchmarks.harness.latency import _percentiles
from benchmarks.harness.monitor import Sample


def sample(at: float, offsets: tuple[int, ...], cpu: float, ends: tuple[int, ...] = (0,)) -> Sample:
    return Sample(at, offsets, ends, {"JVM": cpu / 4, "workers": cpu * 3 / 4})


def test_a_micro_batch_counts_whole_although_its_tasks_commit_one_after_the_other() -> None:
    samples = [
        sample(0, (0, 0), 0),
        sample(10, (30, 0), 8.0),
        sample(10.1, (30, 20), 8.4),
        sample(15, (60, 20), 12.2),
        sample(15.1, (60, 50), 12.4),
    ]
    found = steady(samples, 110, by_output=False)
    # Not from the first task's commit on, before which the CPU of both tasks' records was spent.
    assert (found.records, round(found.seconds, 1), found.whole) == (60, 5.0, False)
    assert {kind: round(seconds, 2) for kind, seconds in found.cpu_s.items()} == {"JVM": 1.0, "workers": 3.0}
    assert found.records_per_second == 12


def test_a_run_of_one_micro_batch_is_no_steady_state() -> None:
    found = steady([sample(0, (0, 0), 0), sample(10, (50, 0), 8.0), sample(10.2, (50, 50), 8.4)], 100, by_output=False)
    assert (found.records, found.seconds, found.whole) == (100, 10.2, True)


def test_without_committed_offsets_the_output_shows_the_progress() -> None:
    samples = [
        sample(0, (0,), 0.0, ends=(0, 0)),
        sample(4, (0,), 2.0, ends=(20, 30)),
        sample(9, (0,), 4.0, ends=(90, 110)),
    ]
    found = steady(samples, 1_000, by_output=True)
    assert (found.records, found.seconds, found.whole) == (750, 5, False)


def test_a_reading_without_a_result_counts_as_one_that_waits_for_ever() -> None:
    found = np.arange(1_000, dtype=np.float64)
    assert _percentiles(found) == {"p50_ms": 500.0, "p95_ms": 950.0, "p99_ms": 990.0, "max_ms": 999.0}
    found[:20] = np.nan
    assert _percentiles(found) == {"p50_ms": 520.0, "p95_ms": 970.0, "without_result": 20}
