"""Which host runs each task: reported with every step, so that the driver sees a task move.

Local state makes a host the right place for a task. Spark prefers the executor that has loaded its own copy of the task's state
(`StateStoreCoordinator`), and takes another one if that executor has no free core within `spark.locality.wait`, or has ended.
A task that has moved brings the local stores there to its marker first, which is what a move costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from state.restore.listener import RestoreReport
from state.restore.plan import Action

MOVED: Final = "moved"
"""Counter: steps on another host than the task's step before."""
SAY_EVERY_S = 10.0
"""Seconds between two lines about moves of the same task; the counter has all of them."""


def restored(report: RestoreReport | None) -> Mapping[str, Any] | None:
    """What a step had to read before its local stores were at the marker; None: nothing."""
    if report is None or not (report.copy or report.stores):
        return None
    anew = any(store.action is Action.FROM_START for store in report.stores)
    return {"copy": report.copy, "anew": anew, "records": report.records}


class Placement:
    """Where each task has run last.

    Args:
        clock: A monotonic clock, in seconds.

    Attributes:
        lines: What is to be said about moves; the caller takes it from here.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.lines: list[str] = []
        self._clock = clock
        self._hosts: dict[tuple[str, int], str] = {}
        self._said: dict[tuple[str, int], float] = {}

    def moved(self, sub: str, report: Mapping[str, Any]) -> bool:
        """Takes in the report of a step; returns whether its task has moved since its last step."""
        if "host" not in report:
            return False
        key, host = (sub, report["task"]), str(report["host"])
        before = self._hosts.setdefault(key, host)
        self._hosts[key] = host
        now = self._clock()
        if before != host and now - self._said.get(key, -SAY_EVERY_S) >= SAY_EVERY_S:
            self._said[key] = now
            self.lines.append(_line(before, report))
        return before != host


def _line(before: str, report: Mapping[str, Any]) -> str:
    how = _how(report["restored"])
    return f"task {report['task']} moved from {before} to {report['host']}: {how}"


def _how(restore: Mapping[str, Any] | None) -> str:
    if restore is None:
        return "its state was there"
    records = f"{restore['records']:,} changelog records"
    if restore["copy"]:
        return f"taken over from {restore['copy']}, then {records}"
    return f"restored from {records}" if restore["anew"] else f"rolled forward by {records}"
