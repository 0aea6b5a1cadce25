"""Asks whether the brokers answer, while a page is open; and takes samples of the figures, also while none is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from state.errors import StreamsError

EVERY_S = 2.0
LATE_S = 2.0
"""An answer that takes longer is late, so the figures on the page are old."""
_LOOKED_S = 10.0
"""How long after the last look at the page the brokers are still asked, s."""
_FIRST_S = 1.5
"""How long the first look waits for an answer: less than the page waits."""


class Pulse:
    """Asks the brokers within a `with` block, in its own thread, because a request to a broker that is away takes long.

    Args:
        ask: Sends the brokers a small request, which fails after some seconds.
        sample: Takes a sample of the current figures.
    """

    def __init__(
        self, ask: Callable[[], object], sample: Callable[[], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask, self._sample, self._clock = ask, sample, clock
        self._looked: float | None = None
        self._since: float | None = None
        self._wanted, self._answered, self._closed = threading.Event(), threading.Event(), threading.Event()

    def silent_s(self) -> float | None:
        """The seconds for which the brokers have not answered; None: they answer, or no page is open."""
        since = self._since
        silent = None if since is None else self._clock() - since
        return None if silent is None or (silent <= LATE_S and self._answered.is_set()) else silent

    def look(self) -> float | None:
        """Called when somebody looks at the page. Starts asking the brokers, and returns `silent_s`."""
        first = not self._looked_at()
        self._looked = self._clock()
        if first:
            self._since = self._clock()
            self._answered.clear()
            self._wanted.set()
            self._answered.wait(_FIRST_S)
        return self.silent_s()

    def turn(self) -> None:
        """One round: takes a sample, and asks the brokers if a page is open."""
        self._sample()
        if not self._looked_at():
            self._since = None
            return
        self._since = self._since or self._clock()
        try:
            self._ask()
        except StreamsError as error:
            # A refusal is an answer, too.
            if getattr(error, "transient", True):
                return
        self._since = None
        self._answered.set()

    def _looked_at(self) -> bool:
        return self._looked is not None and self._clock() - self._looked <= _LOOKED_S

    def __enter__(self) -> Pulse:
        threading.Thread(target=self._run, name="page-pulse", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._wanted.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wanted.clear()
            self.turn()
            self._wanted.wait(EVERY_S)
