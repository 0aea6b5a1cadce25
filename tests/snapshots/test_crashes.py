"""A process that dies at any moment of a snapshot: the task loses nothing, and the next snapshot is whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from state.commit.crash_points import SNAPSHOT_POINTS
from state.restore import taking
from state.restore.snapshot_location import LocalFolder
from state.restore.task_stores import TaskStateManager, WorkerMemory
from tests.snapshots.life import Life

OPERATIONS = ("names", "size", "read", "write", "put", "remove")


class Dead(BaseException):
    """The process has died here. Not an `Exception`: nobody catches it."""


class Process:
    """A process that dies at the n-th operation on the location of its snapshots, or at a crash point.

    Attributes:
        count: Operations so far.
    """

    def __init__(self, at: int = 0, point: str = "") -> None:
        self.count, self._at, self._point = 0, at, point
        self.dead = False

    def operation(self, genuine: Callable[..., object]) -> Callable[..., object]:
        """An operation that may not be reached, or be the last thing that the process sees."""

        def counted(*given: object) -> object:
            self.count += 1
            self.dead = self.dead or self.count == self._at
            if self.dead:
                raise Dead
            return genuine(*given)

        return counted

    def reach(self, point: str) -> None:
        """Dies at the crash point."""
        if point == self._point:
            self.dead = True
            raise Dead

    def step(self, life: Life, patch: pytest.MonkeyPatch) -> None:
        """A step of the task in this process, with its snapshot."""
        genuine = TaskStateManager.snapshot
        with patch.context() as fault:
            fault.setattr(TaskStateManager, "snapshot", lambda stores, store: genuine(stores, store, self.reach))
            for name in OPERATIONS:
                fault.setattr(LocalFolder, name, self.operation(getattr(LocalFolder, name)))
            # A dead process tidies nothing up.
            fault.setattr(taking, "shutil", SimpleNamespace(rmtree=lambda *given, **options: None))
            try:
                life.step()
            except Dead:
                assert self.dead


def lived(folder: Path) -> Life:
    """A task with a snapshot, and files of an older one that is not kept."""
    life = Life(folder, keep=1, grace_ms=0)
    for _ in range(2):
        life.step()
    return life


def goes_on(life: Life) -> None:
    """The task has lost nothing, and its snapshots are as if nobody had died."""
    version = life.version
    life._memory = WorkerMemory()
    report = life.restored("second")
    assert report.copy, "no snapshot was left"
    assert life.step().version == version + 1
    assert life.restored("third").copy == f"the snapshot of step {version + 1} in {life.place}"
    (kept,) = life.place.readable()
    stored = {file.name for file in (life.folder / "snapshots").glob("*/*/*/files/*")}
    assert stored == {file.sha256 for file in kept.files}, "files are missing, or left behind"


def test_a_process_that_dies_at_any_operation_on_the_location_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Process()
    whole.step(lived(tmp_path / "whole"), monkeypatch)
    assert whole.count > 10
    # A file takes two operations, so that this meets both of them.
    for at in range(1, whole.count + 1, 3):
        process, life = Process(at), lived(tmp_path / str(at))
        process.step(life, monkeypatch)
        assert process.dead, "the operation was never reached"
        goes_on(life)


@pytest.mark.parametrize("point", SNAPSHOT_POINTS)
def test_a_process_that_dies_at_a_crash_point_of_a_snapshot_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    process, life = Process(point=point), lived(tmp_path)
    process.step(life, monkeypatch)
    assert process.dead, "the point was never reached"
    newest = next(iter(life.place.readable())).version
    assert newest == (life.version if point == "snapshot_stored" else life.version - 1)
    goes_on(life)
