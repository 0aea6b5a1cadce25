"""Ways to start the command, and what it says to somebody who has no broker yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_package_is_the_command() -> None:
    run = subprocess.run([sys.executable, "-m", "streams", "--help"], capture_output=True, text=True, check=True)
    assert "Usage: python -m streams [OPTIONS] COMMAND" in run.stdout


def test_the_hint_to_start_a_broker_names_the_data_folder_that_was_given(streams, tmp_path: Path) -> None:
    result = streams("topic", "list", "--data-dir", tmp_path / "kafka")
    assert result.exit_code == 1
    assert f"Start one with: streams broker start --data-dir {tmp_path / 'kafka'}; or name a cluster" in result.output


def test_the_hint_to_start_a_broker_is_short_for_the_usual_data_folder(streams) -> None:
    assert "Start one with: streams broker start; or name a cluster" in streams("topic", "list").output
