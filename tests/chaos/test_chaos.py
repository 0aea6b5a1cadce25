"""A short chaos run; `make chaos` runs for any time, with any seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from tests.chaos.blows import cut_connections, freeze_worker, kill_broker, kill_worker, lose_state, strange_commit
from tests.chaos.drill import Verdict, run_drill

SEED = 1170
SECONDS = 40


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_short_chaos(tmp_path: Path) -> None:
    blows = [kill_worker, freeze_worker, strange_commit, cut_connections, kill_broker, lose_state]
    console = Console(soft_wrap=True)
    for seed in (SEED, SEED + 1, SEED + 2):
        folder = tmp_path / f"chaos-{seed}"
        verdict = run_drill(seed, SECONDS, folder, console, blows=blows, longest_away_s=3)
        if verdict is not Verdict.SPOILED:
            break
    assert verdict is Verdict.FINE, f"seed {seed}"
