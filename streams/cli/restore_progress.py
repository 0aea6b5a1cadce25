"""The progress of a restore, for people: a bar for each task and store in a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console
from rich.filesize import decimal
from rich.progress import Progress, TaskID

from streams.cli.console import bars

LINE_INTERVAL_S = 2.0


@dataclass
class _Bar:
    """One store of one task.

    Attributes:
        offsets: The number of changelog offsets to read at the start.
    """

    offsets: int
    records: int = 0
    bytes: int = 0
    started: float = field(default_factory=time.monotonic)
    last_line: float = field(default_factory=time.monotonic)
    bar: TaskID | None = None

    def text(self, now: float) -> str:
        """What was read so far, and how fast."""
        seconds = max(now - self.started, 1e-6)
        rates = f"{self.records / seconds:,.0f} records/s, {self.bytes / seconds / 1e6:,.1f} MB/s"
        return f"{self.records:,} records, {decimal(self.bytes)}, {rates}"

    def left(self, now: float, remaining: int) -> str:
        """The time that is left, as far as the offsets read so far tell; in a terminal, the bar shows it."""
        done = self.offsets - remaining
        if remaining <= 0 or done <= 0:
            return ""
        return f", about {remaining * (now - self.started) / done:,.0f} s left"


class RestoreProgress:
    """A thread-safe `state.restore.listener.RestoreListener` that shows the progress.

    Args:
        console: Where to write; default: standard error, so that the result can be piped.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._lock = threading.Lock()
        self._bars: dict[tuple[str, int], _Bar] = {}
        self._live: Progress | None = None

    def __enter__(self) -> RestoreProgress:
        if self._console.is_terminal:
            self._live = bars(self._console)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def on_start(self, store: str, task: int, offsets: int) -> None:
        with self._lock:
            bar = self._bars[store, task] = _Bar(offsets)
            if self._live is not None:
                bar.bar = self._live.add_task(f"{store} {task}", total=offsets, text="")

    def on_batch(self, store: str, task: int, records: int, bytes_: int, remaining: int) -> None:
        with self._lock:
            bar = self._bars[store, task]
            bar.records += records
            bar.bytes += bytes_
            now = time.monotonic()
            text = bar.text(now)
            if self._live is not None and bar.bar is not None:
                self._live.update(bar.bar, completed=bar.offsets - remaining, text=text)
            elif remaining == 0 or now - bar.last_line >= LINE_INTERVAL_S:
                bar.last_line = now
                self._console.print(
                    f"restoring {store} task {task}: {_percent(bar.offsets, remaining)} %, {text}{bar.left(now, remaining)}",
                    highlight=False,
                    markup=False,
                    soft_wrap=True,
                )


def _percent(offsets: int, remaining: int) -> int:
    return 100 if offsets <= 0 else 100 * (offsets - remaining) // offsets
