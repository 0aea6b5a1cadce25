"""Ctrl-C and SIGTERM as requests to stop an application, instead of ending its process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

Handler: TypeAlias = "Callable[[int, FrameType | None], Any] | signal.Handlers"


@contextmanager
def stopped_by_signals(stop: Callable[[], object], again: Handler = signal.SIG_DFL) -> Iterator[None]:
    """Makes Ctrl-C and SIGTERM call `stop` within the block.

    Python handles signals in the main thread only: in other threads the block changes nothing.

    Args:
        stop: Requests the end of whatever runs in the block.
        again: Handler of a second signal; default: it ends the process.
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
