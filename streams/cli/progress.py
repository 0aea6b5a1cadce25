"""The progress of restores and rescales, for people: a bar for each store in a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from typing_extensions import Self

from streams.cli.output import print_line

LINE_INTERVAL_S = 2.0


@dataclass
class _Restoring:
    """One store of one task.

    Attributes:
        offsets: The number of changelog offsets to read at the start.
    """

    offsets: int
    records: int = 0
    bytes: int = 0
    started: float = field(default_factory=time.monotonic)
    last_line: float = field(default_factory=time.monotonic)

    def text(self, now: float) -> str:
        """How much was read so far, and how fast."""
        seconds = max(now - self.started, 1e-6)
        rates = f"{self.records / seconds:,.0f} records/s, {self.bytes / seconds / 1e6:,.1f} MB/s"
        return f"{self.records:,} records, {decimal(self.bytes)}, {rates}"

    def left(self, now: float, remaining: int) -> str:
        """The time that is left, estimated from the offsets read so far."""
        done = self.offsets - remaining
        if remaining <= 0 or done <= 0:
            return ""
        return f", about {remaining * (now - self.started) / done:,.0f} s left"


class RestoreProgress:
    """A thread-safe `state.restore.restorer.RestoreListener` that shows a bar for each store of a task, once it has progress.

    Args:
        console: Where to write; default: standard error, so that the result can be piped.
        doing: The verb with which each line begins, such as `restoring`.
    """

    def __init__(self, console: Console | None = None, doing: str = "restoring") -> None:
        self._console = console or Console(stderr=True)
        self._doing = doing
        self._lock = threading.Lock()
        self._live: Progress | None = None
        self._ids: dict[tuple[str, int], TaskID] = {}
        self._stores: dict[tuple[str, int], _Restoring] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _add(self, store: str, number: int, total: int) -> None:
        if not self._console.is_terminal:
            return
        if self._live is None:
            self._live = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[text]}", markup=False),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._live.start()
        self._ids[store, number] = self._live.add_task(f"{store} {number}", total=total, text="")

    def on_start(self, store: str, task: int, offsets: int) -> None:
        with self._lock:
            self._stores[store, task] = _Restoring(offsets)
            self._add(store, task, offsets)

    def on_batch(self, store: str, task: int, records: int, bytes_: int, remaining: int) -> None:
        with self._lock:
            one = self._stores[store, task]
            one.records += records
            one.bytes += bytes_
            now, done = time.monotonic(), one.offsets - remaining
            if self._live is not None:
                self._live.update(self._ids[store, task], completed=done, text=one.text(now))
            elif remaining == 0 or now - one.last_line >= LINE_INTERVAL_S:
                one.last_line = now
                percent = 100 if one.offsets <= 0 else 100 * done // one.offsets
                told = f"{self._doing} {store} task {task}: {percent} %, {one.text(now)}{one.left(now, remaining)}"
                print_line(told, self._console)
