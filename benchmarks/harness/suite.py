"""All queries of Nexmark in turn over one topic, and their table, with what Flink has published beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.harness.cluster import Cluster
from benchmarks.harness.peers import OURS, Peer
from benchmarks.harness.result import Result, cell
from benchmarks.harness.run import Loaded, Options
from benchmarks.harness.session import Note, measured
from benchmarks.nexmark.workloads import NEXMARK
from benchmarks.workloads.base import SIZES

_THEIRS: Final = "kafka-streams"
PEERS: Final = (OURS, _THEIRS, "spark-native")
"""Whose results the table shows."""
FLINK_CORE_SECONDS: Final[Mapping[str, float]] = {
    "q0": 645.087,
    "q1": 633.165,
    "q2": 570.736,
    "q3": 657.384,
    "q4": 2912.841,
    "q5": 4516.930,
    "q7": 8112.884,
    "q8": 684.288,
    "q9": 7022.197,
    "q10": 1729.775,
    "q11": 2518.946,
    "q12": 1321.536,
    "q13": 764.952,
    "q14": 620.220,
    "q15": 1380.927,
    "q16": 5362.602,
    "q17": 856.162,
    "q18": 1862.171,
    "q19": 2270.551,
    "q20": 5267.805,
    "q21": 1015.293,
    "q22": 769.471,
}
"""Cores times seconds for 100 million events: the table in `GUIDE_V1.md` of github.com/nexmark/nexmark, commit of December 2025."""
_FLINK_MILLIONS: Final = 100
_QUERY_OF: Final[Mapping[str, str]] = {one.name: one.query for one in NEXMARK}
_CPU: Final = "cpu_us_per_record"
_FIGURES: Final[Mapping[str, str]] = {
    _CPU: "CPU s a million events, which is cores times seconds",
    "records_per_second": "events/s",
    "peak_pss_mb": "peak memory MiB",
}
_HEAD: Final = """
All queries of Nexmark over one topic of nested JSON events without keys, from topic to topic; each output equals what DuckDB
recomputes from the generator's columns. Figures are medians, with the range in brackets. Of `benchmarks`, `nexmark/queries.py`
has our programs, `peers/kafka-streams/src/Suite.java` those in Java, and `peers/spark/nexmark.py` those of Spark's own
operators, whose output is written at least once.

Flink's column is what the Nexmark project has published, not what was measured here, and of another task: its source makes
the events in the same process, so that nothing is read from Kafka and no JSON is parsed; its sink discards the results;
checkpoints are three minutes apart, where ours and Kafka Streams' transactions take a tenth of a second or less; aggregates
emit every two seconds or 50,000 rows; and it ran on at least three machines of eight cores, with 100 million events. Flink
runs no q6.
""".strip()


def run(
    cluster: Cluster, folder: Path, events: int, queries: Sequence[str], peers: Sequence[Peer], times: int, note: Note
) -> Iterator[list[Result]]:
    """The results of each query, whose runs all read one topic of so many events.

    All queries come in turn, then all once more: each time with the runs so far, which are those of different hours.

    Args:
        cluster: The broker.
        folder: The folder of the runs.
        events: The number of events.
        queries: Their names; empty: all.
        peers: The peers, which run in turn.
        times: Runs of each.
        note: Takes a line about each run.
    """
    size = _size_of(events)
    sized = [one.varied(sizes={**one.sizes, size: events}) for one in NEXMARK if not queries or one.query in queries]
    # The input with all topics that any of them reads.
    widest = max(sized, key=lambda one: len(one.inputs))
    shared = Loaded(cluster, widest.varied(name="nexmark-suite"), Options(size), folder)
    shared.load()
    done: dict[str, list[Result]] = {}
    try:
        for _ in range(times):
            for one in sized:
                found = measured(shared.borrowed_by(one), peers, note=note)
                before = {of.peer: of.runs for of in done.get(one.name, ())}
                done[one.name] = [replace(of, runs=(*before.get(of.peer, ()), *of.runs)) for of in found]
                yield done[one.name]
    finally:
        shared.delete()


def _size_of(events: int) -> str:
    """The smallest size that has as many: it decides how long a run may take, and whether it is repeated."""
    return next((size for size in SIZES if NEXMARK[0].sizes[size] >= events), SIZES[-1])


def section(results: Sequence[Result]) -> list[str]:
    """The section of the page with a table for each figure; nothing while our engine has no result."""
    rows = [row for row in _rows(results).values() if OURS in row]
    peers = [peer for peer in PEERS if any(peer in row for row in rows)]
    tables = [_table(rows, peers, figure, title) for figure, title in _FIGURES.items()]
    return ["## Nexmark, all queries", _HEAD, *tables] if rows else []


def is_of_suite(one: Result) -> bool:
    """Whether a result belongs into the suite's table."""
    return one.workload in _QUERY_OF


Row = Mapping[str, Result]
"""The results of a query over the same number of events, by peer."""


def _rows(results: Sequence[Result]) -> Mapping[tuple[int, int], Row]:
    """The rows in the order of the queries, smaller numbers of events first."""
    order = list(_QUERY_OF)
    found: dict[tuple[int, int], dict[str, Result]] = {}
    for one in results:
        if is_of_suite(one) and one.peer in PEERS and not one.label and not one.in_micro_batches:
            place = order.index(one.workload), int(one.parameters["records"])
            found.setdefault(place, {})[one.peer] = one
    return {place: found[place] for place in sorted(found)}


def _table(rows: Sequence[Row], peers: Sequence[str], figure: str, title: str) -> str:
    titles = [next(row[peer].title for row in rows if peer in row) for peer in peers]
    of_cpu = figure == _CPU
    columns = ["query", "events", *titles, *(["Kafka Streams / ours", "Flink, published"] if of_cpu else [])]
    lines = [f"{title}:", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in rows:
        ours = row[OURS]
        query, events = _QUERY_OF[ours.workload], f"{ours.parameters['records']:,}"
        cells = [_shown(row.get(peer), figure) for peer in peers]
        times = _times(row)
        more = ["-" if times is None else f"{times:.1f}", _flink(query)] if of_cpu else []
        lines.append(f"| {' | '.join([query, events, *cells, *more])} |")
    return "\n".join(lines)


def _shown(one: Result | None, figure: str) -> str:
    """A figure, or why there is none."""
    if one is None:
        return "-"
    return cell(one.spread(figure)) if one.spread("records") else one.outcome


def times_ahead(results: Sequence[Result]) -> Mapping[str, float]:
    """Query -> how many times our CPU Kafka Streams needs; of several numbers of events, the largest that both have run."""
    found = [(_QUERY_OF[row[OURS].workload], _times(row)) for row in _rows(results).values() if OURS in row]
    return {query: times for query, times in found if times is not None}


def _times(row: Row) -> float | None:
    theirs = row.get(_THEIRS)
    spreads = row[OURS].spread(_CPU), theirs.spread(_CPU) if theirs else None
    if spreads[0] is None or spreads[1] is None or not spreads[0][0]:
        return None
    return spreads[1][0] / spreads[0][0]


def _flink(query: str) -> str:
    seconds = FLINK_CORE_SECONDS.get(query)
    return "-" if seconds is None else f"{seconds / _FLINK_MILLIONS:.1f}"
