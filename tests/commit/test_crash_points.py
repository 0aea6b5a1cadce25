"""Crash points: where, for whom, in which order; a frozen process goes on when it is continued."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from state.commit.crash_points import POINTS, SNAPSHOT_POINTS, CrashPoints, Fault


def in_a_child(work: Callable[[], None]) -> int:
    """Runs something in a forked process; its process id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def end_of(child: int) -> int | None:
    """The signal that ended a child, None if it came to its end."""
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], CrashPoints]:
    def from_environment(text: str) -> CrashPoints:
        monkeypatch.setenv("STREAMS_FAULT", text)
        monkeypatch.setenv("STREAMS_FAULT_ONCE", str(tmp_path / "once"))
        return CrashPoints.from_environment()

    return from_environment


def test_nothing_happens_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMS_FAULT", raising=False)
    nowhere = CrashPoints.from_environment()
    for point in POINTS:
        assert not nowhere.armed(point, 0, 1)
        nowhere.reach(point, 0, 1)


@pytest.mark.parametrize("point", [*POINTS, *SNAPSHOT_POINTS])
def test_it_dies_there_and_nowhere_else(point: str, tmp_path: Path) -> None:
    crash = CrashPoints((Fault(point, "0", "3"),))
    survived = tmp_path / "survived"

    def work() -> None:
        for other in (*POINTS, *SNAPSHOT_POINTS):
            crash.reach(other, 1, 3)
            crash.reach(other, 0, 2)
            if other != point:
                crash.reach(other, 0, 3)
        survived.touch()
        crash.reach(point, 0, 3)
        survived.unlink()

    assert end_of(in_a_child(work)) == signal.SIGKILL
    assert survived.exists(), "it died elsewhere"


def test_faults_happen_once_and_in_their_order(faults: Callable[[str], CrashPoints], tmp_path: Path) -> None:
    crash = faults("after_init@1, kill after_commit@*:4")
    crash.reach("after_commit", 0, 4)  # not its turn
    assert not crash.armed("after_commit", 0, 4)
    assert crash.armed("after_init", 1, 9)
    first = in_a_child(lambda: crash.reach("after_init", 1, 9))
    assert end_of(first) == signal.SIGKILL
    crash.reach("after_init", 1, 9)
    assert crash.armed("after_commit", 0, 4)
    second = in_a_child(lambda: crash.reach("after_commit", 0, 4))
    assert end_of(second) == signal.SIGKILL
    crash.reach("after_commit", 0, 4)
    assert (tmp_path / "once").read_text() == f"{first} after_init@1:9\n{second} after_commit@0:4\n"


def test_a_frozen_process_goes_on(faults: Callable[[str], CrashPoints], tmp_path: Path) -> None:
    crash = faults("freeze before_commit@0")

    def work() -> None:
        crash.reach("before_commit", 0, 1)
        (tmp_path / "went on").touch()

    child = in_a_child(work)
    _, status = os.waitpid(child, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert not (tmp_path / "went on").exists()
    os.kill(child, signal.SIGCONT)
    assert end_of(child) is None
    assert (tmp_path / "went on").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [("nowhere@0:1", "unknown crash point 'nowhere'"), ("after_init@x", "expected"), ("stop after_init", "expected")],
)
def test_what_cannot_be_read_is_refused(faults: Callable[[str], CrashPoints], text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        faults(text)


def test_an_order_needs_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMS_FAULT", "after_init,after_commit")
    monkeypatch.delenv("STREAMS_FAULT_ONCE", raising=False)
    with pytest.raises(ValueError, match="several faults"):
        CrashPoints.from_environment()
