"""Nobody but the owner may look into local state, a restore, or what is kept beside a checkpoint."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from state.restore.directory import StateDirectory
from state.stores.dump import read_task_store
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import open_task_store
from state.tables.files import make_private
from streams import StreamsBuilder
from streams.application.owned_topics import write_manifest
from streams.topology.plan import build_plan


@pytest.fixture(autouse=True)
def open_handed() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_and_the_missing_ones_above_it_are_private(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(0o755)
    folder = tmp_path / "there" / "a" / "b"
    make_private(folder)
    make_private(folder)
    assert [mode(path) for path in (folder, folder.parent, folder.parent.parent)] == [0o700, 0o700, 0o755]


def test_the_state_of_a_task_is_private(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state").task("app", "in", 0)
    open_task_store(directory.path, [StoreSpec("table", StoreKind.TIMESTAMPED_KEY_VALUE)]).close()
    folders = [path for path in (tmp_path / "state", *(tmp_path / "state").rglob("*")) if path.is_dir()]
    assert directory.path / "db" in folders
    assert {mode(path) for path in folders} == {0o700}


def test_links_for_a_reader_are_private_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    specs = [StoreSpec("table", StoreKind.TIMESTAMPED_KEY_VALUE)]
    directory = StateDirectory(tmp_path / "state").task("app", "in", 0)
    open_task_store(directory.path, specs).close()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with read_task_store(directory.path, specs):
        assert [mode(path) for path in tmp_path.glob("streams-state-*/db")] == [0o700]
    assert not caplog.records, "nothing had to be mended, so there is nothing to say"


def test_what_is_kept_beside_the_checkpoint_is_private(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    file = write_manifest(build_plan(builder.build(), "app"), str(tmp_path / "checkpoint" / "app"))
    assert file is not None
    assert (mode(file), mode(file.parent), mode(file.parent.parent)) == (0o600, 0o700, 0o700)
