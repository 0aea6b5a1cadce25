"""Crashes at every event of a small history, and second ones during the recovery. `make sim` plays all pairs (crash_pairs.py)."""

import random

import pytest

from tests.budget import PART
from tests.simulation import application as simulated_application
from tests.simulation.application import Application, Setup
from tests.simulation.chaos import CrashAt, Quiet
from tests.simulation.programs import COUNT, ERRORS, JOIN, RETRY, STAGES, WINDOW


def history(chaos, program, tasks=2, rounds=2, records=3, execution="micro-batch"):
    """Plays some records, a micro-batch or a lease, more records and another one; returns the number of events."""
    application = Application(chaos, Setup(program, tasks, hosts=1, executions=(execution, execution)))
    drawn = random.Random(7)
    for _ in range(rounds):
        application.feed(drawn, records)
        application.work()
    events = application.cluster.events
    application.verify()
    return events


def halves():
    """Every second event of a program, of the next one the others: all pass those of a commit. `make test-long` has the rest."""
    for number, program in enumerate([COUNT, WINDOW, JOIN, RETRY, STAGES, ERRORS]):
        for begin in (1, 2):
            marks = [] if begin == 1 + number % 2 else [pytest.mark.long]
            yield pytest.param(program, begin, marks=marks, id=f"{program}-{begin}")


@pytest.mark.slow
@pytest.mark.parametrize(("program", "begin"), [*halves()])
def test_a_crash_at_every_event(program, begin):
    tasks = 1 if program is STAGES else 2
    events = history(Quiet(), program, tasks)
    for first in range(begin, events + 1, 2):
        assert history(CrashAt([first]), program, tasks) >= first, "the crash was never reached"


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 2])
def test_a_crash_at_every_event_of_slots_that_have_several_tasks(slots, monkeypatch):
    """All of a slot's tasks are in one transaction; behind a crash there may be another number of slots."""
    monkeypatch.setattr(simulated_application, "MISPLACED", 0)

    class Slots(CrashAt):
        def choose(self, count, what):
            return (self.crashed + slots) % count if what == "slots" else 0

    events = history(Slots([]), WINDOW, records=2, execution="auto")
    for first in range(1, events + 1):
        assert history(Slots([first]), WINDOW, records=2, execution="auto") >= first, "the crash was never reached"


@pytest.mark.slow
def test_two_crashes_in_a_row():
    """The second crash comes during the recovery from the first: a repeated step has no more events.

    An eighth of the pairs, with another distance after each event: `crash_pairs.py` has all of them.
    """
    events = history(Quiet(), COUNT, tasks=1, records=1)
    for first in range(1, events + 1):
        for second in range(first + 1 + first % PART, first + 15, PART):
            history(CrashAt([first, second]), COUNT, tasks=1, records=1)
