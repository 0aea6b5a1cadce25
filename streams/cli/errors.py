"""Errors on the command line: one readable sentence and exit code 1, no stack trace unless it is a fault of ours."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer
from rich.console import Console

from state.errors import StreamsError

P = ParamSpec("P")
R = TypeVar("R")


def readable_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Prints a `StreamsError` instead of a stack trace. `STREAMS_TRACEBACK=1` shows the trace too."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except StreamsError as error:
            if os.environ.get("STREAMS_TRACEBACK"):
                raise
            console = Console(stderr=True)
            console.print(f"[bold red]{type(error).__name__}[/]: ", end="")
            console.print(str(error), markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(1) from error

    return wrapped
