"""Progress for applications that run in the background: in a notebook it must not write over the reader's cells."""

from __future__ import annotations

import io
import sys

from rich.console import Console

from streams.config import StreamsConfig
from streams.spark.progress import Progress
from streams.spark.reports.logged_progress import LoggedProgress


class NotebookProgress(Progress):
    """Progress that prints each event once, as plain text; numbers appear on request (`repr`), not every second."""

    def __init__(self, title: str) -> None:
        super().__init__(title, Console(file=sys.stderr, force_jupyter=False, force_terminal=False))

    def _show(self) -> None:
        pass


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def progress_for(config: StreamsConfig) -> Progress:
    """The kind of progress display that suits this program."""
    if config.logs.json:
        return LoggedProgress(config.application_id)
    return NotebookProgress(config.application_id) if in_notebook() else Progress(config.application_id)


def as_html(progress: Progress) -> str:
    """An application's current numbers as HTML, for a notebook's cell."""
    console = Console(file=io.StringIO(), record=True, width=180, force_jupyter=False)
    console.print(progress._table())
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
