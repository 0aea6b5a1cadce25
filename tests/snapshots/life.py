"""A task that lives on a host, with snapshots; and further hosts that its state can be restored on."""

import random
import time
from pathlib import Path

from state.commit.decide import TaskIdentity
from state.restore.plan import RestoreTarget
from state.restore.snapshots import SnapshotSettings
from state.restore.taking import snapshots_of
from state.restore.task_stores import TaskStateManager, WorkerMemory
from state.stores.dump import state_digest
from tests.restore.logs import APPLICATION, SPECS, MemoryLogs, commit, marker_of, write_random

IDENTITY = TaskIdentity(APPLICATION, "orders", 0, 1, "query", "hash")
EVERY_STEP = {"steps": 1, "interval_ms": 10**12}


class Life:
    """A task's steps: each is committed to the logs, applied on the host, and followed by a snapshot if one is due.

    Attributes:
        now_ms: The wall clock of all hosts.
    """

    def __init__(self, folder: Path, seed: int = 1, location: str | None = None, **settings: int) -> None:
        self.folder = folder
        self.logs = MemoryLogs()
        # A restore on request looks at the real clock to see how old state is.
        self.now_ms = time.time_ns() // 1_000_000
        self.settings = SnapshotSettings(location or str(folder / "snapshots"), **{**EVERY_STEP, **settings})
        self.target: RestoreTarget | None = None
        self.version = 0
        self._random = random.Random(seed)
        self._memory = WorkerMemory()
        self.host = "first"
        self.specs = SPECS

    @property
    def place(self):
        return snapshots_of(self.settings.location, IDENTITY)

    def stores(self, host=None, memory=None, **options):
        """The task's stores on a host."""
        options = {"snapshots": self.settings, **options}
        return TaskStateManager(
            self.logs,
            IDENTITY,
            self.specs,
            self.folder / (host or self.host),
            memory=memory or WorkerMemory(),
            clock_ms=lambda: self.now_ms,
            **options,
        )

    def step(self, wait=True):
        """One step on the host; gives the snapshot that was stored."""
        stores = self.stores(memory=self._memory)
        self.version += 1
        self.now_ms += 1_000
        with stores.open() as store:
            stores.restore_to(store, marker_of(self.target) if self.target else None)
            write_random(store, self._random, now=self.version * 20)
            store.store("plain").put(b"sure", b"v%d" % self.version, self.version)
            self.target = commit(store, self.logs, self.version, self.now_ms)
            self.digests = self._digests(store)
            stores.snapshot(store)
        return stores.publishing.result() if wait and stores.publishing else None

    def restored(self, host, **options):
        """Restores the stores on a host, compares them with those of the live one, and gives the report."""
        stores = self.stores(host, **options)
        with stores.open() as store:
            stores.restore_to(store, marker_of(self.target))
            assert self._digests(store) == self.digests
            assert store.position.version == self.version
        return stores.report

    def _digests(self, store):
        return {spec.name: state_digest(store, spec.name) for spec in SPECS}
