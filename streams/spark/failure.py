"""Readable errors from Spark's failures: the engine's own message out of pages of Java stack traces."""

from __future__ import annotations

import re
from itertools import takewhile

from state.errors import ClientFailure
from state.secrets import mask
from streams.errors import ApplicationFailedError

_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Exit|Interrupt)): (.+)$")
_OF_SPARK = ("Py4J", "PySpark", "Python", "StreamingQuery", "Spark")
_WORKER_DID_NOT_START = "Python worker failed to connect back"
_WORKER_DIED = "Python worker exited unexpectedly"
# Py4J's form of the first exception, after the line of its own that ends with "calling o123.collectToPython."
_JAVA_CAUSE = re.compile(r"^(?:Caused by)?: (?:[a-z]\w*\.)*([A-Z]\w+: .+)$")
_PLACE = "=== Streaming Query ==="


def readable(failure: BaseException) -> ApplicationFailedError:
    """The innermost Python error that Spark reports, as one sentence without secrets; without one, Spark's own message."""
    if did_not_start(failure):
        return ApplicationFailedError(
            "a Python process of Spark did not start within the 10 seconds that Spark gives it: the machine is too busy. "
            "Nothing was read or written; start again"
        )
    text = mask(str(failure))
    found = [match for line in text.splitlines() if (match := _PYTHON_ERROR.match(line.strip()))]
    # Java's class names match the same pattern, but their packages begin like a domain.
    ours = [
        m for m in found if not m.group(1).startswith(_OF_SPARK) and not m.group(0).startswith(("java", "org.", "com."))
    ]
    if ours:
        name, message = ours[-1].groups()
        return ApplicationFailedError(f"{name}: {message}")
    if _WORKER_DIED in text:
        fatal = next((line.strip() for line in text.splitlines() if "Fatal Python error" in line), "no trace was left")
        return ApplicationFailedError(
            f"a Python worker process died in every attempt of a task ({_WORKER_DIED}; {fatal}): killed for want of memory, "
            "ended by a function of the topology, or crashed in native code. Nothing half-done is visible"
        )
    return ApplicationFailedError(_innermost(text))


def _innermost(text: str) -> str:
    """The last cause in a Java stack trace, or the first paragraph if there is none, as one line: Delta breaks its sentences."""
    causes = [match.group(1) for line in text.splitlines() if (match := _JAVA_CAUSE.match(line.strip()))]
    lines = text.partition(_PLACE)[0].strip().splitlines()
    paragraph = takewhile(lambda line: line.strip() and not line.strip().startswith(("at ", "Traceback")), lines)
    return causes[-1] if causes else " ".join(line.strip() for line in paragraph) or text


def passes(failure: BaseException) -> bool:
    """Whether a query ended because of a transient failure, such as an unreachable broker, by its last error."""
    said = ClientFailure.in_text(str(readable(failure)))
    return said is not None and said.transient


def did_not_start(failure: BaseException | None) -> bool:
    """Whether a query ended because Spark could not start a Python process in time, before any work was done."""
    return failure is not None and _WORKER_DID_NOT_START in str(failure)
