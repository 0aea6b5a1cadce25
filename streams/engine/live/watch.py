"""Reports where a slot is in the user's program if one step takes long: a function that hangs holds up all tasks of its slot."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streams.engine.step.step import event_of
from streams.logs.events import SLOW_STEP
from streams.users_code import calling_line

SLOW_AFTER_S = 10.0
"""A step that takes this long is reported, s, and again each time it has taken twice as long."""
_LOOK_EVERY_S = 1.0


class Watch:
    """Watches the thread that created it from another thread, within a `with` block.

    Args:
        tell: Called with the sub-topology, the task and the event.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self, tell: Callable[[str, int, Mapping[str, Any]], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._watched = threading.get_ident()
        self._step: tuple[str, int, float] | None = None
        self._told_s = 0.0
        self._closed = threading.Event()

    def __enter__(self) -> Watch:
        threading.Thread(target=self._run, name="live-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    @contextmanager
    def step(self, sub: str, task: int) -> Iterator[None]:
        """Watches the step that runs in the block."""
        self._step = sub, task, self._clock()
        try:
            yield
        finally:
            self._step = None

    def look(self) -> None:
        """Reports the step if it takes long."""
        step = self._step
        if step is None:
            self._told_s = 0.0
            return
        sub, task, began = step
        seconds = self._clock() - began
        if seconds < max(SLOW_AFTER_S, 2 * self._told_s):
            return
        self._told_s = seconds
        frame = sys._current_frames().get(self._watched)
        line = calling_line(frame) or "the engine"
        message = f"task {task} has worked on one step for {seconds:.0f} s and is in {line}; the other tasks of its process wait"
        self._tell(sub, task, event_of(SLOW_STEP, message, seconds=round(seconds, 1), line=line))

    def _run(self) -> None:
        while not self._closed.wait(_LOOK_EVERY_S):
            self.look()
