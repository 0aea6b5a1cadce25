"""Ends a broker when the process that started it is gone, however that one died (even by SIGKILL).

Run as a script of its own, importing nothing of the project so that it costs little. It is told what to do by lines
on its standard input: `watch PID`, `forget PID`, and `release` (all is well, just end). The end of the input, or
another parent than the first, mean that the starter is dead: whatever is still watched is then ended.
"""

import os
import select
import signal
import sys
import time

_POLL_S = 0.5
_GRACE_S = 5.0


def main() -> None:
    """Obeys the lines on standard input until released or orphaned."""
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
    """Ends the processes: gently at first, and for good after a grace time."""
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
