"""The progress of an application: a live table in a terminal, plain lines elsewhere, and the numbers for programs."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from state.secrets import mask
from streams.config import StreamsConfig
from streams.config.settings import age_in_words
from streams.engine.graph.looked_up import looked_up_in
from streams.engine.graph.settings import MOVED, ONE_BY_ONE
from streams.engine.source.offsets import SourceOffsets
from streams.engine.step.step import TaskHosts
from streams.metrics.application import HISTORICAL_MS, PARTS, RestoreFigures, StepFigures, SubTopologyMetrics
from streams.metrics.recorder import MetricsRecorder
from streams.wording import counted

log = logging.getLogger("streams.progress")

LINE_INTERVAL_S = 2.0
STILL_STARTING_S = 10.0
"""Seconds between two lines of a start that takes long because it compiles or the machine is slow, so that users need not guess."""
RATE_OVER_S = 10.0
"""The period that records per second are averaged over: long enough for a micro-batch, short enough to show a change."""
SILENT_S = 5.0
"""Seconds without a commit after which a line shows the age of the last one."""
DEAD_LETTERS = "dead_letters:"
LEFT_OUT = ("dropped:", "skipped:", DEAD_LETTERS, "failures:")
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
class ShownPace:
    """The display's memory of a sub-topology, in addition to its metrics.

    Attributes:
        counted: Points in time with the number of records read by then, over the last `RATE_OVER_S`.
        committed_at: When the last step was reported; None: no step yet.
        shown_numbers: The micro-batch and the lag of the last line.
    """

    counted: deque[tuple[float, int]] = field(default_factory=deque)
    committed_at: float | None = None
    shown_numbers: tuple[int, int | None] = (-1, None)

    def count(self, now: float, records_in: int) -> None:
        self.counted.append((now, records_in))
        while len(self.counted) > 2 and self.counted[1][0] <= now - RATE_OVER_S:
            self.counted.popleft()

    def records_per_s(self, now: float, records_in: int) -> float:
        """Records read per second, over the last `RATE_OVER_S`."""
        if not self.counted:
            return 0.0
        since, before = self.counted[0]
        return (records_in - before) / max(now - since, 1e-3)


def left_out(counters: Mapping[str, int]) -> list[str]:
    """Counts of what was dropped, skipped or sent to the dead letter topic."""
    return [f"{name} {count:,}" for name, count in sorted(counters.items()) if name.startswith(LEFT_OUT)]


class Progress:
    """Passes reports of steps to the metrics recorder, and shows them.

    Args:
        console: Where to write; default: standard error, so that results can be piped.
        clock: A monotonic clock, in seconds.
        wall_clock: Returns seconds since 1970, to compute how far event time is behind.
    """

    def __init__(
        self,
        title: str,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.title = title
        self.dead_letters = "`streams dlq list` shows them"
        """How to see them; the runner names program and topics."""
        self._clock = clock
        self._wall_clock = wall_clock
        self.console = console or Console(stderr=True)
        self.metrics = MetricsRecorder(title, lambda: int(wall_clock() * 1000))
        self._paces: dict[str, ShownPace] = {}
        self._task_hosts = TaskHosts()
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._last_line = 0.0
        self._begun = threading.Event()

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._live = Live(get_renderable=self._table, console=self.console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.has_begun()
        if self._live is not None:
            self._live.stop()
            self._live = None
        else:
            self._line(force=True)
        self._say_what_is_missing()

    def starting(self, text: str, every_s: float = STILL_STARTING_S) -> None:
        """Shows what a start is doing, and repeats it with the elapsed time every `every_s` seconds until `has_begun`."""
        since = self._clock()

        def repeat() -> None:
            while not self._begun.wait(every_s):
                self.say(f"still starting, for {self._clock() - since:.0f} s …")

        self.say(f"{text} …")
        threading.Thread(target=repeat, name="start", daemon=True).start()

    def has_begun(self) -> None:
        """Ends the lines of `starting`."""
        self._begun.set()

    def say(self, text: str) -> None:
        """Prints a line, without markup, because errors may contain brackets. Secrets are masked."""
        self.console.print(mask(text), highlight=False, markup=False, soft_wrap=True)

    @property
    def subs(self) -> Mapping[str, SubTopologyMetrics]:
        return self.metrics.snapshot().sub_topologies

    def started(self, sub: str, tasks: int, topics: tuple[str, ...]) -> None:
        """Notes that a query starts; a restarted query continues with its numbers."""
        self.metrics.starting(sub, tasks, topics)
        with self._lock:
            self._paces.setdefault(sub, ShownPace()).count(self._clock(), self.subs[sub].records_in)

    def step(self, sub: str, batch_id: int, steps: Collection[StepFigures]) -> None:
        """Records and shows the reports of a finished micro-batch's tasks."""
        before = self.subs[sub].counters
        counted = (
            replace(one, counters={**one.counters, MOVED: 1})
            if self._task_hosts.moved(sub, one.task, one.host, one.restore)
            else one
            for one in steps
        )
        self.metrics.step(sub, batch_id, tuple(counted))
        after = self.subs[sub]
        with self._lock:
            pace = self._paces[sub]
            pace.committed_at = self._clock()
            pace.count(pace.committed_at, after.records_in)
        self._say_moves(sub)
        for name in after.counters.keys() - before.keys():
            if name.startswith(ONE_BY_ONE):
                node, _, reason = name.removeprefix(ONE_BY_ONE).partition(":")
                self.say(f"{self.title}/{sub}: '{node}' processes records one by one, which takes longer: {reason}")
        self._show()

    def opened(self, sub: str, task: int, host: str, restore: RestoreFigures | None, again: bool = False) -> None:
        """Records that a live task was opened, so that its restore counts even if its lease ends before its first step.

        `again`: an attempt of the task has failed before.
        """
        self.metrics.opened(sub, task, restore, self._task_hosts.moved(sub, task, host, restore), again)
        self._say_moves(sub)

    def _say_moves(self, sub: str) -> None:
        with self._lock:
            moves, self._task_hosts.lines = self._task_hosts.lines, []
        for move in moves:
            self.say(f"{self.title}/{sub}: {move}")

    def query(self, progress: Any) -> None:
        """Records Spark's own progress of a query, for the lag."""
        if progress is None:
            return
        source = progress["sources"][0]
        self.metrics.positions(sub_of(progress), positions_of(source["endOffset"], source["latestOffset"]))
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
                pace = self._paces[name]
                if pace.shown_numbers == (sub.batch_id, sub.lag):
                    continue
                pace.shown_numbers = (sub.batch_id, sub.lag)
                text = ", ".join(self._numbers(sub, pace, now))
                self.console.print(f"{self.title}/{name}: {text}", highlight=False, markup=False, soft_wrap=True)

    def _say_what_is_missing(self) -> None:
        """At the end of the run, shows what is missing from the results: join records without a match, and dead letters."""
        with self._lock:
            counters = {name: sub.counters for name, sub in self.subs.items()}
        for name, counts in counters.items():
            for one in looked_up_in(counts):
                if one.found_nothing:
                    self.say(f"{self.title}/{name}: {one.says()}")
        letters = sum(n for counts in counters.values() for what, n in counts.items() if what.startswith(DEAD_LETTERS))
        if letters:
            self.say(f"{self.title}: {counted(letters, 'record')} failed and became dead letters: {self.dead_letters}")

    def _numbers(self, sub: SubTopologyMetrics, pace: ShownPace, now: float) -> list[str]:
        """The parts of a sub-topology's line. The lag appears once Spark has reported where the topics end."""
        lag = [] if sub.lag is None else [f"lag {sub.lag}"]
        if sub.batch_id < 0:
            return ["no records yet", *lag]
        slowest = max((task.last.total_s for task in sub.tasks.values() if task.last), default=0.0)
        since = now - pace.committed_at if pace.committed_at is not None else 0.0
        behind = self._behind(sub)
        is_live = any(task.last.live for task in sub.tasks.values() if task.last)
        return [
            f"{'step' if is_live else 'batch'} {sub.batch_id}",
            f"in {sub.records_in}",
            f"out {sub.records_out}",
            f"changelog {sub.changelog_records}",
            *lag,
            f"{pace.records_per_s(now, sub.records_in):,.0f} in/s",
            *([] if behind is None else [f"event time {behind} behind"]),
            *([f"last commit {age_in_words(int(since * 1000))} ago"] if since >= SILENT_S else []),
            f"slowest task {slowest * 1000:.0f} ms",
            *([f"moved {sub.counters[MOVED]:,}"] if MOVED in sub.counters else []),
            *left_out(sub.counters),
        ]

    def _behind(self, sub: SubTopologyMetrics) -> str | None:
        """How far the largest event time is behind the wall clock; None: there is no event time yet, or it is old input."""
        at = sub.event_time_ms
        behind_ms = None if at is None else int(self._wall_clock() * 1000) - at
        return None if behind_ms is None or behind_ms > HISTORICAL_MS else age_in_words(behind_ms)

    def _table(self) -> Table:
        table = Table(title=self.title, title_justify="left", expand=False)
        now = self._clock()
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "sub-topology" else "right")
        with self._lock:
            missing = {name: ", ".join(left_out(sub.counters)) for name, sub in self.subs.items()}
            caption = "\n".join(f"{name}: {text}" for name, text in missing.items() if text)
            table.caption, table.caption_justify = escape(caption) or None, "left"
            for name, sub in self.subs.items():
                for row in self._rows(name, sub, self._paces[name], now):
                    table.add_row(*row)
        return table

    def _rows(self, name: str, sub: SubTopologyMetrics, pace: ShownPace, now: float) -> Iterator[list[str]]:
        """The rows of a sub-topology in the table, one for each task. The first row also has the columns that concern all tasks."""
        lag = "" if sub.lag is None else f"{sub.lag:,}"
        since = "" if pace.committed_at is None else age_in_words(int((now - pace.committed_at) * 1000))
        common = [lag, f"{pace.records_per_s(now, sub.records_in):,.0f}", self._behind(sub) or "", since]
        if not sub.tasks:
            yield [name, f"-/{sub.task_count}", *([""] * 4), lag]
        for index, (number, task) in enumerate(sorted(sub.tasks.items())):
            assert task.last is not None, "a task is known by its steps"
            yield [
                name if index == 0 else "",
                f"{number}/{sub.task_count}",
                str(task.version),
                f"{task.records_in:,}",
                f"{task.records_out:,}",
                f"{task.changelog_records:,}",
                *(common if index == 0 else [""] * len(common)),
                f"{task.last.total_s * 1000:.0f}",
                *(f"{task.last.seconds.get(part, 0.0) * 1000:.0f}" for part in PARTS),
                str(task.last.peak_rss_bytes // 2**20),
            ]


class LoggedProgress(Progress):
    """Progress that draws nothing: messages are log lines, and numbers are left to the metrics."""

    def __enter__(self) -> LoggedProgress:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        log.info("%s", text)

    def _show(self) -> None:
        pass


class NotebookProgress(Progress):
    """Progress that prints each event once, as plain text; numbers appear on request (`repr`), not every second."""

    def __init__(self, title: str) -> None:
        super().__init__(title, Console(file=sys.stderr, force_jupyter=False, force_terminal=False))

    def starting(self, text: str, every_s: float = STILL_STARTING_S) -> None:
        """Prints the text once, because a cell keeps all lines."""
        self.say(f"{text} …")

    def _show(self) -> None:
        pass


def in_notebook() -> bool:
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


def sub_of(progress: Any) -> str:
    """The sub-topology of a query, from Spark's progress of it."""
    return str(progress["name"]).partition("/")[2]


def position_of(progress: Any) -> SourceOffsets | None:
    """A query's position in its topics; None if Spark has not reported any yet, or the query reads no topics."""
    end = progress and progress["sources"][0]["endOffset"]
    found = orjson.loads(end) if isinstance(end, str) and end else end
    return SourceOffsets.from_json(found) if isinstance(found, Mapping) and "topics" in found else None


def positions_of(end: Any, latest: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """A query's next offset and the end offset of each topic-partition; nothing while Spark knows only one of them."""
    if not end or not latest:
        return {}
    at, to = (orjson.loads(text) if isinstance(text, str) else text for text in (end, latest))
    if not isinstance(at, Mapping) or not isinstance(to, Mapping) or "topics" not in to:
        return {}
    found = {}
    for topic, of in to["topics"].items():
        known = at["topics"].get(topic, {"offsets": []})["offsets"]
        for number, last in enumerate(of["offsets"]):
            found[topic, number] = (known[number] if number < len(known) else 0, last)
    return found
