"""Errors on the command line: one readable sentence and exit code 1, without a stack trace unless the engine has a bug.

A file or folder that cannot be used (missing permissions, a full disk) is reported in the same way.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer
from rich.console import Console

from state.errors import StreamsError
from state.secrets import mask
from streams.cli.output import visible
from streams.logs.errors import error_fields, was_told
from streams.logs.output import is_json

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


def readable_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Prints a `StreamsError` or a file error as a sentence. `STREAMS_TRACEBACK=1` shows the stack trace."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (StreamsError, OSError) as error:
            if os.environ.get("STREAMS_TRACEBACK") or (isinstance(error, OSError) and error.filename is None):
                raise
            message = mask(f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error))
            if is_json():
                _log_once(error, message)
                raise typer.Exit(1) from error
            console = Console(stderr=True)
            console.print(f"[bold red]{type(error).__name__}[/]: ", end="")
            console.print(visible(message, keep="\n\t"), markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(1) from error

    return wrapped


def _log_once(error: BaseException, message: str) -> None:
    """Logs an error, unless the event `failed` has told it already."""
    if not was_told(error):
        log.error("%s: %s", type(error).__name__, message, extra={"fields": {"error": error_fields(error)}})
