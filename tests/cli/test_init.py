"""`streams init` makes a project that works as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_test_of_a_new_project_passes(streams, tmp_path: Path) -> None:
    assert streams("init", "shop").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "shop").iterdir()) == [
        "README.md",
        "app.py",
        "streams.toml",
        "test_app.py",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path / "shop", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_a_new_project_has_nothing_to_complain_of(streams) -> None:
    streams("init", "shop")
    checked = streams("check", "shop/app.py")
    assert (checked.exit_code, "nothing was found" in checked.output) == (0, True), checked.output
    assert (
        'application_id = "shop"  # shop/streams.toml'
        in streams("config", "shop/app.py", "-c", "shop/streams.toml", "--explain").output
    )


def test_the_program_of_a_new_project_is_a_command_of_its_own(streams, tmp_path: Path) -> None:
    streams("init", "shop")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "app.py", "--base-dir", "/dev/null/nowhere", "-b", "127.0.0.1:1"]
    done = subprocess.run(command, cwd=tmp_path / "shop", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr


def test_a_project_in_the_present_folder_needs_no_change_of_folder(streams, tmp_path: Path) -> None:
    made = streams("init", ".")
    assert f"{tmp_path.name}: app.py" in made.output
    assert "cd ." not in made.output
    assert "next: cd shop, then pytest" in streams("init", "shop").output


@pytest.mark.parametrize(("folder", "said"), [("shop", "shop has app.py already"), ("my shop", "cannot be one")])
def test_a_project_that_cannot_be_created_is_refused_with_the_reason(
    streams, tmp_path: Path, folder: str, said: str
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "app.py").touch()
    result = streams("init", folder)
    assert (result.exit_code, said in result.output) == (1, True), result.output
