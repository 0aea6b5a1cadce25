"""The engine's own errors for RocksDB's, which are all plain texts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from state.errors import StateCorruptedError, StateError, StateLockedError
from state.tables.release import request_release

_Opened = TypeVar("_Opened")
# A process that only keeps a database open closes it within milliseconds; another one has a step to end.
_FIRST_RETRY_S, _LAST_RETRY_S = 0.002, 0.05
# The text of RocksDB's lock error, and of no other: a path or "block checksum mismatch" contains "lock" too.
_LOCKED = ("While lock file", "lock hold by current process")


def open_when_released(location: str, lock_timeout_s: float, attempt: Callable[[], _Opened]) -> _Opened:
    """What `attempt` opens, repeated while another process has the database open.

    Raises:
        StateLockedError: It was not released in time.
        StateCorruptedError: The database is damaged.
    """
    deadline = time.monotonic() + lock_timeout_s
    retry_s = _FIRST_RETRY_S
    while True:
        try:
            return attempt()
        except Exception as error:
            text = str(error)
            if not _in_use(location, text):
                raise named_error(location, text, opening=True) from error
            if time.monotonic() >= deadline:
                raise StateLockedError(location, lock_timeout_s, text) from error
        # Each time, because a process listens only from the end of its first use on.
        request_release(Path(location))
        time.sleep(retry_s)
        retry_s = min(2 * retry_s, _LAST_RETRY_S)


def _in_use(location: str, text: str) -> bool:
    """Whether another process has the database open, or has had it open during the attempt.

    RocksDB renames and deletes its log files (`LOG`, `LOG.old.…`) before it takes the lock, and when it closes. So one that opens
    may look for a log file that one that closes has just deleted. This is no damage: the state is in other files.
    """
    return any(words in text for words in _LOCKED) or ("No such file" in text and f"{location}/LOG" in text)


def named_error(location: str, text: str, opening: bool = False) -> StateError:
    """The error for this text of RocksDB."""
    if "Corruption" in text or (opening and "No such file" in text):
        return StateCorruptedError(location, text)
    return StateError(
        f"the store in {location} could not be {'opened' if opening else 'used'}: {text}; check the disk's "
        f"free space and the folder's permissions"
    )


def closed_error(location: str) -> StateError:
    """The error for a use of a table after it was closed."""
    return StateError(f"the store in {location} is closed; open it again (this is an error in the caller)")


def closed_during_scan(location: str) -> StateError:
    """The error for reading on in a scan after the table was closed."""
    return StateError(f"the store in {location} was closed while a scan of it was still being read")
