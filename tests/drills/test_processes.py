"""Drills interrupt what they start, even where they were started so that they ignore Ctrl-C themselves."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from streams.drills.processes import CommandProcess


@pytest.fixture(params=["terminal", "background of a script"])
def started_from(request: pytest.FixtureRequest):
    before = signal.getsignal(signal.SIGINT)
    if request.param != "terminal":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("started_from")
def test_a_command_can_be_interrupted(tmp_path: Path) -> None:
    process = CommandProcess([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], tmp_path)
    try:
        process.wait_until(lambda: "up" in process.log(), "it is up", 30)
        process.interrupt()
        assert process.ended(20) != 0
        assert "KeyboardInterrupt" in process.log()
    finally:
        process.close()
