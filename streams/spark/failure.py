"""Spark's errors made readable: the engine's own sentence out of pages of Java stack traces."""

from __future__ import annotations

import re

from streams.errors import ApplicationFailedError

_PYTHON_ERROR = re.compile(r"^(?:[\w.]*\.)?(\w+(?:Error|Exception)): (.+)$")


def readable(failure: BaseException) -> ApplicationFailedError:
    """The innermost Python error that Spark reports, as one sentence; Spark's whole text where there is none."""
    text = str(failure)
    found = [match for line in text.splitlines() if (match := _PYTHON_ERROR.match(line.strip()))]
    ours = [match for match in found if not match.group(1).startswith(("Py4J", "PySpark", "StreamingQuery", "Spark"))]
    if ours:
        name, message = ours[-1].groups()
        return ApplicationFailedError(f"{name}: {message}")
    return ApplicationFailedError(text)
