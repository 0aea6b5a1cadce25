"""A run that the broker itself has spoiled is told from a run in which the engine failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from tests.chaos import drill
from tests.chaos.drill import Drill, Verdict, run_drill

SKIPPED = (
    "Couldn't find leader endpoint for partitions Set(a-1) while trying to send transaction markers for a-1, these partitions "
    "are likely deleted already and hence can be skipped"
)


def broker_log(folder: Path, line: str) -> None:
    node = folder / "broker" / "node-1"
    node.mkdir(parents=True)
    (node / "server.log").write_text(f"INFO started\n{line}\n")


@pytest.mark.parametrize(
    ("line", "failures", "verdict"),
    [
        (SKIPPED, ["no results within 180 s"], Verdict.SPOILED),
        (SKIPPED, [], Verdict.SPOILED),
        ("INFO all is well", ["no results within 180 s"], Verdict.FAILED),
        ("INFO all is well", [], Verdict.FINE),
    ],
)
def test_the_verdict_depends_on_the_brokers_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, failures: list[str], verdict: Verdict
) -> None:
    def run(self: Drill) -> bool:
        self.failures += failures
        self._look_for_skipped_markers()
        return not self.failures and not self.spoiled

    monkeypatch.setattr(drill.Drill, "run", run)
    broker_log(tmp_path, line)
    assert run_drill(1, 1, tmp_path, Console(quiet=True), keep=True) is verdict
