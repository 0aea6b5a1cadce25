"""A worker killed at every crash point, in one run: what was sent then is in the log, aborted; results are exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from state.commit.crash_points import POINTS
from tests.spark.harness import Harness
from tests.spark.sweep import COMMITTED, NEED_LOST_STATE, STRUCK, Sweep
from tests.spark.test_restore import differences

HALF, ALL, NONE = "half", "all", "none"
SENT = {
    "outputs_half_sent": (HALF, NONE, 0),
    "outputs_sent": (ALL, NONE, 0),
    "changelog_half_sent": (ALL, HALF, 0),
    "changelog_sent": (ALL, ALL, 0),
    "marker_sent": (ALL, ALL, 1),
    "before_commit": (ALL, ALL, 1),
}
"""What of a step is in the log where it was killed: results, changes of state, markers."""


def portion(count: int, of: int) -> str:
    return NONE if count == 0 else ALL if count == of else HALF


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_worker_killed_anywhere_changes_nothing(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep(harness, tmp_path, monkeypatch)
    sweep.send(1)
    sweep.run()
    sweep.delete_state()
    others = [point for point in POINTS if point not in NEED_LOST_STATE]
    sweep.send(1 + len(others))
    # One step dies in each part of its restore, and each step after that at another point.
    at = dict(enumerate(others, start=3))
    sweep.run([f"{point}@{STRUCK}:2" for point in NEED_LOST_STATE] + [f"{p}@{STRUCK}:{v}" for v, p in at.items()])
    sweep.check()
    assert sweep.decisions() == {2: "run"} | {v: "skip" if p in COMMITTED else "run" for v, p in at.items()}

    whole = {what: sweep.per_step(what) for what in sweep.topics}
    found = {
        at[version]: (*(portion(counts[what], whole[what]) for what in whole), counts["markers"])
        for version, counts in sweep.aborted().items()
    }
    assert found == SENT
    assert differences(harness, sweep.topology(), tmp_path / "restored") == []
