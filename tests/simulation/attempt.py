"""A task attempt that can pause at any event while others run, and resume later, even as a zombie.

Each attempt runs in its own thread, but only one at a time: the caller of `resume` waits until the attempt ends or pauses. So
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
        name: The name for the log.
        task: The number of the task.
        work: The work of the attempt, which returns its result.
        may_pause: Whether the attempt may pause; if not, it needs no thread.

    Attributes:
        stores: The local stores of the attempt: of one task, or of all of a slot.
        live: Whether it is of a slot in live execution.
        ended: Whether the attempt has ended, in any way.
        dead: Whether its process has died.
        result: The result of the work.
        error: The error that ended the attempt.
    """

    def __init__(self, name: str, task: int, work: Callable[[Attempt], Any], may_pause: bool) -> None:
        self.name = name
        self.task = task
        self.stores: list[object] = []
        self.live = False
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
        """Whether the attempt can pause."""
        return self._thread is not None

    def resume(self) -> None:
        """Runs the attempt until it ends or pauses."""
        if self._thread is None:
            self._run()
            return
        if not self._thread.is_alive():
            self._thread.start()
        self._go.release()
        self._stands.acquire()

    def pause(self) -> None:
        """Pauses until the next `resume`; called from within the attempt."""
        self._stands.release()
        self._go.acquire()
        if self.dead:
            raise Crash("killed while it stood still")

    def kill(self) -> None:
        """Kills the attempt's process, at whatever event it has paused."""
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
