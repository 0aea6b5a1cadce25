"""The folder that `streams restore` writes to: a new one, an empty one, or one that it has left in part."""

import pytest

from streams.cli.restore import restore_folder
from streams.errors import ConfigError


def interrupted(given, base):
    folder = None
    try:
        with restore_folder(given, base, "app") as folder:
            (folder / "part").touch()
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return folder


def test_an_interrupted_restore_says_how_to_continue_and_continues(tmp_path, capsys):
    folder = interrupted(None, tmp_path)
    assert f"--into {folder} continues" in capsys.readouterr().err
    with restore_folder(folder, tmp_path, "app") as again:
        assert (again / "part").exists()
    with pytest.raises(ConfigError, match="is not an empty folder"), restore_folder(folder, tmp_path, "app"):
        pass


def test_another_application_does_not_continue_there(tmp_path):
    folder = interrupted(tmp_path / "here", tmp_path)
    with pytest.raises(ConfigError, match="is not an empty folder"), restore_folder(folder, tmp_path, "other"):
        pass


def test_each_restore_without_a_folder_gets_one_of_its_own(tmp_path):
    names = []
    for _ in range(2):
        with restore_folder(None, tmp_path, "app") as folder:
            names.append(folder.name)
    assert names == ["restored-app-1", "restored-app-2"]


def test_a_folder_that_is_only_needed_meanwhile_goes(tmp_path):
    with restore_folder(None, tmp_path, "app", "verify", keep=False) as folder:
        pass
    assert not folder.exists()
    with restore_folder(tmp_path / "mine", tmp_path, "app", "verify", keep=False):
        pass
    assert (tmp_path / "mine").exists()
