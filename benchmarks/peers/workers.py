"""Runs a peer's program in as many processes as the configuration's `threads` says: `workers.py PROGRAM CONFIG`.

Python peers share their work between the members of a consumer group, and one process has one interpreter lock. SIGTERM goes
on to all processes; when one of them ends by itself, all end. The peers' environments run it: it uses the standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_S = 0.2


def main(program: str, config: str) -> int:
    """Starts the processes, and waits for their end.

    Returns:
        The exit code of the first process that has ended.
    """
    count = json.loads(Path(config).read_text(encoding="utf-8"))["threads"]
    workers: list[subprocess.Popen[bytes]] = []
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        for worker in workers:
            worker.terminate()

    signal.signal(signal.SIGTERM, stop)
    for number in range(count):
        environment = {**os.environ, "WORKER": str(number), "WORKERS": str(count)}
        workers.append(subprocess.Popen([sys.executable, program, config], env=environment))
    if stopped:  # before all of them were there
        stop()
    while all(worker.poll() is None for worker in workers):
        time.sleep(POLL_S)
    first = next(worker.returncode for worker in workers if worker.returncode is not None)
    stop()
    for worker in workers:
        worker.wait()
    return first


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
