"""Ctrl-C and SIGTERM as requests to stop an application, instead of ending its process."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

Handler: TypeAlias = "Callable[[int, FrameType | None], Any] | signal.Handlers"

LOOK_FOR_SIGNALS_S = 0.2


@contextmanager
def stopped_by_signals(stop: Callable[[], object], again: Handler = signal.SIG_DFL) -> Iterator[None]:
    """Makes Ctrl-C and SIGTERM call `stop` within the block.

    Python handles signals in the main thread only: in other threads the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: FrameType | None) -> None:
        stop()
        signal.signal(number, again)

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def wait_for(event: threading.Event, timeout: float | None = None) -> bool:
    """Waits for `event`, and runs the handlers of signals meanwhile.

    `Event.wait` alone can lose a signal: one that arrives after Python last looked for signals and before the thread
    sleeps interrupts nothing, and its handler would run only after the wait.
    """
    until = None if timeout is None else time.monotonic() + timeout
    while until is None or time.monotonic() < until:
        left_s = LOOK_FOR_SIGNALS_S if until is None else min(LOOK_FOR_SIGNALS_S, until - time.monotonic())
        if event.wait(max(left_s, 0)):
            return True
    return event.is_set()
