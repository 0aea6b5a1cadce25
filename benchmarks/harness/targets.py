"""The table of `benchmarks/targets.md`: what the engine is to reach beside Kafka Streams, and what the result files say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import suite
from benchmarks.harness.front import THEIRS, between_marks
from benchmarks.harness.peers import OURS, ROOT
from benchmarks.harness.result import LIVE, RESULTS, Result, cell, read, three_digits

PAGE = ROOT / "benchmarks" / "targets.md"
BEGIN, END = "<!-- targets: python -m benchmarks report -->", "<!-- end of the targets -->"
_UNITS = {
    "cpu_us_per_record": "CPU µs a record",
    "records_per_second": "records/s",
    "first_result_s": "first result s",
    "peak_pss_mb": "peak memory MiB",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
}
_MORE_IS_BETTER = ("records_per_second",)


class Target(NamedTuple):
    """A figure of a workload that is to be reached.

    Attributes:
        workload: Its name.
        figure: The figure of its results.
        limit: The figure itself; None: only Kafka Streams' counts.
        share: The part of Kafka Streams' figure; None: only the figure itself counts.
    """

    workload: str
    figure: str
    limit: float | None
    share: float | None = None


_CPU, _RATE, _MEMORY = "cpu_us_per_record", "records_per_second", "peak_pss_mb"
TARGETS = (
    Target("windows", _CPU, 2.0, 0.45),
    Target("windows", _RATE, 600_000),
    Target("windows", _MEMORY, 1024),
    Target("windows", "first_result_s", 8),
    Target("windows-python", _CPU, 7),
    Target("sessions", _CPU, 10, 0.45),
    Target("sliding", _CPU, 40, 0.10),
    Target("join-inner", _CPU, 11, 0.60),
    Target("join-inner", _MEMORY, 1536),
    Target("join-left", _CPU, 11, 0.60),
    Target("table-join", _CPU, 7, 0.50),
    Target("table-fill", _CPU, 6, 0.40),
    Target("restore", _CPU, 1.5, 0.35),
    Target("restore", _RATE, 1_200_000),
    Target("latency", "p50_ms", None, 1.0),
    Target("latency", "p99_ms", None, 1.0),
    Target("latency", _CPU, None, 1.0),
)
_AHEAD, _BY_TWICE = 20, 12
"""Queries of Nexmark in which our CPU is to be less than Kafka Streams', and less than half of it."""


def write(folder: Path = RESULTS, page: Path = PAGE) -> list[Path]:
    """Writes the table into the page; the files that were written."""
    results = [read(path) for path in sorted(folder.glob("*.json"))]
    text = page.read_text(encoding="utf-8")
    page.write_text(between_marks(text, BEGIN, END, "\n".join(table(results))), encoding="utf-8")
    return [page]


def table(results: Sequence[Result]) -> list[str]:
    """The lines of the table: a row for each target that has a result, and one for Nexmark."""
    # The newest one of several, in the default execution.
    mine = [one for one in results if one.label in (None, "", LIVE)]
    found = {(one.workload, one.peer): one for one in sorted(mine, key=lambda one: (not one.in_micro_batches, one.at))}
    rows = [row for target in TARGETS for row in _row(target, found)]
    return [
        "| workload | figure | target | reached | Kafka Streams | share | measured |",
        "|---|---|---|---|---|---|---|",
        *rows,
        *_nexmark(results),
    ]


def _row(target: Target, found: dict[tuple[str, str], Result]) -> list[str]:
    ours, theirs = found.get((target.workload, OURS)), found.get((target.workload, THEIRS))
    spread = ours.spread(target.figure) if ours else None
    if ours is None or spread is None:
        return []
    other = theirs.spread(target.figure) if theirs and theirs.commit == ours.commit else None
    share = spread[0] / other[0] if other and other[0] else None
    wanted = [] if target.limit is None else [three_digits(target.limit)]
    wanted += [] if target.share is None else [f"{target.share:.0%} of Kafka Streams'"]
    reached = f"**{cell(spread)}**" if _is_reached(target, spread[0], share) else cell(spread)
    shown = "-" if share is None else f"{share:.0%}"
    where = f"{ours.at[:10]} `{ours.commit}`{', micro-batches' if ours.in_micro_batches else ''}"
    cells = [target.workload, _UNITS[target.figure], " and ".join(wanted), reached, cell(other), shown, where]
    return [f"| {' | '.join(cells)} |"]


def _is_reached(target: Target, value: float, share: float | None) -> bool:
    if target.limit is not None:
        more = target.figure in _MORE_IS_BETTER
        if (value < target.limit) if more else (value > target.limit):
            return False
    return target.share is None or (share is not None and share <= target.share)


def _nexmark(results: Sequence[Result]) -> list[str]:
    """The row of all queries of Nexmark, whose targets are how often we are ahead."""
    times = suite.times_ahead(results)
    if not times:
        return []
    ahead, twice = sum(one > 1 for one in times.values()), sum(one >= 2 for one in times.values())
    reached = f"ahead in {ahead}, by twice in {twice} of {len(times)}"
    if ahead >= _AHEAD and twice >= _BY_TWICE:
        reached = f"**{reached}**"
    wanted = f"ahead in {_AHEAD} of 23, by twice in {_BY_TWICE}"
    return [f"| Nexmark's queries | CPU | {wanted} | {reached} | | | [the table](../docs/performance.md) |"]
