"""Where in the user's own code an error comes from: the line to look at, out of a trace that is mostly ours."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import state
import streams

_OURS = tuple(str(Path(path).parent) + os.sep for path in (streams.__file__, state.__file__))
_OTHERS = (str(Path(os.__file__).parent) + os.sep, "<frozen")


def users_line(error: BaseException) -> str | None:
    """`file, line N` of the innermost frame that is neither ours nor Python's; None if there is none.

    Frames of installed packages count only where there is nothing else.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*_OURS, *_OTHERS))
    ]
    own = [frame for frame in frames if "site-packages" not in Path(frame.filename).parts]
    chosen = (own or frames)[-1:]
    return f"{chosen[0].filename}, line {chosen[0].lineno}" if chosen else None
