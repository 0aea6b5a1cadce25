"""All pairs of crashes in a small history: part of `make sim`. `make test` plays a few whose second is during the recovery."""

import pytest

from tests.simulation.chaos import CrashAt, Quiet
from tests.simulation.programs import COUNT, JOIN, WINDOW
from tests.simulation.test_crashes import history


def test_two_crashes() -> None:
    events = history(Quiet(), COUNT, tasks=1, records=1)
    for first in range(1, events + 1):
        for second in range(first + 1, events + 20):
            history(CrashAt([first, second]), COUNT, tasks=1, records=1)


@pytest.mark.parametrize("program", [WINDOW, JOIN], ids=str)
def test_two_crashes_of_a_larger_history(program: str) -> None:
    """The second one comes during the recovery from the first."""
    events = history(Quiet(), program, tasks=1, records=1)
    for first in range(1, events + 1):
        for second in range(first + 1, first + 15):
            history(CrashAt([first, second]), program, tasks=1, records=1)
