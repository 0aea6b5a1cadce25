"""The progress of an application whose standard error is JSON: log lines instead of a table."""

from __future__ import annotations

import logging
from types import TracebackType

from streams.spark.progress import Progress

log = logging.getLogger("streams.progress")


class LoggedProgress(Progress):
    """Progress that draws nothing: its figures are for programs, and what it is to say is a log line."""

    def __enter__(self) -> LoggedProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def say(self, text: str) -> None:
        log.info("%s", text)

    def _show(self) -> None:
        pass
