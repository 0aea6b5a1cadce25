"""Admission: bounded, progressing, aligned in time."""

import bisect

from hypothesis import example, given
from hypothesis import strategies as st

from streams.source.admission import admit

TP = tuple[str, int]


class Log:
    """Timestamps of each partition, by offset."""

    def __init__(self, times: dict[TP, list[int]]) -> None:
        self.times = times
        self.asked = 0

    def end(self) -> dict[TP, int]:
        return {tp: len(times) for tp, times in self.times.items()}

    def newest(self) -> dict[TP, int]:
        return {tp: max(times, default=-1) for tp, times in self.times.items()}

    def offsets_at(self, time_ms: int) -> dict[TP, int]:
        self.asked += 1
        return {
            tp: next((i for i, t in enumerate(times) if t >= time_ms), len(times)) for tp, times in self.times.items()
        }

    def admit(self, start: dict[TP, int], limit: int) -> dict[TP, int]:
        return admit(start, self.end(), limit, self.newest(), 0, self.offsets_at)


logs = st.lists(st.lists(st.integers(0, 500), max_size=60), min_size=1, max_size=4).map(
    lambda parts: Log({("t", i): times for i, times in enumerate(parts)})
)


@given(logs, st.integers(1, 80))
@example(Log({("t", i): times for i, times in enumerate([[0], [0], [0, 0, 0, 0]])}), 3)
def test_batches_are_bounded_and_reach_the_end(log: Log, limit: int) -> None:
    at: dict[TP, int] = dict.fromkeys(log.times, 0)
    for _ in range(1000):
        if at == log.end():
            break
        chosen = log.admit(at, limit)
        taken = sum(chosen[tp] - at[tp] for tp in at)
        assert all(at[tp] <= chosen[tp] <= log.end()[tp] for tp in at)
        # Where one timestamp has more than the limit, every waiting partition still gives one record.
        assert 0 < taken <= max(limit, len(at))
        at = chosen
    assert at == log.end()


def test_a_small_partition_does_not_run_ahead_of_a_large_one() -> None:
    large = [ms for ms in range(0, 1000) for _ in range(10)]
    log = Log({("t", 0): large, ("t", 1): list(range(0, 1000, 10))})
    chosen = log.admit({("t", 0): 0, ("t", 1): 0}, 1000)
    last = [log.times[tp][chosen[tp] - 1] for tp in log.times]
    assert abs(last[0] - last[1]) <= 10
    assert 700 <= sum(chosen.values()) <= 1000
    assert log.asked < 12


def test_all_is_taken_when_it_fits() -> None:
    log = Log({("t", 0): [1, 2, 3], ("t", 1): []})
    assert log.admit({("t", 0): 1, ("t", 1): 0}, 2) == {("t", 0): 3, ("t", 1): 0}
    assert log.asked == 0


def test_sorted_logs_are_cut_at_one_time() -> None:
    log = Log({("t", p): sorted((p * 7 + i * 13) % 997 for i in range(500)) for p in range(3)})
    chosen = log.admit(dict.fromkeys(log.times, 0), 300)
    cut = max(log.times[tp][n - 1] for tp, n in chosen.items() if n)
    for tp, n in chosen.items():
        assert n >= bisect.bisect_left(log.times[tp], cut)
