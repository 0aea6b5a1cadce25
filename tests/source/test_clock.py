"""The clock of micro-batches is the system's, unless a drill steps it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from streams.source.log import STEP, now_ms

HOURS_MS = 2 * 3_600_000


@pytest.mark.parametrize(("text", "step"), [(None, 0), ("", 0), (str(HOURS_MS), HOURS_MS), (str(-HOURS_MS), -HOURS_MS)])
def test_the_clock_is_stepped_by_what_the_file_says_now(
    text: str | None, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "step"
    monkeypatch.setenv(STEP, str(file))
    if text is not None:
        file.write_text(text)
    before = int(time.time() * 1000)
    assert before + step <= now_ms() <= int(time.time() * 1000) + step


def test_without_the_variable_it_is_the_systems_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STEP, raising=False)
    before = int(time.time() * 1000)
    assert before <= now_ms() <= int(time.time() * 1000)
