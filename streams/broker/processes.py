"""Operating system processes, identified by id and start time, so that a reused id is never mistaken for the original."""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class ProcessId:
    """The unique identity of a process: its id and its start time.

    Attributes:
        pid: The process id, which the system reuses some time after the process has ended.
        started: The start time in the system's format; only for comparisons.
    """

    pid: int
    started: str

    def is_alive(self) -> bool:
        """Whether this very process is still running; a zombie is not."""
        return started_at(self.pid) == self.started

    def send(self, signal_number: signal.Signals) -> None:
        """Sends a signal, unless the process has ended."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal_number)

    def wait(self, timeout_s: float) -> bool:
        """Waits for the process to end, even if it is not a child of this one."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True


def started_at(pid: int) -> str | None:
    """Returns when the process started, in the system's own terms; None when there is no such live process."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # The command, second in the line, is in brackets and may itself contain spaces and brackets.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        state, start_ticks = fields[0], fields[19]
        return None if state in "ZX" else start_ticks
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state_text, _, start = answer.stdout.strip().partition(" ")
    return start.strip() if start and not state_text.startswith("Z") else None
