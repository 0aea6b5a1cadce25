"""A task attempt: it can stand still at any event, while others go on, and go on later, wanted or not (a zombie).

Each runs in a thread of its own, but only one at a time: whoever resumes an attempt waits until it ends or stands still. So
a history is the same each time that it is played.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from streams.testing.simulation import Crash


class Attempt:
    """One try of a task.

    Args:
        name: for the log.
        task: number of the task.
        work: what it does; gives the result.
        may_pause: it may stand still; else it needs no thread.

    Attributes:
        stores: the local stores that it works with.
        ended: it has come to its end, in one way or another.
        dead: its process has died.
        result: what came of it.
        error: why it failed.
    """

    def __init__(self, name: str, task: int, work: Callable[[Attempt], Any], may_pause: bool) -> None:
        self.name = name
        self.task = task
        self.stores: object = None
        self.ended = self.dead = False
        self.result: Any = None
        self.error: Exception | None = None
        self._work = work
        self._thread = threading.Thread(target=self._in_thread, daemon=True) if may_pause else None
        self._go, self._stands = threading.Semaphore(0), threading.Semaphore(0)

    def __str__(self) -> str:
        return self.name

    @property
    def may_pause(self) -> bool:
        """Whether it can stand still."""
        return self._thread is not None

    def resume(self) -> None:
        """Runs until it ends or stands still."""
        if self._thread is None:
            self._run()
            return
        if not self._thread.is_alive():
            self._thread.start()
        self._go.release()
        self._stands.acquire()

    def pause(self) -> None:
        """Called from within: stands still until somebody resumes it."""
        self._stands.release()
        self._go.acquire()
        if self.dead:
            raise Crash("killed while it stood still")

    def kill(self) -> None:
        """Its process dies, wherever it stands."""
        self.dead = True
        if not self.ended and self._thread is not None and self._thread.is_alive():
            self.resume()
        self.ended = True

    def _in_thread(self) -> None:
        self._go.acquire()
        self._run()
        self._stands.release()

    def _run(self) -> None:
        try:
            self.result = self._work(self)
        except Crash:
            self.dead = True
        except Exception as error:
            self.error = error
        self.ended = True
