"""The progress of an application: a live table in a terminal, plain lines elsewhere, and the numbers for programs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import orjson
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from streams.config.durations import age_in_words
from streams.runtime.counters import ONE_BY_ONE, Counters
from streams.source.offsets import SourceOffsets

PARTS = ("fence", "decide", "restore", "process", "commit", "apply")
LINE_INTERVAL_S = 2.0
RATE_OVER_S = 10.0
"""The period that records per second are averaged over: long enough for a micro-batch, short enough to show a change."""
SILENT_S = 5.0
"""Seconds without a commit after which a line shows the age of the last one."""
LEFT_OUT = ("dropped:", "skipped:", "dead_letters:", "failures:")
"""Counters of records that are not in the results: nothing is dropped silently."""

COLUMNS = (
    "sub-topology",
    "task",
    "version",
    "in",
    "out",
    "changelog",
    "lag",
    "in/s",
    "behind",
    "committed",
    "step ms",
    *PARTS,
    "MB",
)


@dataclass
class TaskProgress:
    """The last step of a task, and its totals."""

    version: int = 0
    records_in: int = 0
    records_out: int = 0
    changelog: int = 0
    skipped: int = 0
    stream_time: int = -1
    peak_rss_mb: int = 0
    total_s: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass
class SubProgress:
    """One sub-topology.

    Attributes:
        counted: Points in time with the number of records read by then, over the last `RATE_OVER_S`.
        committed_at: When the last step was reported; None: no step yet.
    """

    tasks: int
    topics: tuple[str, ...]
    counted: deque[tuple[float, int]] = field(default_factory=deque)
    committed_at: float | None = None
    batch_id: int = -1
    lag: int | None = None
    per_task: dict[int, TaskProgress] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    cpu_s: float = 0.0
    shown_numbers: tuple[int, int | None] = (-1, None)

    def total(self, name: str) -> int:
        """The sum of a counter over the tasks."""
        return sum(getattr(task, name) for task in self.per_task.values())

    def count(self, now: float) -> None:
        """Notes how many records have been read by now."""
        self.counted.append((now, self.total("records_in")))
        while len(self.counted) > 2 and self.counted[1][0] <= now - RATE_OVER_S:
            self.counted.popleft()

    def records_per_s(self, now: float) -> float:
        """Records read per second, over the last `RATE_OVER_S`."""
        if not self.counted:
            return 0.0
        since, before = self.counted[0]
        return (self.total("records_in") - before) / max(now - since, 1e-3)

    def event_time(self) -> int | None:
        """The largest event time that any task has seen, ms; None: none yet."""
        return max((task.stream_time for task in self.per_task.values() if task.stream_time >= 0), default=None)

    def left_out(self) -> list[str]:
        """Counts of what was dropped, skipped or sent to the dead letter topic."""
        return [f"{name} {count:,}" for name, count in sorted(self.counters.items()) if name.startswith(LEFT_OUT)]

    def add_counters(self, counters: Mapping[str, int]) -> list[str]:
        """Adds counters, and returns the names that are new."""
        new = [name for name in counters if name not in self.counters]
        for name, count in counters.items():
            self.counters.add(name, count)
        return new


class Progress:
    """Collects reports of steps and shows them.

    Args:
        title: The heading, which is the application id.
        console: Where to write; default: standard error, so that results can be piped.
        clock: A monotonic clock, in seconds.
        wall_clock: Seconds since 1970, for how far event time is behind.
    """

    def __init__(
        self,
        title: str,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.title = title
        self._clock = clock
        self._wall_clock = wall_clock
        self.console = console or Console(stderr=True)
        self.subs: dict[str, SubProgress] = {}
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._last_line = 0.0

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._live = Live(get_renderable=self._table, console=self.console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        else:
            self._line(force=True)

    def say(self, text: str) -> None:
        """Prints a line of its own, without markup: errors may contain brackets."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def started(self, sub: str, tasks: int, topics: tuple[str, ...]) -> None:
        """Notes that a query starts; a restarted query continues with its numbers."""
        with self._lock:
            self.subs.setdefault(sub, SubProgress(tasks, topics)).count(self._clock())

    def step(self, sub: str, batch_id: int, reports: list[Mapping[str, Any]]) -> None:
        """Takes in the reports of a finished micro-batch's tasks."""
        new: list[str] = []
        with self._lock:
            of = self.subs[sub]
            of.batch_id = batch_id
            for report in reports:
                task = of.per_task.setdefault(report["task"], TaskProgress())
                task.version = report["version"]
                task.seconds = report["seconds"]
                task.total_s = report["total_s"]
                task.stream_time = report["stream_time"]
                task.peak_rss_mb = report["peak_rss_mb"]
                of.cpu_s += report["cpu_s"]
                if report["decision"] == "skip":
                    task.skipped += 1
                    continue
                task.records_in += report["counts"]["in"]
                task.records_out += report["counts"]["out"]
                task.changelog += report["counts"]["changelog"]
                new += of.add_counters(report["counters"])
            of.committed_at = self._clock()
            of.count(of.committed_at)
        for name in new:
            if name.startswith(ONE_BY_ONE):
                node, _, reason = name.removeprefix(ONE_BY_ONE).partition(":")
                self.say(f"{self.title}/{sub}: '{node}' processes records one by one, which takes longer: {reason}")
        self._show()

    def query(self, progress: Any) -> None:
        """Takes in Spark's own progress of a query, for the lag."""
        if progress is None:
            return
        sub = sub_of(progress)
        source = progress["sources"][0]
        lag = lag_of(source["endOffset"], source["latestOffset"])
        with self._lock:
            if sub in self.subs and lag is not None:
                self.subs[sub].lag = lag
        self._show()

    def _show(self) -> None:
        if self._live is None:
            self._line()

    def _line(self, force: bool = False) -> None:
        now = self._clock()
        if not force and now - self._last_line < LINE_INTERVAL_S:
            return
        self._last_line = now
        with self._lock:
            for name, sub in self.subs.items():
                if sub.shown_numbers == (sub.batch_id, sub.lag):
                    continue
                sub.shown_numbers = (sub.batch_id, sub.lag)
                text = ", ".join(self._numbers(sub, now))
                self.console.print(f"{self.title}/{name}: {text}", highlight=False, markup=False, soft_wrap=True)

    def _numbers(self, sub: SubProgress, now: float) -> list[str]:
        """The parts of a sub-topology's line. The lag appears once Spark has reported where the topics end."""
        lag = [] if sub.lag is None else [f"lag {sub.lag}"]
        if sub.batch_id < 0:
            return ["no records yet", *lag]
        slowest = max((task.total_s for task in sub.per_task.values()), default=0.0)
        since = now - sub.committed_at if sub.committed_at is not None else 0.0
        behind = self._behind(sub)
        return [
            f"batch {sub.batch_id}",
            f"in {sub.total('records_in')}",
            f"out {sub.total('records_out')}",
            f"changelog {sub.total('changelog')}",
            *lag,
            f"{sub.records_per_s(now):,.0f} records/s",
            *([] if behind is None else [f"event time {behind} behind"]),
            *([f"last commit {age_in_words(int(since * 1000))} ago"] if since >= SILENT_S else []),
            f"slowest task {slowest * 1000:.0f} ms",
            *sub.left_out(),
        ]

    def _behind(self, sub: SubProgress) -> str | None:
        """How far the largest event time is behind the wall clock; None: no event time yet."""
        at = sub.event_time()
        return None if at is None else age_in_words(int(self._wall_clock() * 1000) - at)

    def _table(self) -> Table:
        table = Table(title=self.title, title_justify="left", expand=False)
        now = self._clock()
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "sub-topology" else "right")
        with self._lock:
            left_out = [f"{name}: {', '.join(sub.left_out())}" for name, sub in self.subs.items() if sub.left_out()]
            table.caption, table.caption_justify = escape("\n".join(left_out)) or None, "left"
            for name, sub in self.subs.items():
                lag = "" if sub.lag is None else f"{sub.lag:,}"
                since = "" if sub.committed_at is None else age_in_words(int((now - sub.committed_at) * 1000))
                pace = (lag, f"{sub.records_per_s(now):,.0f}", self._behind(sub) or "", since)
                for index, (number, task) in enumerate(sorted(sub.per_task.items())):
                    table.add_row(
                        name if index == 0 else "",
                        f"{number}/{sub.tasks}",
                        str(task.version),
                        f"{task.records_in:,}",
                        f"{task.records_out:,}",
                        f"{task.changelog:,}",
                        *(pace if index == 0 else [""] * len(pace)),
                        f"{task.total_s * 1000:.0f}",
                        *(f"{task.seconds.get(part, 0.0) * 1000:.0f}" for part in PARTS),
                        str(task.peak_rss_mb),
                    )
                if not sub.per_task:
                    table.add_row(name, f"-/{sub.tasks}", *([""] * 4), lag)
        return table


def sub_of(progress: Any) -> str:
    """The sub-topology of a query, from Spark's progress of it."""
    return str(progress["name"]).partition("/")[2]


def position_of(progress: Any) -> SourceOffsets | None:
    """A query's position in its topics; None if Spark has not reported any yet, or the query reads no topics."""
    end = progress and progress["sources"][0]["endOffset"]
    found = orjson.loads(end) if isinstance(end, str) and end else end
    return SourceOffsets.from_json(found) if isinstance(found, Mapping) and "topics" in found else None


def lag_of(end: Any, latest: Any) -> int | None:
    """Offsets between a query's position and the ends of its topics; None while either is unknown."""
    if not end or not latest:
        return None
    at, to = (orjson.loads(text) if isinstance(text, str) else text for text in (end, latest))
    if not isinstance(at, Mapping) or not isinstance(to, Mapping) or "topics" not in to:
        return None
    lag = 0
    for topic, of in to["topics"].items():
        known = at["topics"].get(topic, {"offsets": []})["offsets"]
        lag += sum(max(0, last - (known[i] if i < len(known) else 0)) for i, last in enumerate(of["offsets"]))
    return lag
