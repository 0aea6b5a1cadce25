"""Finds the user's own line of code behind an error, in a stack that is mostly the engine's.

If a user's function raises an error, its traceback has the line (`users_line`). If the engine raises an error about a user's call,
the line is on the stack of that call (`calling_line`).
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, cast

import state

_STATE = str(Path(state.__file__).parent) + os.sep
_ENGINE = (str(Path(__file__).parent) + os.sep, _STATE)
_PYTHON = (str(Path(os.__file__).parent) + os.sep, sysconfig.get_path("scripts") + os.sep, "<frozen")
_INSTALLED = {"site-packages", "dist-packages"}


def users_line(error: BaseException) -> str | None:
    """`file, line N` of the innermost frame that is neither the engine's nor Python's; None if there is none.

    Frames of installed packages count only if there is no other one.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*_ENGINE, *_PYTHON))
    ]
    own = [frame for frame in frames if not _is_installed(frame.filename)]
    chosen = (own or frames)[-1:]
    return f"{chosen[0].filename}, line {chosen[0].lineno}" if chosen else None


def calling_line(frame: FrameType | None = None) -> str | None:
    """`file, line N` of the user's call that is running; None if no user's code is on the stack.

    A file below the working directory is given relative to it, as compilers do.

    Args:
        frame: The innermost frame of the stack; None: the caller's.
    """
    frame = frame or sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if filename == "<string>":
            # A method that a decorator has made, such as a dataclass' `__init__`, belongs to the module of its class.
            filename = frame.f_globals.get("__file__", filename)
        if not filename.startswith((*_ENGINE, *_PYTHON)) and not _is_installed(filename):
            return f"{_below_here(filename)}, line {frame.f_lineno}"
        frame = frame.f_back
    return None


def is_of_state(error: BaseException) -> bool:
    """Whether an error of the operating system comes from local state: for example, the disk is full or cannot be written."""
    if not isinstance(error, OSError):
        return False
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    engine = [
        file for file in files if file.startswith(_ENGINE) or not (file.startswith(_PYTHON) or _is_installed(file))
    ]
    return bool(engine) and engine[-1].startswith(_STATE)


def line_of(function: object) -> str | None:
    """`file, line N` where a user's function begins; None if it is written in C, or the engine's own."""
    code = getattr(inspect.unwrap(cast("Any", function)), "__code__", None)
    if code is None or code.co_filename.startswith((*_ENGINE, *_PYTHON)):
        return None
    return f"{code.co_filename}, line {code.co_firstlineno}"


def users_function(function: Any) -> Any:
    """The user's function behind the engine's adapters, or the expression.

    A function that the user has decorated is returned with its decorator, which is the user's code, too.
    """
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        if not getattr(function, "__globals__", {}).get("__name__", "").startswith("streams."):
            break
        function = inner
    return function


def _is_installed(filename: str) -> bool:
    return not _INSTALLED.isdisjoint(Path(filename).parts)


def _below_here(filename: str) -> str:
    here = os.path.join(os.getcwd(), "")
    return filename.removeprefix(here)
