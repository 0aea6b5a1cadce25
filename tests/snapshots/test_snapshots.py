"""Snapshots are taken after steps, restored instead of the changelog's first part, and never trusted more than local state."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sys
import types
from dataclasses import replace
from functools import partial
from pathlib import Path

import orjson
import pytest

from state.changelog import DELETE_RETENTION_MS, changelog_topic
from state.errors import SnapshotError, StateCorruptedError
from state.restore import snapshots as task_snapshots
from state.restore import taking
from state.restore.copies import DATABASE
from state.restore.place import TaskPlace
from state.restore.plan import Action
from state.restore.snapshot_location import FsspecFolder, LocalFolder, open_location
from state.restore.snapshots import Snapshot, SnapshotFile
from state.restore.task_stores import WorkerMemory
from state.restore.verify import verify_task
from state.stores.dump import read_task_store
from state.stores.position import StoreOrigin, read_meta
from state.stores.task_store import open_task_store
from state.tables import open_tables as opening
from state.tables.native_library import find_library
from state.tables.open_tables import OpenTables
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


# --- A worker that keeps databases open takes copies over, notices deleted and damaged state, and is not disturbed by readers.

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


# --- Where snapshots can be kept: a folder, on this disk or another one, and any file system of fsspec.


class ObjectStore:
    """What snapshots use of `fsspec.AbstractFileSystem`, in a dictionary."""

    def __init__(self):
        self.objects = {}
        self.uploads = 0

    def invalidate_cache(self):
        pass

    def makedirs(self, path, exist_ok):
        assert exist_ok

    def ls(self, path, detail):
        found = {
            f"{path}/{name[len(path) + 1 :].split('/')[0]}" for name in self.objects if name.startswith(path + "/")
        }
        if not found:
            raise FileNotFoundError(path)
        return sorted(found)

    def info(self, path):
        return {"size": len(self.cat_file(path))}

    def cat_file(self, path):
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]

    def pipe_file(self, path, data):
        self.objects[path] = data

    def put_file(self, source, path):
        self.uploads += 1
        with open(source, "rb") as file:
            self.objects[path] = file.read()

    def get_file(self, path, target):
        data = self.cat_file(path)
        with open(target, "wb") as file:
            file.write(data)

    def rm_file(self, path):
        self.cat_file(path)
        del self.objects[path]


@pytest.fixture
def bucket(monkeypatch):
    """An object store that fsspec opens for `bucket://` URLs."""
    store = ObjectStore()
    core = types.SimpleNamespace(url_to_fs=lambda url: (store, url.partition("://")[2]))
    monkeypatch.setitem(sys.modules, "fsspec", types.ModuleType("fsspec"))
    monkeypatch.setitem(sys.modules, "fsspec.core", core)
    return store


def test_an_object_store_serves_as_a_folder_does(tmp_path, bucket):
    life = Life(tmp_path, location="bucket://snapshots/here", keep=2, grace_ms=3_000)
    for _ in range(8):
        life.step()
    report = life.restored("second")
    assert report.copy == "the snapshot of step 8 in bucket://snapshots/here/app/orders/0"
    files = [path for path in bucket.objects if "/files/" in path]
    named = {file.sha256 for snapshot in life.place.readable() for file in snapshot.files}
    assert named <= {path.rsplit("/", 1)[1] for path in files}
    assert bucket.uploads > len(files), "old files are gone"
    assert len([path for path in bucket.objects if "/manifests/" in path]) == 2


def test_a_half_uploaded_object_is_uploaded_again(tmp_path, bucket):
    life = Life(tmp_path, location="bucket://snapshots")
    first = life.step()
    table = next(file for file in first.files if file.name.endswith(".sst"))
    path = next(path for path in bucket.objects if path.endswith(table.sha256))
    bucket.objects[path] = bucket.objects[path][:-1]
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(SnapshotError, match="is damaged"):
        life.place.fetch(first, into)
    assert table in life.step().files
    assert len(bucket.objects[path]) == table.size


def test_a_folder_on_another_disk_gets_copies(tmp_path, monkeypatch):
    def other_disk(source, target):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_disk)
    life = Life(tmp_path)
    for _ in range(3):
        life.step()
    assert life.restored("second").copy
    assert not list((tmp_path / "snapshots").rglob("*.part"))


def test_a_url_without_its_library_is_refused_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(SnapshotError, match=r"s3://bucket/path.*streams-on-spark\[snapshots\]") as caught:
        open_location("s3://user:secret@bucket/path?token=secret")
    assert "secret" not in str(caught.value)


def test_a_url_of_an_unknown_kind_is_refused(monkeypatch, bucket):
    def unknown(url):
        raise ValueError("Protocol not known: nowhere")

    monkeypatch.setattr(sys.modules["fsspec.core"], "url_to_fs", unknown)
    with pytest.raises(SnapshotError, match="Protocol not known"):
        open_location("nowhere://x")


def test_folders_need_no_library(tmp_path):
    for name in (str(tmp_path), f"file://{tmp_path}"):
        location = open_location(name)
        assert isinstance(location, LocalFolder)
        assert str(location) == str(tmp_path)


def test_a_folder_and_an_object_store_behave_alike(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"content")
    for location in (LocalFolder(tmp_path / "root"), FsspecFolder(ObjectStore(), "root/", "shown")):
        assert location.names("a") == []
        assert location.size("a/file") is None
        location.remove("a/file")
        location.put(source, "a/file")
        location.put(source, "a/file")
        location.write("a/other", b"text")
        assert location.names("a") == ["file", "other"]
        assert (location.size("a/file"), location.read("a/other")) == (7, b"text")
        location.get("a/file", tmp_path / "target")
        assert (tmp_path / "target").read_bytes() == b"content"
        with pytest.raises(FileNotFoundError):
            location.get("a/none", tmp_path / "none")
        location.remove("a/file")
        assert location.names("a") == ["other"]
    assert task_snapshots.TaskSnapshots(LocalFolder(tmp_path / "root"), "a", "b", 0).names() == []
