"""Snapshots are taken after steps, restored instead of the changelog's first part, and never trusted more than local state."""

import logging
import shutil
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from state.changelog import DELETE_RETENTION_MS, changelog_topic
from state.errors import SnapshotError, StateCorruptedError
from state.restore import taking
from state.restore.plan import Action
from state.restore.snapshots import Snapshot, SnapshotFile
from state.restore.task_stores import WorkerMemory
from state.stores.position import StoreOrigin, read_meta
from state.tables import open_tables as opening
from state.tables.native_library import find_library
from tests.restore.logs import APPLICATION, SPECS, commit, marker_of
from tests.snapshots.life import Life


@pytest.fixture(params=["rocksdict", "native"])
def tables(request, monkeypatch):
    if request.param == "native" and find_library() is None:
        pytest.skip("RocksDB's library is not here")
    monkeypatch.setattr(opening, "native_available", lambda: request.param == "native")


def tail(report):
    """Whether only the end of the changelogs was read."""
    return {store.action for store in report.stores} <= {Action.TAIL, Action.NOTHING}


@pytest.mark.usefixtures("tables")
def test_a_host_without_state_starts_from_the_newest_snapshot_and_reads_the_tail(tmp_path):
    life = Life(tmp_path)
    for _ in range(6):
        life.step()
    life.settings = life.settings.__class__(life.settings.location, steps=1000, interval_ms=10**12)
    life.step()
    report = life.restored("second")
    assert tail(report)
    assert report.copy == f"the snapshot of step 6 in {life.place}"
    assert report.records == life.target.changelog_records
    # The restored state is an ordinary one: the next step goes on from it.
    life.host = "second"
    life.step()
    assert life.restored("third").copy == f"the snapshot of step 8 in {life.place}"


def test_what_is_read_depends_on_the_tail_and_not_on_the_state(tmp_path):
    life = Life(tmp_path)
    with (stores := life.stores()).open() as store:
        for number in range(20_000):
            store.store("plain").put(b"key%d" % number, b"value", 1)
        life.version, life.target = 1, commit(store, life.logs, 1, life.now_ms)
    life.step()
    life.step()
    assert stores.directory.size_bytes > 0
    assert life.restored("second").records == 0
    assert life.restored("third", snapshots=taking.SnapshotSettings()).records > 20_000


def test_files_that_snapshots_share_are_stored_once(tmp_path):
    life = Life(tmp_path)
    first, second = life.step(), life.step()
    shared = {file.sha256 for file in first.files} & {file.sha256 for file in second.files}
    assert any(file.name.endswith(".sst") for file in second.files if file.sha256 in shared)
    stored = {path.name: path for path in (tmp_path / "snapshots").glob("*/*/*/files/*")}
    assert set(stored) == {file.sha256 for snapshot in (first, second) for file in snapshot.files}
    database = {path.stat().st_ino for path in (tmp_path / "first").glob("*/*/*/db/*.sst")}
    assert database <= {path.stat().st_ino for path in stored.values()}, "a table file on the same disk costs a name"


def test_a_snapshot_is_never_newer_than_what_is_committed(tmp_path):
    life = Life(tmp_path)
    stored = life.step()
    assert stored.version == life.target.version
    assert stored.offsets == life.target.changelog_ends
    # The logs have lost the last step: the snapshot of it is ahead of them, like local state would be.
    before = life.target, life.digests
    life.step()
    life.target, life.digests = before
    life.version = 1
    report = life.restored("second")
    assert report.copy == f"the snapshot of step 1 in {life.place}"


def test_a_foreign_local_state_is_replaced_by_a_snapshot(tmp_path):
    life = Life(tmp_path)
    for _ in range(3):
        life.step()
    with life.stores("second").open() as store:
        store.restore("plain", [b"foreign"], [b"x"], [1], origin=StoreOrigin("another", "id", 1))
    report = life.restored("second")
    assert tail(report)
    assert report.copy


def test_a_store_without_a_changelog_begins_empty_as_without_a_snapshot(tmp_path):
    """No changelog would bring its rows from the step of the snapshot to the present one."""
    life = Life(tmp_path)
    life.specs = [replace(spec, logged=False) if spec.name == "versions" else spec for spec in SPECS]
    for _ in range(3):
        life.step()
    stores = life.stores("second")
    with stores.open() as store:
        stores.restore_to(store, marker_of(life.target))
        assert stores.report.copy
        assert list(store.rows("versions")) == []
    with life.stores("first").open() as store:
        assert list(store.rows("versions")) != []


def test_an_attempt_that_is_killed_while_it_exchanges_databases_loses_nothing(tmp_path, monkeypatch):
    life = Life(tmp_path)
    for _ in range(3):
        life.step()
    genuine = Path.rename

    def killed(self, target):
        if self.name == "copy.part":
            raise OSError("killed")
        return genuine(self, target)

    with monkeypatch.context() as fault:
        fault.setattr(Path, "rename", killed)
        stores = life.stores("second")
        with pytest.raises(OSError, match="killed"), stores.open() as store:
            stores.restore_to(store, marker_of(life.target))
    assert life.restored("second").copy
    assert sorted(path.name for path in (tmp_path / "second").glob("*/*/*/*")) == ["db"]


def test_good_local_state_is_kept(tmp_path):
    life = Life(tmp_path)
    for _ in range(3):
        life.step()
    assert life.restored("first").copy == ""


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.unlink()
    path.write_bytes(data)


def only_in(life, snapshot):
    """A table file that this snapshot has, and no other one."""
    others = {file.sha256 for one in life.place.readable() if one.name != snapshot.name for file in one.files}
    name = next(file.sha256 for file in snapshot.files if file.sha256 not in others and file.name.endswith(".sst"))
    return next((life.folder / "snapshots").glob(f"*/*/*/files/{name}"))


def manifest_of(life, snapshot):
    return next((life.folder / "snapshots").glob(f"*/*/*/manifests/{snapshot.name}"))


@pytest.mark.parametrize("fault", ["file damaged", "file short", "file missing", "manifest damaged", "manifest short"])
def test_a_damaged_snapshot_is_found_out_and_the_one_before_is_taken(tmp_path, fault, caplog):
    life = Life(tmp_path)
    snapshots = [life.step() for _ in range(3)]
    newest = snapshots[-1]
    path = manifest_of(life, newest) if fault.startswith("manifest") else only_in(life, newest)
    if fault.endswith("damaged"):
        damage(path)
    elif fault.endswith("short"):
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[:-1])
    else:
        path.unlink()
    with caplog.at_level(logging.WARNING):
        report = life.restored("second")
    assert report.copy == f"the snapshot of step 2 in {life.place}"
    assert tail(report)
    assert newest.name in caplog.text or "step 3" in caplog.text


def test_without_any_whole_snapshot_the_changelog_is_read(tmp_path):
    life = Life(tmp_path)
    for _ in range(3):
        life.step()
    for path in (tmp_path / "snapshots").glob("*/*/*/files/*"):
        damage(path) if path.stat().st_size else None
    report = life.restored("second")
    assert report.copy == ""
    assert {store.action for store in report.stores} == {Action.FROM_START}


def test_a_snapshot_that_was_cut_short_does_not_exist(tmp_path, monkeypatch):
    life = Life(tmp_path)
    life.step()
    from state.restore.snapshot_location import LocalFolder

    def killed(self, path, data):
        raise OSError("killed before the manifest")

    with monkeypatch.context() as fault:
        fault.setattr(LocalFolder, "write", killed)
        assert life.step() is None, "the step goes on without a snapshot"
    assert [snapshot.version for snapshot in life.place.readable()] == [1]
    assert life.restored("second").copy.startswith("the snapshot of step 1")


def test_a_location_that_cannot_be_reached_fails_neither_a_step_nor_a_restore(tmp_path, caplog):
    (tmp_path / "file").write_text("not a folder")
    life = Life(tmp_path, location=str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        assert life.step() is None
        report = life.restored("second")
    assert "was not stored" in caplog.text
    assert report.copy == ""


def test_a_snapshot_whose_offsets_are_no_longer_in_the_logs_is_not_used(tmp_path):
    life = Life(tmp_path)
    life.step()
    for _ in range(3):
        life.settings = taking.SnapshotSettings(life.settings.location, steps=1000, interval_ms=10**12)
        life.step()
    for name, end in life.target.changelog_ends.items():
        life.logs.begins[changelog_topic(APPLICATION, name)] = end
    stores = life.stores("second")
    with stores.open() as store:
        stores.restore_to(store, marker_of(life.target))
    assert stores.report.copy == ""


def test_a_snapshot_that_may_have_missed_tombstones_is_not_used(tmp_path):
    life = Life(tmp_path)
    life.step()
    life.settings = taking.SnapshotSettings(life.settings.location, steps=1000, interval_ms=10**12)
    life.step()
    life.now_ms += DELETE_RETENTION_MS
    actions = {store.store: store.action for store in life.restored("second").stores}
    assert actions["plain"] is Action.FROM_START


def test_a_snapshot_of_a_changelog_that_was_created_again_is_not_used(tmp_path):
    life = Life(tmp_path)
    snapshot = life.step()
    life.step()
    other = {name: {"query_id": "query", "topic_id": "another", "as_of_ms": 1} for name in snapshot.origins}
    for one in list(life.place.readable()):
        content = orjson.loads(one.to_bytes())["snapshot"] | {"origins": other}
        manifest_of(life, one).write_bytes(Snapshot._of(content).to_bytes())
    assert life.restored("second").copy == ""


def test_old_snapshots_go_and_their_files_after_a_grace(tmp_path):
    life = Life(tmp_path, keep=2, grace_ms=5_000)
    first = life.step()
    gone = only_in(life, first)
    for _ in range(3):
        life.step()
    assert [snapshot.version for snapshot in life.place.readable()] == [4, 3]
    assert gone.exists(), "another host may be about to name the file"
    for _ in range(6):
        life.step()
    assert not gone.exists()
    assert life.restored("second").copy.startswith("the snapshot of step 10")


def test_the_time_between_snapshots_counts_across_processes(tmp_path):
    life = Life(tmp_path, interval_ms=10_000, steps=10**9)
    taken = []
    for _ in range(25):
        life._memory = WorkerMemory()
        taken += [life.step()]
    assert [snapshot.version for snapshot in taken if snapshot] == [1, 11, 21]


def test_checksums_of_unchanged_files_are_not_computed_again(tmp_path, monkeypatch):
    life = Life(tmp_path)
    life.step()
    life._memory = WorkerMemory()
    read = []
    from state.restore import snapshots as ledger

    genuine = ledger.sha256_of
    monkeypatch.setattr(ledger, "sha256_of", lambda path: read.append(path.name) or genuine(path))
    snapshot = life.step()
    old = [file.name for file in snapshot.files if file.name.endswith(".sst")]
    assert len([name for name in read if name.endswith(".sst")]) < len(old)


def test_damage_met_in_a_step_leads_to_the_changelog_and_not_to_the_same_snapshot(tmp_path):
    life = Life(tmp_path)
    for _ in range(3):
        life.step()
    stores = life.stores("first")
    with pytest.raises(StateCorruptedError), stores.open():
        raise StateCorruptedError("db", "block checksum mismatch")
    assert life.restored("first").copy == ""
    shutil.rmtree(tmp_path / "first")
    assert life.restored("first").copy != "", "once restored, snapshots count again"


def test_a_second_snapshot_waits_until_the_first_is_stored(tmp_path):
    life = Life(tmp_path)
    life.step()
    lock = taking._locked(next((tmp_path / "first").glob("*/*/*")) / "snapshot.lock")
    assert life.step() is None
    lock.close()
    assert life.step().version == 3


def test_a_checkpoint_holds_the_rows_of_its_moment(tmp_path, tables):
    table = opening.open_table(tmp_path / "db")
    table.write([(b"a", b"1")])
    table.checkpoint(tmp_path / "copy")
    table.write([(b"a", b"2"), (b"b", b"2")])
    copy = opening.open_table(tmp_path / "copy")
    assert list(copy.scan(b"", None)) == [(b"a", b"1")]
    assert list(table.scan(b"", None)) == [(b"a", b"2"), (b"b", b"2")]
    assert read_meta(copy).step is None
    copy.close()
    table.close()


def test_a_manifest_says_what_is_wrong_with_it():
    for data, found in ((b"", "damaged"), (b"{}", "damaged"), (b'{"format": 9, "snapshot": {}}', "format 9")):
        with pytest.raises(SnapshotError, match=found):
            Snapshot.from_bytes(data)


@pytest.mark.parametrize("name", ["../CURRENT", "a/b", "/etc/passwd", "..", ".", "", "C:\\x", "a\0", "a\n"])
def test_a_manifest_whose_file_is_a_path_is_refused(name):
    content = {
        "application_id": "app",
        "sub_topology": "s",
        "task": 0,
        "tasks": 1,
        "topology_hash": "",
        "query_id": "q",
    }
    numbers = dict.fromkeys(("version", "written_ms", "taken_ms"), 1)
    whole = Snapshot(**content, **numbers, offsets={}, origins={}, files=(SnapshotFile("CURRENT", 1, "0" * 64),))
    assert Snapshot.from_bytes(whole.to_bytes()) == whole
    for file in (SnapshotFile(name, 1, "0" * 64), SnapshotFile("CURRENT", 1, name)):
        with pytest.raises(SnapshotError, match="is not a file of a database"):
            Snapshot.from_bytes(replace(whole, files=(file,)).to_bytes())


def test_a_task_that_had_to_read_its_whole_changelog_takes_a_snapshot_at_once(tmp_path):
    life = Life(tmp_path, steps=10**9)
    assert [bool(life.step()) for _ in range(3)] == [True, False, False]
    # The disk with state and snapshots is lost; the process goes on, and knows when it took the last snapshot.
    shutil.rmtree(tmp_path / "first")
    shutil.rmtree(tmp_path / "snapshots")
    assert life.step().version == 4
    assert life.step() is None, "the next one only after the interval"
