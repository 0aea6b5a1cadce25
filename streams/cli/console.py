"""The console of commands that print tables, and the bars of those that copy many records."""

from __future__ import annotations

import os
import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_WIDE = 10_000


def table_console() -> Console:
    """A console for tables on standard output.

    A terminal bounds the width of a table. A pipe or a file does not, unless `COLUMNS` is set: a table that is cut to 80 columns
    there would lose what a script looks for.
    """
    bounded = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console() if bounded else Console(width=_WIDE)


def bars(console: Console) -> Progress:
    """Bars with the share that is done, the text of the field `text`, and the time that is left."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )
