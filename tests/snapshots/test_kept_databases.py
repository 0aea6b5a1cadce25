"""A worker that keeps databases open takes copies over, notices deleted and damaged state, and is not disturbed by readers."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from state.errors import StateCorruptedError
from state.restore.copies import DATABASE
from state.restore.verify import TaskPlace, verify_task
from state.stores.dump import read_task_store
from state.stores.task_store import open_task_store
from state.tables.open_tables import OpenTables
from tests.restore.logs import APPLICATION, SPECS, marker_of
from tests.snapshots.life import Life

PLACE = TaskPlace(APPLICATION, "orders", 0, 1, "hash")


class Keeping(Life):
    """A life on one worker, which keeps the database open between the steps."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept = OpenTables()

    def stores(self, host=None, memory=None, **options):
        if host is None or host == self.host:
            options = {"open_store": partial(open_task_store, kept=self.kept), **options}
        return super().stores(host, memory, **options)

    @property
    def path(self) -> Path:
        return self.stores().directory.path

    @property
    def open_now(self):
        """The database that is kept open."""
        return self.kept._kept[self.path / DATABASE].table

    def step(self, wait=True):
        made = super().step(wait)
        if wait:
            self.logs.append_marker(f"{APPLICATION}-orders-commits", marker_of(self.target))
        return made


@pytest.fixture
def life(tmp_path: Path) -> Keeping:
    life = Keeping(tmp_path)
    for _ in range(3):
        life.step()
    return life


def test_a_copy_that_is_taken_over_is_what_stays_open(life: Keeping) -> None:
    before = life.open_now
    shutil.rmtree(life.path)
    report = life.restored(life.host)
    assert report.copy == f"the snapshot of step 3 in {life.place}"
    assert life.open_now is not before
    after = life.open_now
    life.step()
    assert life.open_now is after
    assert life.restored("second").copy == f"the snapshot of step 4 in {life.place}"


def test_damage_that_a_step_finds_closes_the_database_and_the_next_step_restores_it(life: Keeping) -> None:
    before, stores = life.open_now, life.stores()
    with pytest.raises(StateCorruptedError), stores.open():
        raise StateCorruptedError(str(life.path), "a checksum is wrong")
    assert life.kept._kept == {}
    report = life.restored(life.host)
    assert report.copy == "", "a copy may have the same damage"
    assert report.records > 0
    assert life.open_now is not before


def test_readers_and_verifications_leave_it_open(life: Keeping, tmp_path: Path) -> None:
    before = life.open_now
    found = verify_task(life.logs, PLACE, SPECS, life.folder / life.host, tmp_path / "verified")
    assert found.version == 3
    assert found.stores
    assert [(one.distrust, one.differences) for one in found.stores] == [("", 0)] * len(found.stores)
    with read_task_store(life.path, SPECS) as store:
        assert store.position is not None
        assert store.position.version == 3
    life.step()
    assert life.open_now is before
