"""A file lock between processes, so that two commands never fetch, start or stop the same thing at once."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.1


@contextmanager
def file_lock(path: Path, timeout_s: float) -> Iterator[None]:
    """An exclusive lock on a file, for the `with` block; the operating system releases it if the process dies.

    Raises:
        TimeoutError: Another process still has the lock after that time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"another process has held {path} for {timeout_s:.0f} s") from None
                time.sleep(_POLL_S)
        yield
