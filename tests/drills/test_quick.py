"""The quick drills, as `streams drill run quick` holds them; `make drills` holds all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.drills.cases import DRILLS
from streams.drills.drill import Drill
from streams.drills.program import OwnProgram
from streams.drills.runner import Outcome, run_drill

QUICK = [drill for drill in DRILLS if drill.quick]


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("drill", QUICK, ids=[drill.id for drill in QUICK])
def test_a_quick_drill_passes(drill: Drill, tmp_path: Path) -> None:
    said: list[str] = []
    result = run_drill(drill, OwnProgram(), said.append, folder=tmp_path)
    assert result.outcome is Outcome.PASSED, (result.wrong, said)
