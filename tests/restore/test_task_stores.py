"""Opening a task's stores for a step: damage, other processes' leftovers, memory stores, folders."""

import random
from pathlib import Path

import orjson
import pytest

from state.changelog import DELETE_RETENTION_MS
from state.commit.decide import TaskIdentity
from state.errors import StateCorruptedError, StateError, StateFormatError
from state.restore.directory import StateDirectory
from state.restore.plan import Action
from state.restore.task_stores import TaskStateManager, WorkerMemory
from state.stores.codec import timestamped
from state.stores.dump import state_digest
from state.stores.position import META_KEY
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import TaskStore, open_task_store
from state.tables.rocks import RocksTable
from state.tables.table import MemoryTable
from tests.restore.logs import APPLICATION, SPECS, MemoryLogs, commit, marker_of, write_random

IDENTITY = TaskIdentity(APPLICATION, "orders", 0, 1, "query", "hash")
MEMORY = StoreSpec("plain", StoreKind.KEY_VALUE, persistent=False)


@pytest.fixture
def life():
    """Logs and the marker of a task that has lived, and its live stores."""
    logs, rng = MemoryLogs(), random.Random(4)
    live = TaskStore(MemoryTable(), SPECS)
    for version in range(1, 6):
        write_random(live, rng, now=version * 20)
        live.store("table").put(b"sure", timestamped(b"v", version), version)
        target = commit(live, logs, version)
    return logs, live, marker_of(target)


def opened(stores, marker, check):
    with stores.open() as store:
        stores.restore_to(store, marker)
        check(store)
    return {one.store: one.action for one in stores.report.stores}


def test_restores_then_finds_everything_there(life, tmp_path):
    logs, live, marker = life

    def check(store):
        assert [state_digest(store, s.name) for s in SPECS] == [state_digest(live, s.name) for s in SPECS]

    assert set(opened(TaskStateManager(logs, IDENTITY, SPECS, tmp_path), marker, check).values()) == {Action.FROM_START}
    assert opened(TaskStateManager(logs, IDENTITY, SPECS, tmp_path), marker, check) == {}
    assert (tmp_path / APPLICATION / "orders" / "0" / "db").is_dir()


def test_the_size_of_the_stores_is_measured_now_and_then(life, tmp_path):
    logs, live, marker = life
    memory = WorkerMemory()
    first, second = (TaskStateManager(logs, IDENTITY, SPECS, tmp_path, memory=memory) for _ in range(2))
    opened(first, marker, lambda store: None)
    opened(second, marker, lambda store: None)
    assert first.size.disk_bytes > 0
    sizes = first.size.stores
    # A versioned store has a row about its history, too.
    assert all(sizes[spec.name].rows - len(list(live.rows(spec.name))) in (0, 1) for spec in SPECS)
    assert sizes["table"].rows == len(list(live.rows("table")))
    assert second.size is None
    memory.measured.clear()
    opened(second, marker, lambda store: None)
    assert second.size.stores == first.size.stores  # type: ignore[attr-defined]


def test_a_file_that_compaction_deletes_meanwhile_has_no_size(life, tmp_path, monkeypatch):
    logs, _, marker = life
    stores = TaskStateManager(logs, IDENTITY, SPECS, tmp_path, memory=WorkerMemory())
    present = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda folder, name: [*present(folder, name), folder / "db" / "000131.sst"])
    monkeypatch.setattr(Path, "is_file", lambda file: True)
    opened(stores, marker, lambda store: None)
    assert stores.size.disk_bytes > 0


def test_a_size_that_cannot_be_measured_fails_no_step(life, tmp_path, monkeypatch):
    logs, _, marker = life
    stores = TaskStateManager(logs, IDENTITY, SPECS, tmp_path, memory=WorkerMemory())

    def fails(store):
        raise StateError("the disk is gone")

    monkeypatch.setattr(TaskStore, "sizes", fails)
    opened(stores, marker, lambda store: None)
    assert stores.size is None


@pytest.mark.parametrize("victim", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_a_damaged_store_is_wiped_and_restored(life, tmp_path, victim, caplog):
    logs, _, marker = life
    stores = TaskStateManager(logs, IDENTITY, SPECS, tmp_path)
    opened(stores, marker, lambda store: None)
    for file in (stores.directory.path / "db").glob(victim):
        file.write_bytes(b"rubbish")
    actions = opened(stores, marker, lambda store: store.store("table").get(b"sure") or pytest.fail("a row is missing"))
    assert set(actions.values()) == {Action.FROM_START}
    assert all(one.reason.startswith("the local database was damaged: ") for one in stores.report.stores)
    assert "orders: the local database was damaged" in caplog.text


def test_a_store_of_another_format_is_wiped_and_restored(life, tmp_path):
    logs, _, marker = life
    stores = TaskStateManager(logs, IDENTITY, SPECS, tmp_path)
    opened(stores, marker, lambda store: None)
    table = RocksTable(stores.directory.path / "db")
    meta = orjson.loads(table.get(META_KEY))
    table.write([(META_KEY, orjson.dumps({**meta, "format": 99}))])
    table.close()
    with pytest.raises(StateFormatError, match="format 99, this version knows 1"):
        open_task_store(stores.directory.path, SPECS)
    assert set(opened(stores, marker, lambda store: None).values()) == {Action.FROM_START}


def test_a_store_of_an_older_version_is_believed(life, tmp_path):
    logs, _, marker = life
    stores = TaskStateManager(logs, IDENTITY, SPECS, tmp_path)
    opened(stores, marker, lambda store: None)
    table = RocksTable(stores.directory.path / "db")
    meta = orjson.loads(table.get(META_KEY))
    del meta["origins"]
    table.write([(META_KEY, orjson.dumps(meta))])
    table.close()
    assert opened(stores, marker, lambda store: None) == {}


def test_how_long_a_store_is_waited_for(life, tmp_path):
    logs, _, _ = life
    waits = []

    def open_store(folder, specs, spill_bytes, settings, volatile):
        waits.append(settings.lock_timeout_s)
        return TaskStore(MemoryTable(), specs)

    stores = TaskStateManager(logs, IDENTITY, SPECS, tmp_path, lock_timeout_s=60, open_store=open_store)
    for patient in (True, False):
        with stores.open(patient):
            pass
    assert waits == [60, 5]


def test_age_goes_by_the_clock_and_not_by_the_batch_time(life, tmp_path):
    """A batch that was logged before a long pause has an old batch time; the store is old all the same."""
    logs, live, marker = life
    opened(TaskStateManager(logs, IDENTITY, SPECS, tmp_path, clock_ms=lambda: 5000), marker, lambda store: None)
    live.store("table").put(b"sure", timestamped(b"w", 6), 6)
    later = marker_of(commit(live, logs, 6))
    old = TaskStateManager(logs, IDENTITY, SPECS, tmp_path, clock_ms=lambda: DELETE_RETENTION_MS)
    actions = opened(old, later, lambda store: None)
    assert actions["table"] is Action.FROM_START
    assert actions["join"] in (Action.TAIL, Action.NOTHING), "what is not compacted loses no tombstones"


def test_damage_met_in_a_step_fails_it_and_wipes_the_store(life, tmp_path):
    logs, _, marker = life
    stores = TaskStateManager(logs, IDENTITY, SPECS, tmp_path)

    def fail(store):
        raise StateCorruptedError("db", "block checksum mismatch")

    with pytest.raises(StateCorruptedError):
        opened(stores, marker, fail)
    assert not stores.directory.path.exists()
    assert set(opened(stores, marker, lambda store: None).values()) == {Action.FROM_START}


def test_any_other_failure_keeps_the_store(life, tmp_path):
    logs, _, marker = life
    stores = TaskStateManager(logs, IDENTITY, SPECS, tmp_path)

    def fail(store):
        store.store("plain").put(b"never", b"applied", 1)
        raise RuntimeError("user code")

    with pytest.raises(RuntimeError, match="user code"):
        opened(stores, marker, fail)
    actions = opened(stores, marker, lambda store: store.store("plain").get(b"never") and pytest.fail("was applied"))
    assert actions == {}


def test_stores_in_memory_live_as_long_as_the_process(life, tmp_path):
    logs, _, marker = life
    specs = [MEMORY if spec.name == "plain" else spec for spec in SPECS]

    def bring():
        return opened(TaskStateManager(logs, IDENTITY, specs, tmp_path), marker, lambda store: None)

    assert set(bring().values()) == {Action.FROM_START}
    assert bring() == {}


def test_directories(tmp_path):
    state = StateDirectory(tmp_path)
    for application, task in (("a", 0), ("a", 10), ("b", 1)):
        folder = state.task(application, "sub", task).path
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"12345")
    (tmp_path / "a" / "sub" / "0.deleted").mkdir()
    assert [(d.application_id, d.sub_topology, d.task, d.size_bytes) for d in state.tasks()] == [
        ("a", "sub", 0, 5),
        ("a", "sub", 10, 5),
        ("b", "sub", 1, 5),
    ]
    state.task("a", "sub", 10).wipe()
    state.task("a", "sub", 10).wipe()
    assert [d.task for d in state.tasks("a")] == [0]
    assert state.wipe("a") == 1
    assert not (tmp_path / "a").exists()
    assert [d.application_id for d in state.tasks()] == ["b"]


def test_a_disk_that_refuses_is_named_with_a_way_forward(tmp_path):
    (tmp_path / APPLICATION).write_text("no folder can be made below this")
    stores = TaskStateManager(MemoryLogs(), IDENTITY, SPECS, tmp_path)
    said = r"the local state of task 0 of 1 of .* cannot be used at .*/0: Not a directory.*state_dir.*changelogs"
    with pytest.raises(StateError, match=said), stores.open():
        pass
