"""Named crash points of a step, at which a fault test may kill or freeze the process like a crash or a stalled machine.

`STREAMS_FAULT="after_commit@0:3"` kills the process (SIGKILL, no clean-up) when task 0 reaches `after_commit` in its step
to version 3. `*`, or leaving the part out, matches any task or version. `freeze marker_sent@0:3` stops the process instead
(SIGSTOP): a zombie, which the test continues later (SIGCONT). Several faults, separated by commas, happen in order: each is armed
once the previous one has happened.

`STREAMS_FAULT_ONCE=FILE` makes each fault happen once. Just before a fault, a line `PID POINT@TASK:VERSION` is appended to
the file; a process that finds its line there continues. The test reads the file to see which faults happened in which processes.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

POINTS = (
    # Nothing of this step has left the process; an older attempt's transaction may still be open.
    "before_init",  # the producer does not exist yet
    "after_init",  # every older attempt is fenced and its transaction decided
    "after_tail_read",  # the last marker is known
    "after_decide",  # whether the step runs or is already committed is known as well
    # The local store is on its way to the marker; a crash leaves it older, never newer than the changelog.
    "restore_halfway",  # some chunks or stores are on disk, others are not
    "restore_read",  # all is read and verified, nothing of the last write is done
    "restore_done",  # the store is at the marker, on disk
    # Results exist in memory only.
    "process_halfway",  # some records of the task are processed
    "process_done",  # all are
    # A transaction is open: what was sent is in the log, and invisible until the commit; the next attempt aborts it.
    "after_begin",  # nothing is sent yet
    "outputs_half_sent",  # some results are on the broker (flushed, when a fault is armed here)
    "outputs_sent",  # all results are
    "changelog_half_sent",  # and some changes of the state
    "changelog_sent",  # and all of them
    "marker_sent",  # and the commit marker
    "before_commit",  # and the source offsets: only the commit is missing
    # Kafka has the whole step; Spark and the local store follow when the step is asked for again.
    "after_commit",  # the local store is a step behind
    "store_half_applied",  # its write has begun
    "store_applied",  # the local store has the step, on disk
    "before_report",  # Spark's copy of the marker is set in memory but not yet reported
    "report_given",  # Spark has taken the report; the task runs to its end
)

SNAPSHOT_POINTS = (
    # A snapshot of the step is under way, if one was due; from the second point on in a thread, while further steps may run.
    "snapshot_taken",  # RocksDB's checkpoint is on the local disk
    "snapshot_half_stored",  # some files are stored, and no manifest names them
    "snapshot_stored",  # the manifest is, too; older snapshots and their files are not collected yet
)
"""Points that are only reached with snapshots. They have no fixed order with the points of later steps."""

_FAULT = re.compile(r"(?:(kill|freeze) )?(\w+)(?:@(\*|\d+)(?::(\*|\d+))?)?")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: the crash point, the task and version, and whether the process is killed or frozen."""

    point: str
    task: str = "*"
    version: str = "*"
    freeze: bool = False

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Reads `[kill|freeze] POINT[@TASK[:VERSION]]`."""
        match = _FAULT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"STREAMS_FAULT has {text.strip()!r}, expected [kill|freeze] POINT[@TASK[:VERSION]]")
        how, point, task, version = match.groups()
        if point not in (known := POINTS + SNAPSHOT_POINTS):
            raise ValueError(f"STREAMS_FAULT names the unknown crash point {point!r}; known: {', '.join(known)}")
        return cls(point, task or "*", version or "*", how == "freeze")

    def is_at(self, point: str, task: int, version: int) -> bool:
        """Whether the fault happens at this point."""
        return self.point == point and self.task in ("*", str(task)) and self.version in ("*", str(version))

    def strike(self) -> None:
        """Kills or stops this process. A stopped process resumes here once it is continued."""
        os.kill(os.getpid(), signal.SIGSTOP if self.freeze else signal.SIGKILL)


class Faults(Protocol):
    """The object that a step calls at each crash point. `CrashPoints` kills the process; a test driver only simulates that."""

    def armed(self, point: str, task: int, version: int) -> bool:
        """Whether `reach` would cause a fault here."""

    def reach(self, point: str, task: int, version: int) -> None:
        """Causes the fault that is due at this point, if any."""


@dataclass(frozen=True, slots=True)
class CrashPoints:
    """The crash points of a process; by default nothing ever crashes. `reach` costs one comparison.

    Attributes:
        faults: The faults, in the order in which they should happen.
        once: The file that records which faults have happened; None = the only fault happens each time.
    """

    faults: tuple[Fault, ...] = ()
    once: Path | None = None

    @classmethod
    def from_environment(cls) -> CrashPoints:
        """Reads `STREAMS_FAULT` and `STREAMS_FAULT_ONCE`."""
        text = os.environ.get("STREAMS_FAULT")
        if not text:
            return cls()
        faults = tuple(map(Fault.parse, text.split(",")))
        once = os.environ.get("STREAMS_FAULT_ONCE")
        if len(faults) > 1 and not once:
            raise ValueError(
                "STREAMS_FAULT names several faults: STREAMS_FAULT_ONCE must name the file that keeps their order"
            )
        return cls(faults, Path(once) if once else None)

    def armed(self, point: str, task: int, version: int) -> bool:
        """Whether `reach` would cause a fault here. Only then is the data that the point promises to be durable flushed first."""
        if not self.faults or not any(fault.is_at(point, task, version) for fault in self.faults):
            return False
        due = self._due(self._happened())
        return due is not None and due.is_at(point, task, version)

    def reach(self, point: str, task: int, version: int) -> None:
        """Kills or freezes the process if a fault is due at this point."""
        if not self.faults or not any(fault.is_at(point, task, version) for fault in self.faults):
            return
        fault = self._claim(point, task, version)
        if fault is not None:
            fault.strike()

    def _due(self, happened: Sequence[str]) -> Fault | None:
        """The next fault, given the lines of the faults that have happened."""
        return self.faults[len(happened)] if len(happened) < len(self.faults) else None

    def _happened(self) -> list[str]:
        return self.once.read_text().splitlines() if self.once is not None and self.once.exists() else []

    def _claim(self, point: str, task: int, version: int) -> Fault | None:
        """Claims the fault that is due at this point, if any, so that no other process claims it too."""
        if self.once is None:
            return self._due([])
        # Several tasks may reach their points at once; the lock makes reading and writing atomic.
        with self.once.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            due = self._due(self._happened())
            if due is None or not due.is_at(point, task, version):
                return None
            with self.once.open("a") as file:
                file.write(f"{os.getpid()} {point}@{task}:{version}\n")
            return due
