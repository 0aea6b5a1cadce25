"""Folders and files of state and checkpoints are their owner's alone, from the moment they exist."""

import logging
import os
import socket
import stat
import struct
from pathlib import Path

import pytest

from state.errors import ForeignFolderError
from state.restore.directory import StateDirectory
from state.tables.files import check_owner, make_private, private_temporary_folder, write_private
from state.tables.rocks_common import accepted, listening_socket, request_release
from streams.checkpoint.files import LocalFiles
from streams.config import StreamsConfig
from streams.driver.runner import StreamsApplication
from tests.security.secured import counts_by_country

_SOMEBODY = 12_345


@pytest.fixture(autouse=True)
def _everybody_may_read() -> object:
    """The usual umask of a careless shell: what is not private on purpose is not private."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_and_its_missing_parents_are_private(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b")
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (0o700, 0o700)


def test_an_existing_folder_loses_the_rights_of_others_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "open").mkdir(0o755)
    with caplog.at_level(logging.WARNING):
        make_private(tmp_path / "open")
        make_private(tmp_path / "open")
    assert mode(tmp_path / "open") == 0o700
    assert [record.getMessage() for record in caplog.records] == [
        f"other users had access to {tmp_path / 'open'} (mode 755); now only its owner has"
    ]


def test_a_shared_folder_such_as_tmp_stays_shared(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    make_private(shared)
    assert mode(shared) == 0o1777


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    os.chown(foreign, _SOMEBODY, _SOMEBODY)
    with pytest.raises(ForeignFolderError, match="belongs to the user with id 12345"):
        make_private(foreign)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a link to somebody else")
def test_a_link_that_somebody_else_has_put_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    check_owner(tmp_path / "link")
    os.chown(tmp_path / "link", _SOMEBODY, _SOMEBODY, follow_symlinks=False)
    with pytest.raises(ForeignFolderError):
        check_owner(tmp_path / "link")


def test_a_file_is_never_open_to_others_not_even_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    replace = Path.replace

    def seen(self: Path, target: Path) -> Path:
        modes.append(mode(self))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", seen)
    write_private(tmp_path / "secret", b"x")
    assert modes == [0o600]
    assert (tmp_path / "secret").read_bytes() == b"x"
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / f".secret.{os.getpid()}.tmp").symlink_to(victim)
    write_private(tmp_path / "secret", b"x")
    assert victim.read_text() == "untouched"
    assert not (tmp_path / "secret").is_symlink()


def test_files_of_a_checkpoint_are_private(tmp_path: Path) -> None:
    LocalFiles(str(tmp_path)).write("sub/first-batch.json", b"{}")
    assert (mode(tmp_path / "sub"), mode(tmp_path / "sub" / "first-batch.json")) == (0o700, 0o600)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
@pytest.mark.parametrize("level", ["", "app", "app/sub", "app/sub/3"])
def test_a_task_whose_folder_or_a_parent_of_it_belongs_to_somebody_else_is_refused(tmp_path: Path, level: str) -> None:
    directory = StateDirectory(tmp_path / "state").task("app", "sub", 3)
    directory.check_owners()
    directory.path.mkdir(parents=True)
    directory.check_owners()
    os.chown(tmp_path / "state" / level, _SOMEBODY, _SOMEBODY)
    with pytest.raises(ForeignFolderError):
        directory.check_owners()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
@pytest.mark.parametrize("folder", ["state", "checkpoint"])
def test_a_start_with_a_folder_of_somebody_else_is_refused_before_anything_is_asked_or_made(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / folder).mkdir()
    os.chown(tmp_path / folder, _SOMEBODY, _SOMEBODY)
    config = StreamsConfig(
        application_id="app",
        bootstrap_servers="127.0.0.1:1",
        state_dir=tmp_path / "state",
        checkpoint_dir=str(tmp_path / "checkpoint"),
    )
    with pytest.raises(ForeignFolderError):
        StreamsApplication(counts_by_country(), config).run()
    assert [path.name for path in tmp_path.rglob("*")] == [folder]


def test_a_request_to_release_a_database_counts_only_from_the_same_user_or_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = listening_socket(tmp_path)
    assert listener is not None
    with listener:
        for asked_by, counts in ((os.getuid(), True), (_SOMEBODY, os.getuid() == _SOMEBODY)):
            monkeypatch.setattr(
                socket.socket, "getsockopt", lambda *_, uid=asked_by: struct.pack("3i", os.getpid(), uid, 0)
            )
            request_release(tmp_path)
            assert accepted(listener) is counts


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_temporary_folder_whose_name_somebody_else_has_taken_gets_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"files-{os.getuid()}").mkdir()
    os.chown(tmp_path / f"files-{os.getuid()}", _SOMEBODY, _SOMEBODY)
    folder = private_temporary_folder("files")
    private_temporary_folder.cache_clear()
    assert folder.name != f"files-{os.getuid()}"
    assert (folder.parent, mode(folder)) == (tmp_path, 0o700)
