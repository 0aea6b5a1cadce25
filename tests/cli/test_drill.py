"""`streams drill`: the list, and drills that do not exist or do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from streams.drills.drill import Drill
from streams.drills.runner import DrillResult, Outcome


def test_the_list_has_every_drill(streams) -> None:
    from streams.drills.cases import DRILLS

    text = streams("drill", "list").output
    assert all(f"{drill.id} " in text for drill in DRILLS)
    listed = orjson.loads(streams("drill", "list", "--json").output)
    assert [one["id"] for one in listed] == [drill.id for drill in DRILLS]


def test_an_unknown_drill_is_refused(streams) -> None:
    result = streams("drill", "run", "D99")
    assert result.exit_code == 1
    assert "there is no drill 'D99'" in result.output


def test_a_drill_whose_fault_lies_in_its_own_program_takes_no_other(streams) -> None:
    result = streams("drill", "run", "D25", "--topology", "docs/examples/word_count.py")
    assert result.exit_code == 1
    assert "D25 cannot run with your own program" in result.output


@pytest.mark.parametrize(
    ("options", "live", "ids"),
    [
        ((), True, ["D01", "D17"]),
        (("--execution", "live"), True, ["D01"]),
        (("--execution", "micro-batch"), False, ["D01", "D17"]),
    ],
)
def test_the_default_is_live(
    streams, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], live: bool, ids: list[str]
) -> None:
    asked: list[tuple[str, bool]] = []

    def held(drill: Drill, *_: Any, live: bool, **__: Any) -> DrillResult:
        asked.append((drill.id, live))
        return DrillResult(drill)

    monkeypatch.setattr("streams.cli.drill.run_drill", held)
    assert streams("drill", "run", "D01", "D17", *options).exit_code == 0
    assert asked == [(one, live) for one in ids]


def test_what_went_wrong_is_said_and_written_at_once(streams, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page, pages = tmp_path / "drills.md", []

    def held(drill: Drill, *_: Any, **__: Any) -> DrillResult:
        pages.append(page.read_text() if page.exists() else "")
        return DrillResult(drill, Outcome.FAILED, wrong=["two results are missing\nand more"])

    monkeypatch.setattr("streams.cli.drill.run_drill", held)
    result = streams("drill", "run", "D01", "D03", "--report", page)
    assert result.exit_code == 1
    assert "D01 failed: two results are missing\n" in result.stderr
    assert pages[0] == ""
    assert "| D01 " in pages[1]
    assert "failed" in pages[1]
