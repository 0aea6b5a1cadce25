"""A task that moves between hosts: each host has a state folder of its own, and the marker alone says what is to be trusted."""

import random
from functools import partial

import pytest

from state.commit.decide import TaskIdentity
from state.restore.plan import Action
from state.restore.task_stores import TaskStateManager, WorkerMemory
from state.stores.codec import timestamped
from state.stores.dump import state_digest
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import TaskStore, open_task_store
from state.tables.open_tables import OpenTables
from state.tables.table import MemoryTable
from tests.restore.logs import APPLICATION, SPECS, MemoryLogs, commit, marker_of, write_random

IDENTITY = TaskIdentity(APPLICATION, "orders", 0, 1, "query", "hash")
VOLATILE = StoreSpec("volatile", StoreKind.TIMESTAMPED_KEY_VALUE, persistent=False)


class Cluster:
    """A task whose state is known (`truth`), and hosts that it runs on in turn."""

    def __init__(self, folder, specs, seed):
        self.folder, self.specs, self.rng = folder, specs, random.Random(seed)
        self.logs, self.truth = MemoryLogs(), TaskStore(MemoryTable(), specs)
        self.kept = {host: OpenTables() for host in "ab"}
        self.memory = {host: WorkerMemory() for host in "ab"}
        self.marker, self.version = None, 0

    def steps(self, count):
        """Steps that some host has done and committed."""
        for _ in range(count):
            self.version += 1
            write_random(self.truth, self.rng, now=self.version * 20)
            self.truth.store(self.specs[0].name).put(b"sure", timestamped(b"%d" % self.version, 1), 1)
            self.marker = marker_of(commit(self.truth, self.logs, self.version))

    def runs_on(self, host):
        """What the task restores on a host; its stores are then as they must be."""
        stores = TaskStateManager(
            self.logs,
            IDENTITY,
            self.specs,
            self.folder / host,
            memory=self.memory[host],
            clock_ms=lambda: self.version * 1000,
            open_store=partial(open_task_store, kept=self.kept[host]),
        )
        with stores.open() as store:
            stores.restore_to(store, self.marker)
            for spec in self.specs:
                assert state_digest(store, spec.name) == state_digest(self.truth, spec.name), spec.name
        return {one.store: one.action for one in stores.report.stores}


@pytest.mark.parametrize("seed", range(5))
def test_a_task_that_moved_away_and_back_rolls_its_old_copy_forward(tmp_path, seed):
    cluster = Cluster(tmp_path, SPECS, seed)
    cluster.steps(4)
    assert set(cluster.runs_on("a").values()) == {Action.FROM_START}
    cluster.steps(3)
    assert set(cluster.runs_on("b").values()) == {Action.FROM_START}, "the other host begins without state"
    cluster.steps(3)
    back = cluster.runs_on("a")
    assert back["table"] is Action.TAIL, "the copy that stayed behind, and still open there, is brought forward"
    assert Action.FROM_START not in back.values()
    assert cluster.runs_on("a") == {}
    assert cluster.runs_on("b")["table"] is Action.TAIL


def test_a_copy_of_before_the_changelog_was_made_anew_is_not_trusted(tmp_path):
    cluster = Cluster(tmp_path, SPECS, 1)
    cluster.steps(4)
    cluster.runs_on("a")
    # The application was reset meanwhile, and has run on the other host since: the same offsets are other records.
    cluster.logs.ids = dict.fromkeys(cluster.logs.ends, "another")
    cluster.logs.records.clear()
    cluster.logs.ends.clear()
    cluster.truth, cluster.version = TaskStore(MemoryTable(), SPECS), 0
    cluster.steps(6)
    assert set(cluster.runs_on("a").values()) == {Action.FROM_START}


def test_stores_in_memory_that_stayed_behind_are_brought_forward_too(tmp_path):
    cluster = Cluster(tmp_path, [*SPECS, VOLATILE], 1)
    for host in "abab":
        cluster.steps(2)
        cluster.truth.store("volatile").put(host.encode(), timestamped(b"x", 1), 1)
        cluster.steps(1)
        cluster.runs_on(host)


def test_a_database_that_stays_open_where_its_task_has_left_is_released_to_whoever_asks(tmp_path):
    cluster = Cluster(tmp_path, SPECS, 1)
    cluster.steps(2)
    cluster.runs_on("a")
    # Another process on the first host: it finds the database open, asks for it, and gets it.
    cluster.kept["a"] = OpenTables()
    cluster.steps(1)
    assert Action.FROM_START not in cluster.runs_on("a").values()
