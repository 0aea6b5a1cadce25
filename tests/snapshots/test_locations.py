"""Where snapshots can be kept: a folder, on this disk or another one, and any file system of fsspec."""

import errno
import os
import sys
import types

import pytest

from state.errors import SnapshotError
from state.restore import snapshots as task_snapshots
from state.restore.snapshot_location import FsspecFolder, LocalFolder, open_location
from tests.snapshots.life import Life


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
