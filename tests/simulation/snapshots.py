"""Snapshots and replicas in a simulated cluster: the engine's own code, with databases and the snapshots' location in memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from state.errors import StateLockedError
from state.restore import copies, taking
from state.restore import copies as replica_copies
from state.restore import snapshots as task_snapshots
from state.restore import verify as rebuild
from state.restore.place import TaskPlace
from state.restore.task_stores import WorkerMemory
from state.restore.verify import rebuild_task
from streams.engine.step.job import QueryJob
from streams.testing.simulation import RequestEvent, SimulatedStores, SimulatedTable
from tests.simulation.cluster import Cluster, Host

SETTINGS = {"snapshot_dir": "/simulated/snapshots", "snapshot_steps": 2, "snapshots_kept": 2}


class Location:
    """Where the snapshots are: a `SnapshotLocation` in memory, on which every change is an event."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.files: dict[str, bytes] = {}

    def __str__(self) -> str:
        return "memory"

    def names(self, folder: str) -> list[str]:
        """See `SnapshotLocation`."""
        return sorted(path[len(folder) + 1 :] for path in self.files if path.startswith(f"{folder}/"))

    def size(self, path: str) -> int | None:
        """See `SnapshotLocation`."""
        return len(self.files[path]) if path in self.files else None

    def read(self, path: str) -> bytes:
        """See `SnapshotLocation`."""
        return self.files[path]

    def write(self, path: str, data: bytes) -> None:
        """See `SnapshotLocation`."""
        self._cluster.before(RequestEvent("store", path))
        self.files[path] = data

    def put(self, source: Path, path: str) -> None:
        """See `SnapshotLocation`."""
        self.write(path, source.read_bytes())

    def get(self, path: str, target: Path) -> None:
        """See `SnapshotLocation`."""
        if path not in self.files:
            raise FileNotFoundError(path)
        target.write_bytes(self.files[path])

    def remove(self, path: str) -> None:
        """See `SnapshotLocation`."""
        self._cluster.before(RequestEvent("store", f"without {path}"))
        self.files.pop(path, None)

    def damage(self, random: Random) -> None:
        """Flips a bit in a file of some snapshot."""
        files = [path for path in sorted(self.files) if "/files/" in path and self.files[path]]
        if files:
            path = random.choice(files)
            self._cluster.say(f"{path} is damaged")
            data = self.files[path]
            self.files[path] = data[:-1] + bytes([data[-1] ^ 0x40])


class Inline:
    """Does at once what a pool of threads would do at some time, so that a history is the same each time that it is played."""

    map = staticmethod(map)

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        """See `Executor`; if the process dies, it dies here."""
        done: Future[Any] = Future()
        done.set_result(work(*given))
        return done


class Snapshots:
    """The folders of the hosts, and the location of the snapshots.

    Args:
        cluster: The cluster.
        root: A folder for the folders of the hosts.
    """

    def __init__(self, cluster: Cluster, root: Path) -> None:
        self._cluster, self._root = cluster, root
        self.location = Location(cluster)
        self._tables: dict[Path, SimulatedTable] = {}

    def stores(self, host: Host, *given: Any, into: str = "state", **options: Any) -> SimulatedStores:
        """The stores of a task on a host; the arguments are those of `SimulatedStores`."""
        folder = self._root / host.name
        replicas = folder / "replicas" if into == "state" else None
        stores = SimulatedStores(*given, state_dir=folder / into, replica_dir=replicas, **options)
        database = stores.directory.path / "db"
        database.mkdir(parents=True, exist_ok=True)
        (database / "CURRENT").touch()
        self._tables[database] = given[3]
        return stores

    def open_table(self, path: Path, *_: Any) -> SimulatedTable:
        """See `state.tables.open_tables.open_table`."""
        table, attempt = self._tables.get(path), self._cluster.attempt
        if table is None:
            fetched = SimulatedTable(location=path.name)
            fetched.load(path)
            return fetched
        if (path / "0").exists():
            table.load(path)
            table.lock(attempt.stores[-1] if attempt and attempt.stores else None)
            for part in path.iterdir():
                part.unlink()
        elif table.owner is not None:
            raise StateLockedError(table.location, 0, "simulated")
        return table

    def lose(self, host: Host) -> None:
        """Loses the local state of a host."""
        shutil.rmtree(self._root / host.name / "state", ignore_errors=True)

    def replicate(self, host: Host, job: QueryJob, task: int) -> None:
        """What `streams replica` does on a host with its copy of a task."""
        one, kafka = job.identity(task, ""), self._cluster.kafka
        place = TaskPlace(one.application_id, one.sub_topology, task, one.tasks, one.topology_hash)
        table = self._cluster.table(host, f"{job.sub.name}/replica", task)

        def stores(source: Any, identity: Any, specs: Any, _: Path, snapshots: Any, **__: Any) -> SimulatedStores:
            given = source, identity, specs, table, WorkerMemory(), self._cluster.now_ms
            return self.stores(host, *given, into="replicas", snapshots=snapshots)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rebuild, "TaskStateManager", stores)
            try:
                specs = [node.spec for node in job.sub.stores.values()]
                rebuild_task(kafka, place, specs, Path(), snapshots=job.snapshots)
            finally:
                # Nothing stays open, however it has ended.
                table.crash()


@contextmanager
def kept(cluster: Cluster) -> Iterator[None]:
    """The hosts of a cluster have folders, and a common location for snapshots."""
    # Each history makes and removes hundreds of small files: in memory, where the machine has such a folder.
    memory = Path("/dev/shm")
    folder = TemporaryDirectory(prefix="simulated-", dir=memory if memory.is_dir() else None)
    with folder as root, pytest.MonkeyPatch.context() as patch:
        made = cluster.snapshots = Snapshots(cluster, Path(root))
        for where in (copies, replica_copies):
            patch.setattr(where, "open_table", made.open_table)
        patch.setattr(taking, "open_location", lambda _: made.location)
        patch.setattr(taking, "_thread", Inline)
        patch.setattr(task_snapshots, "ThreadPoolExecutor", Inline)
        yield
