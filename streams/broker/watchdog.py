"""Ends a broker when the process that started it has died, for whatever reason (even SIGKILL).

The watchdog runs as a separate script and imports nothing of the project, so that it costs little. Commands are lines on
its standard input: `watch PID`, `forget PID`, and `release` (exit and end nothing). The end of the input, or a changed parent
process, means that the starter is dead: all processes that are still watched are then ended.
"""

import os
import select
import signal
import sys
import time

_POLL_S = 0.5
_GRACE_S = 5.0


def main() -> None:
    """Executes the commands on standard input until released or orphaned."""
    starter = int(sys.argv[1])
    watched: set[int] = set()
    pending = b""
    while os.getppid() == starter:
        if not select.select([0], [], [], _POLL_S)[0]:
            continue
        data = os.read(0, 4096)
        if not data:
            break
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            word, _, pid = line.partition(b" ")
            if word == b"release":
                return
            if word == b"watch":
                watched.add(int(pid))
            else:
                watched.discard(int(pid))
    _end(watched)


def _end(pids: set[int]) -> None:
    """Ends the processes: by SIGTERM first, and by SIGKILL after a grace period."""
    for pid in pids:
        _kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline and any(_kill(pid, 0) for pid in pids):
        time.sleep(0.1)
    for pid in pids:
        _kill(pid, signal.SIGKILL)


def _kill(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main()
