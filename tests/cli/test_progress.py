"""What `streams run` shows of its work, in a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from streams.spark.progress import Progress


def report(counters: dict[str, int]) -> dict[str, object]:
    counts = {"in": 5, "out": 3, "changelog": 2}
    times = {"seconds": {}, "total_s": 0.25, "cpu_s": 0.1, "peak_rss_mb": 100}
    return {
        "task": 0,
        "version": 1,
        "stream_time": 7,
        "decision": "run",
        "counts": counts,
        "counters": counters,
        **times,
    }


def shown(*reports: dict[str, object], terminal: bool = False) -> str:
    text = io.StringIO()
    with Progress("app", Console(file=text, force_terminal=terminal, width=200)) as progress:
        progress.started("sub", 2, ("in",))
        for number, found in enumerate(reports):
            progress.step("sub", number, [found])
        if not reports:
            progress.subs["sub"].lag = 0
    return text.getvalue()


def test_a_step_in_numbers() -> None:
    assert "app/sub: batch 0, in 5, out 3, changelog 2, lag ?, slowest task 250 ms\n" in shown(report({}))


def test_a_run_without_records_says_so() -> None:
    assert shown() == "app/sub: no records yet, lag 0\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_is_dropped_in_silence(terminal: bool) -> None:
    text = shown(
        report({"in:node": 5, "dead_letters:processing": 1}), report({"dead_letters:processing": 2}), terminal=terminal
    )
    assert "dead_letters:processing 3" in text
    assert "in:node" not in text
