"""The progress of restores and rescales, for people: a bar for each store in a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from typing_extensions import Self

from streams.cli.output import print_line

LINE_INTERVAL_S = 2.0


class _Bars:
    """Bars by store and number, which appear with the first one, after any question was answered.

    Args:
        console: Where to write; default: standard error, so that the result can be piped.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._lock = threading.Lock()
        self._live: Progress | None = None
        self._ids: dict[tuple[str, int], TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """What was read so far, and how fast."""
        seconds = max(now - self.started, 1e-6)
        rates = f"{self.records / seconds:,.0f} records/s, {self.bytes / seconds / 1e6:,.1f} MB/s"
        return f"{self.records:,} records, {decimal(self.bytes)}, {rates}"

    def left(self, now: float, remaining: int) -> str:
        """The time that is left, estimated from the offsets read so far."""
        done = self.offsets - remaining
        if remaining <= 0 or done <= 0:
            return ""
        return f", about {remaining * (now - self.started) / done:,.0f} s left"


class RestoreProgress(_Bars):
    """A thread-safe `state.restore.restorer.RestoreListener` that shows the progress."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._stores: dict[tuple[str, int], _Restoring] = {}

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
                told = f"restoring {store} task {task}: {percent} %, {one.text(now)}{one.left(now, remaining)}"
                print_line(told, self._console)


class RescaleProgress(_Bars):
    """A `streams.application.rescale.rows.Listener` that shows the progress: a bar or a line for each changelog partition."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._records: dict[tuple[str, int], int] = {}

    def on_start(self, store: str, partition: int, offsets: int) -> None:
        self._records[store, partition] = 0
        self._add(store, partition, offsets)

    def on_batch(self, store: str, partition: int, records: int, offset: int) -> None:
        self._records[store, partition] += records
        if self._live is not None:
            text = f"{self._records[store, partition]:,} records"
            self._live.update(self._ids[store, partition], completed=offset + 1, text=text)

    def on_end(self, store: str, partition: int) -> None:
        records = self._records[store, partition]
        if self._live is not None:
            bar = self._ids[store, partition]
            total = self._live.tasks[self._live.task_ids.index(bar)].total or 1
            self._live.update(bar, total=total, completed=total)
        elif records:
            print_line(f"copied {store} {partition}: {records:,} records", self._console)
