"""Random histories of a task that moves between hosts, loses disks and snapshots: its state is always that of its changelogs."""

import random
import shutil

import pytest

from state.restore.place import TaskPlace
from state.restore.verify import rebuild_task
from tests.restore.logs import APPLICATION, SPECS, marker_of
from tests.snapshots.life import Life
from tests.snapshots.test_snapshots import damage

PLACE = TaskPlace(APPLICATION, "orders", 0, 1, "hash")


class History:
    """One random history; `copies` counts the restores that began with a snapshot or a replica's copy."""

    def __init__(self, folder, seed):
        self.random = random.Random(seed)
        self.life = Life(folder, seed, steps=2, keep=2, grace_ms=4_000)
        self.folder = folder
        self.copies = 0
        genuine = self.life.stores
        self.life.stores = lambda *given, **options: genuine(*given, **options, replica_dir=folder / "replicas")
        self.life.step()

    def run(self, events):
        for _ in range(events):
            name = self.random.choice(["step", "step", "step", "move", "lose", "damage", "replica", "wait"])
            getattr(self, name)()
            report = self.life.restored(self.life.host)
            self.copies += bool(report.copy)

    def step(self):
        self.life.step()

    def move(self):
        self.life.host = self.random.choice(["first", "second", "third"])

    def lose(self):
        shutil.rmtree(self.folder / self.life.host, ignore_errors=True)

    def damage(self):
        files = sorted(
            path for path in (self.folder / "snapshots").rglob("*") if path.is_file() and path.stat().st_size
        )
        if files:
            # Never in place: a table file on the same disk may be part of a database, too.
            damage(self.random.choice(files))

    def replica(self):
        self.life.logs.append_marker(f"{APPLICATION}-orders-commits", marker_of(self.life.target))
        rebuild_task(self.life.logs, PLACE, SPECS, self.folder / "replicas")

    def wait(self):
        self.life.now_ms += 3_600_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_wherever_a_task_goes_its_state_is_that_of_its_changelogs(tmp_path, seed):
    history = History(tmp_path, seed)
    history.run(30)
    assert history.copies > 0, "no restore began with a copy"
