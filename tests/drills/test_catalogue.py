"""The list of drills: complete, in order, and within the time that `make test` has for the quick ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.drills.cases import DRILLS
from streams.drills.drill import Drill

QUICK_MINUTES = 5
PAGE = Path(__file__).parents[2] / "docs" / "drills.md"
IDS = [drill.id for drill in DRILLS]


def test_the_drills_are_numbered_without_gaps() -> None:
    assert [f"D{number:02}" for number in range(1, len(IDS) + 1)] == IDS


def test_the_quick_drills_are_quick() -> None:
    quick = [drill.minutes for drill in DRILLS if drill.quick]
    assert quick
    assert sum(quick) <= QUICK_MINUTES


@pytest.mark.parametrize("drill", DRILLS, ids=IDS)
def test_a_drill_says_what_it_does(drill: Drill) -> None:
    assert all((drill.title, drill.injects, drill.holds))


@pytest.mark.parametrize("drill", [drill for drill in DRILLS if drill.any_program], ids=lambda drill: drill.id)
def test_a_drill_for_any_program_knows_nothing_of_the_default_one(drill: Drill) -> None:
    names = set(drill.run.__code__.co_names)
    assert not names & {"ORDERS", "PAYMENTS", "TOTALS", "TOTALS_LOG", "SUB", "on_commit", "KEYS"}


@pytest.mark.parametrize("drill", DRILLS, ids=IDS)
def test_the_page_of_results_has_every_drill(drill: Drill) -> None:
    title = f"{drill.title} (quick)" if drill.quick else drill.title
    assert f"| {drill.id} {title} | {drill.injects} | {drill.holds} |" in PAGE.read_text(encoding="utf-8")
