"""What `streams run` shows of its work, in a terminal and elsewhere."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from streams.driver.progress import Progress, ShownPace
from streams.metrics.application import StepFigures
from tests.metrics.made import step


def report(counters: dict[str, int]) -> StepFigures:
    return step(counters=counters, host="here")


def shown(*reports: StepFigures, terminal: bool = False, wall_clock_s: float = 10.0) -> str:
    text = io.StringIO()
    now = [100.0]
    console = Console(file=text, force_terminal=terminal, width=300)
    with Progress("app", console, lambda: now[0], lambda: wall_clock_s) as progress:
        progress.started("sub", 2, ("in",))
        for number, found in enumerate(reports):
            now[0] += 2
            progress.step("sub", number, [found])
        if not reports:
            progress.metrics.positions("sub", {("in", 0): (7, 7)})
    return text.getvalue()


def test_a_step_in_numbers() -> None:
    """The lag stays away until Spark has told where the topics end."""
    numbers = "app/sub: batch 0, in 5, out 3, changelog 2, 2 in/s, event time 9 s behind, slowest task 250 ms\n"
    assert numbers in shown(report({}))


def test_a_long_start_says_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    repeated = threading.Event()

    def say(_: Progress, text: str) -> None:
        said.append(text)
        if len(said) == 2:
            repeated.set()

    monkeypatch.setattr(Progress, "say", say)
    now = [100.0]
    with Progress("app", Console(file=io.StringIO()), lambda: now[0]) as progress:
        now[0] = 130.0
        progress.starting("starting Spark", every_s=0.001)
        assert repeated.wait(60)
        progress.has_begun()
    assert said[:2] == ["starting Spark …", "still starting, for 0 s …"]


def test_event_times_of_old_input_are_left_out() -> None:
    assert "event time" not in shown(report({}), wall_clock_s=1_700_000_000.0)


def test_the_table_has_rate_event_time_and_last_commit() -> None:
    text = shown(report({}), terminal=True)
    assert all(heading in text for heading in ("in/s", "behind", "committed"))
    assert "9 s" in text
    assert " ? " not in text


def test_a_silent_application_tells_when_it_committed_last() -> None:
    now = [0.0]
    text = io.StringIO()
    with Progress("app", Console(file=text, width=300), lambda: now[0]) as progress:
        progress.started("sub", 1, ("in",))
        progress.step("sub", 0, [report({})])
        progress.metrics.positions("sub", {("in", 0): (4, 7)})
        now[0] = 120.0
    assert "lag 3, 0 in/s" in text.getvalue()
    assert "last commit 2 min ago" in text.getvalue()


def test_records_per_second_are_those_of_the_last_seconds() -> None:
    pace, records_in = ShownPace(), 0
    for second in range(100):
        records_in += 1000 if second < 50 else 10
        pace.count(float(second), records_in)
    assert pace.records_per_s(99.0, records_in) == pytest.approx(10)


def test_a_node_that_falls_back_to_one_by_one_is_named_once_with_the_reason() -> None:
    fallback = report({"one_by_one:pairs:a value that is written as null is not stored": 3})
    line = "app/sub: 'pairs' processes records one by one, which takes longer: a value that is written as null is not stored\n"
    assert shown(fallback, fallback).count(line) == 1


def test_a_run_without_records_says_so() -> None:
    assert shown() == "app/sub: no records yet, lag 0\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_is_dropped_in_silence(terminal: bool) -> None:
    text = shown(
        report({"in:node": 5, "dead_letters:processing": 1}), report({"dead_letters:processing": 2}), terminal=terminal
    )
    assert "dead_letters:processing 3" in text
    assert "in:node" not in text


@pytest.mark.parametrize("terminal", [False, True])
def test_the_end_of_a_run_says_where_dead_letters_are(terminal: bool) -> None:
    letters = report({"dead_letters:processing": 1, "dead_letters:production": 1})
    line = "app: 2 records failed and became dead letters: `streams dlq list` shows them"
    assert shown(letters, terminal=terminal).count(line) == 1
    assert "became dead letters" not in shown(report({"skipped:processing": 1}), terminal=terminal)


@pytest.mark.parametrize("terminal", [False, True])
def test_the_end_of_a_run_says_what_joins_have_not_found(terminal: bool) -> None:
    found = report({"looked_up:users": 150, "unmatched:users:no_row": 115, "unmatched:users:null_key": 5})
    text = shown(found, report({"looked_up:users": 50, "looked_up:all": 9}), terminal=terminal)
    line = "app/sub: join 'users': 120 of 200 records found nothing (115 whose key the table did not have then, 5 without a key)\n"
    assert text.count(line.replace("\n", "")) == 1
    assert "'all'" not in text
