"""The comparison with Kafka Streams on the README: a table and a chart, made of the result files alone, losses next to wins."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import plots
from benchmarks.harness.peers import OURS, ROOT
from benchmarks.harness.result import LIVE, RESULTS, Result, read, three_digits

README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "performance" / "comparison.svg"
THEIRS = "kafka-streams"
BEGIN, END = "<!-- comparison: python -m benchmarks report -->", "<!-- end of the comparison -->"


class Question(NamedTuple):
    """A row: what is compared, the workload and figure that answer it, and the figure's unit."""

    title: str
    workload: str
    figure: str
    unit: str
    more_is_better: bool = False
    micro_batches: bool = False
    """Whether our result is one of micro-batches, which are not the default."""


QUESTIONS = (
    Question("windowed aggregates, draining a backlog", "windows", "records_per_second", "records/s", True),
    Question("the same in micro-batches", "windows", "records_per_second", "records/s", True, micro_batches=True),
    Question("time from start to first result", "windows", "first_result_s", "s"),
    Question("peak memory", "windows", "peak_pss_mb", "MiB"),
    Question("median latency at 20,000 records/s", "latency", "p50_ms", "ms"),
    Question("p99 latency", "latency", "p99_ms", "ms"),
)


class Answer(NamedTuple):
    """A question with the figures of both systems."""

    question: Question
    ours: float
    theirs: float
    where: str = ""
    """The machine and the commit on which both were measured."""

    @property
    def times_better(self) -> float:
        """How many times better ours is; below 1: worse."""
        return self.ours / self.theirs if self.question.more_is_better else self.theirs / self.ours


def answers(results: Sequence[Result]) -> list[Answer]:
    """The questions that both systems have results for, measured on one machine and at one commit."""
    # The newest one of several.
    found = {_answered(one): one for one in sorted(results, key=lambda one: one.at) if one.label in (None, "", LIVE)}
    made = []
    for question in QUESTIONS:
        ours = found.get((question.workload, OURS, question.micro_batches))
        theirs = found.get((question.workload, THEIRS, False))
        if ours is None or theirs is None or _where(ours) != _where(theirs):
            continue
        spreads = ours.spread(question.figure), theirs.spread(question.figure)
        if spreads[0] is not None and spreads[1] is not None:
            made.append(Answer(question, spreads[0][0], spreads[1][0], _where(ours)))
    return made


def _where(result: Result) -> str:
    return f"{result.machine.rpartition(', ')[0] or result.machine}, {result.at[:10]}, commit `{result.commit}`"


def _answered(one: Result) -> tuple[str, str, bool]:
    return one.workload, one.peer, one.in_micro_batches


def table(found: Sequence[Answer]) -> str:
    """The answers as Markdown: a table for each machine and commit, since figures of several say nothing about each other."""
    places = dict.fromkeys(one.where for one in found)
    return "\n\n".join(_table(place, [one for one in found if one.where == place]) for place in places)


def _table(place: str, found: Sequence[Answer]) -> str:
    rows = [f"| {place} | | Streams on Spark | Kafka Streams |", "|---|---|---|---|"]
    for one in found:
        ours, theirs = three_digits(one.ours), three_digits(one.theirs)
        better = one.times_better >= 1
        cells = (f"**{ours}**", theirs) if better else (ours, f"**{theirs}**")
        rows.append(f"| {one.question.title} | {one.question.unit} | {' | '.join(cells)} |")
    return "\n".join(rows)


def between_marks(text: str, begin: str, end: str, made: str) -> str:
    """A page with what was made between its two marks.

    Raises:
        ValueError: The page has no marks.
    """
    before, mark, rest = text.partition(begin)
    _, closing, after = rest.partition(end)
    if not mark or not closing:
        raise ValueError(f"the page needs the lines {begin} and {end}")
    return f"{before}{mark}\n\n{made}\n\n{closing}{after}"


def draw(found: Sequence[Answer], path: Path) -> list[Path]:
    """Draws how many times better or worse each answer is; nothing without matplotlib."""
    if find_spec("matplotlib") is None:
        return []
    pyplot = plots.start_pyplot()
    from matplotlib import ticker

    canvas, axes = pyplot.subplots(figsize=(9, 0.9 + 0.38 * len(found)))
    for row, one in enumerate(found):
        times = one.times_better
        axes.barh(row, times - 1, left=1, height=0.6, color="#2a9d8f" if times >= 1 else "#e76f51")
        factor, word = max(times, 1 / times), "better" if times >= 1 else "worse"
        text = f"{factor:.2g} times {word}" if factor >= 1.05 else "about the same"
        axes.annotate(text, (max(times, 1), row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(found)), [_label(one.question) for one in found], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(0.15, 12)
    axes.xaxis.set_major_locator(ticker.FixedLocator([0.2, 0.5, 1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, place: f"{value:g}x"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.axvline(1, color="#555555", linewidth=1)
    axes.set_title(
        "Streams on Spark compared with Kafka Streams 4.3.1: each row on one machine, exactly once", fontsize=9
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    return [plots.saved(pyplot, canvas, path)]


def _label(question: Question) -> str:
    return f"{question.title.replace('`', '')} ({question.unit})"


def write(folder: Path = RESULTS, readme: Path = README, picture: Path = PICTURE) -> list[Path]:
    """Writes the table into the README, and the chart; the files that were written."""
    found = answers([read(path) for path in sorted(folder.glob("*.json"))])
    readme.write_text(between_marks(readme.read_text(encoding="utf-8"), BEGIN, END, table(found)), encoding="utf-8")
    return [readme, *draw(found, picture)]
