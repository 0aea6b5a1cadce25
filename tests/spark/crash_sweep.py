"""`make crash-sweep`: every pair of crash points, one after the other in the same step. Too long for `make test`."""

from __future__ import annotations

from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from state.commit.crash_points import POINTS
from tests.spark.harness import Harness
from tests.spark.sweep import COMMITTED, NEED_LOST_STATE, STRUCK, Sweep
from tests.spark.test_restore import differences

FIRST = [point for point in POINTS if point not in NEED_LOST_STATE]
AGAIN = [*FIRST[: FIRST.index("process_halfway")], "before_report", "report_given"]
"""What the second attempt passes when the first one has committed: it has nothing to process or to send."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", FIRST)
def test_a_worker_killed_twice_changes_nothing(
    harness: Harness, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep(harness, tmp_path, monkeypatch)
    pairs = dict(enumerate(AGAIN if first in COMMITTED else FIRST, start=1))
    sweep.send(len(pairs))
    sweep.run([f"{point}@{STRUCK}:{version}" for version, second in pairs.items() for point in (first, second)])
    sweep.check()
    assert sweep.decisions() == {
        version: "skip" if {first, second} & set(COMMITTED) else "run" for version, second in pairs.items()
    }
    assert differences(harness, sweep.topology(), tmp_path / "restored") == []


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("first", "second"), combinations_with_replacement(NEED_LOST_STATE, 2))
def test_a_restore_killed_twice_is_whole_in_the_end(
    harness: Harness, first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep(harness, tmp_path, monkeypatch)
    sweep.send(3)
    sweep.run()
    sweep.delete_state()
    sweep.send(1)
    # What the first attempt has restored is not restored again, so the second one dies at the same point or a later one.
    sweep.run([f"{point}@{STRUCK}:4" for point in (first, second)])
    sweep.check()
    assert sweep.decisions() == {4: "run"}
    assert differences(harness, sweep.topology(), tmp_path / "restored") == []
