"""The driver dies between Spark's offset log, its tasks, their state files and its commit log: another one goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark import apps
from tests.spark.harness import Harness
from tests.spark.processes import Application, streams_run
from tests.spark.sweep import STRUCK, Sweep
from tests.spark.test_restore import differences

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
OTHER = 1 - STRUCK
END_S = 240


@pytest.fixture
def sweep(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    made = Sweep(harness, tmp_path, monkeypatch)
    monkeypatch.setenv(apps.BLOCKS, f"{made.source} {made.counts} {made.sums}")
    made.send(1)
    return made


def logged(sweep: Sweep, log: str) -> bool:
    """Whether Spark's log (offsets, commits) has the first micro-batch."""
    return (checkpoint(sweep) / log / "0").exists()


def checkpoint(sweep: Sweep) -> Path:
    return Path(sweep.harness.config().checkpoint_dir) / sweep.source


def killed_when(sweep: Sweep, there: Callable[[], bool], monkeypatch: pytest.MonkeyPatch, faults: str = "") -> None:
    """Starts a driver with frozen workers, and kills all of it once something is there."""
    with monkeypatch.context() as environment:
        if faults:
            environment.setenv("STREAMS_FAULT", faults)
            environment.setenv("STREAMS_FAULT_ONCE", str(sweep.happened))
        with streams_run("tests.spark.apps:blocks", sweep.harness, sweep.harness.folder, "--tasks", "2") as driver:
            driver.wait_until(there, "the moment to kill the driver")
            driver.watch()
        driver.all_gone()


def happened(sweep: Sweep) -> int:
    """How many workers are frozen."""
    return len(sweep.happened.read_text().splitlines()) if sweep.happened.exists() else 0


def finished(sweep: Sweep, tmp_path: Path) -> dict[int, dict[int, str]]:
    """Goes on with what the killed driver has left; by task, what was decided at each version."""
    sweep.run()
    sweep.check()
    assert differences(sweep.harness, sweep.topology(), tmp_path / "restored") == []
    assert sweep.harness.progress is not None
    return {task: sweep.harness.progress.decisions(task) for task in (STRUCK, OTHER)}


@pytest.mark.long
def test_offsets_are_logged_and_no_task_has_begun(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = "freeze before_init@*:1,freeze before_init@*:1"
    killed_when(sweep, lambda: happened(sweep) == 2, monkeypatch, both)
    assert (logged(sweep, "offsets"), logged(sweep, "commits")) == (True, False)
    assert finished(sweep, tmp_path) == {STRUCK: {1: "run"}, OTHER: {1: "run"}}


def test_one_task_has_its_state_file_the_other_has_not_committed(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = checkpoint(sweep) / "state" / "0" / str(OTHER)

    def there() -> bool:
        return happened(sweep) == 1 and (files / "1.delta").exists()

    killed_when(sweep, there, monkeypatch, f"freeze marker_sent@{STRUCK}:1")
    assert (logged(sweep, "offsets"), logged(sweep, "commits")) == (True, False)
    # A state file of a micro-batch that was never completed counts for nothing.
    assert finished(sweep, tmp_path) == {STRUCK: {1: "run"}, OTHER: {1: "skip"}}


@pytest.mark.long
def test_all_tasks_are_done_and_the_commit_log_is_not_written(sweep: Sweep, tmp_path: Path) -> None:
    harness = sweep.harness
    given = [harness.application_id, harness.servers, str(harness.folder)]
    driver = Application([sys.executable, "-m", "tests.spark.dying_driver", *given], tmp_path, "")
    try:
        assert driver.ended(END_S) == -9, driver.log()
    finally:
        driver.close()
    assert (logged(sweep, "offsets"), logged(sweep, "commits")) == (True, False)
    assert finished(sweep, tmp_path) == {STRUCK: {1: "skip"}, OTHER: {1: "skip"}}


@pytest.mark.long
def test_the_commit_log_is_written_and_no_further_offsets(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_when(sweep, lambda: logged(sweep, "commits"), monkeypatch)
    assert not (checkpoint(sweep) / "offsets" / "1").exists()
    sweep.send(1)
    assert finished(sweep, tmp_path) == {STRUCK: {2: "run"}, OTHER: {2: "run"}}
