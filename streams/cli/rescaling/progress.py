"""The progress of a rescale, for people: a bar for each changelog partition in a terminal, a line for each elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import Progress, TaskID

from streams.cli.console import bars


class RescaleProgress:
    """A `streams.application.rescale.rows.Listener` that shows the progress.

    Args:
        console: Where to write; default: standard error, so that the result can be piped.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._live: Progress | None = None
        self._bars: dict[tuple[str, int], TaskID] = {}
        self._records: dict[tuple[str, int], int] = {}

    def __enter__(self) -> RescaleProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def on_start(self, store: str, partition: int, offsets: int) -> None:
        self._records[store, partition] = 0
        if self._console.is_terminal:
            self._bars[store, partition] = self._bar.add_task(f"{store} {partition}", total=offsets, text="")

    def on_batch(self, store: str, partition: int, records: int, offset: int) -> None:
        self._records[store, partition] += records
        if self._console.is_terminal:
            text = f"{self._records[store, partition]:,} records"
            self._bar.update(self._bars[store, partition], completed=offset + 1, text=text)

    def on_end(self, store: str, partition: int) -> None:
        records = self._records[store, partition]
        if self._console.is_terminal:
            bar = self._bars[store, partition]
            total = self._bar.tasks[self._bar.task_ids.index(bar)].total or 1
            self._bar.update(bar, total=total, completed=total)
        elif records:
            self._console.print(
                f"copied {store} {partition}: {records:,} records", highlight=False, markup=False, soft_wrap=True
            )

    @property
    def _bar(self) -> Progress:
        """The bars, which appear with the first copy, after any question was answered."""
        if self._live is None:
            self._live = bars(self._console)
            self._live.start()
        return self._live
