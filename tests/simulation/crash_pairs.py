"""All pairs of crashes in a small history: part of `make sim`. `make test` plays those with the second during the recovery."""

from tests.simulation.chaos import CrashAt, Quiet
from tests.simulation.programs import COUNT
from tests.simulation.test_crashes import history


def test_two_crashes() -> None:
    events = history(Quiet(), COUNT, tasks=1, records=1)
    for first in range(1, events + 1):
        for second in range(first + 1, events + 20):
            history(CrashAt([first, second]), COUNT, tasks=1, records=1)
