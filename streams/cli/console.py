"""The console of commands that print tables."""

from __future__ import annotations

import os
import sys

from rich.console import Console

_WIDE = 10_000


def table_console() -> Console:
    """A console for tables on standard output.

    A terminal bounds the width of a table. A pipe or a file does not, unless `COLUMNS` is set: a table that is cut to 80 columns
    there would lose what a script looks for.
    """
    bounded = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console() if bounded else Console(width=_WIDE)
