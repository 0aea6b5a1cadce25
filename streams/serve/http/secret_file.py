"""`SecretFile`: the content of a file with secrets, which is read again when the file changes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from streams.errors import ConfigError

log = logging.getLogger(__name__)

_LOOK_S = 1.0
"""How often the file is looked at."""
T = TypeVar("T")


class SecretFile(Generic[T]):
    """The content of a file with secrets, which is read again when the file changes.

    Args:
        path: The file.
        option: The option that names it, for messages.
        read: Parses the file; raises `ConfigError` if its content cannot be used.
        clock_s: A monotonic clock.

    Attributes:
        content: The content as of the last look.

    Raises:
        ConfigError: The file cannot be read, or has no usable content.
    """

    def __init__(
        self, path: Path, option: str, read: Callable[[Path], T], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._option, self._read, self._clock_s = path, option, read, clock_s
        self._stamp = self._stamped()
        self._looked_s = clock_s()
        self.content = read(path)

    def look(self) -> bool:
        """Reads the file again if it has changed, at most once a second; returns whether the content is new.

        A file that cannot be used, perhaps because only half of it is written, changes nothing: the next look tries again.
        """
        now_s = self._clock_s()
        if now_s - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now_s
        try:
            stamp = self._stamped()
            if stamp == self._stamp:
                return False
            self.content = self._read(self._path)
        except ConfigError as error:
            log.error("the content of %s from before remains in effect: %s", self._option, error)
            return False
        self._stamp = stamp
        log.info("%s was read again: %s", self._option, self._path)
        return True

    def _stamped(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise ConfigError(f"{self._option} {self._path} cannot be read: {error.strerror}") from error
        return found.st_ino, found.st_mtime_ns, found.st_size
