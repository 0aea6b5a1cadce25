"""Calls a listener in order, from any thread, and never while a lock is held."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


class Notifier:
    """Calls one listener with what it is notified of, in that order.

    The thread that is notifying also delivers what arrives meanwhile. So the order is preserved, and a listener that waits for
    another change, or causes one, cannot deadlock with it. The same holds for a signal's handler that notifies.

    Args:
        whose: The listener in messages: an exception in it is logged and has no other effect.
        listener: The listener; None: nobody listens.
    """

    def __init__(self, whose: str, listener: Callable[..., object] | None = None) -> None:
        self.listener = listener
        self._whose = whose
        self._lock = threading.RLock()
        self._waiting: deque[tuple[Any, ...]] = deque()
        self._telling = False

    def add(self, *what: Any) -> None:
        """Notes what the next `deliver` hands on; may be called while the caller holds a lock."""
        self._waiting.append(what)

    def deliver(self) -> None:
        """Hands on everything noted, unless another thread, or a caller of this one, is just doing so."""
        while self._waiting:
            with self._lock:
                if self._telling:
                    return
                self._telling = True
            try:
                while self._waiting:
                    self._call(self._waiting.popleft())
            finally:
                self._telling = False

    def notify(self, *what: Any) -> None:
        """Hands something on, after all that was noted before."""
        self.add(*what)
        self.deliver()

    def _call(self, what: tuple[Any, ...]) -> None:
        try:
            if self.listener is not None:
                self.listener(*what)
        except Exception:
            log.exception("%s has failed", self._whose)
