"""`docs/performance.md` and its plots, made of the result files alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.growth import SERIES, label_of
from benchmarks.harness import plots, sizing, suite
from benchmarks.harness.peers import OURS, ROOT
from benchmarks.harness.result import LIVE, RESULTS, SLOW, Result, cell, read
from benchmarks.workloads.catalogue import WORKLOADS

PAGE = ROOT / "docs" / "performance.md"
_COLUMNS: Mapping[str, str] = {
    "records_per_second": "records/s",
    "cpu_us_per_record": "CPU µs a record",
    "peak_pss_mb": "peak memory MiB",
    "first_result_s": "first result s",
    "internal_bytes": "bytes of internal topics",
    "probe_us": "probe µs",
    "stood_still_s": "stood still s",
}
_LATENCY: Mapping[str, str] = {
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "max_ms": "max ms",
    "cpu_us_per_record": "CPU µs a record",
    "peak_pss_mb": "peak memory MiB",
}
_RECOVERY: Mapping[str, str] = {
    "first_new_result_s": "first new result s",
    "caught_up_s": "caught up after s",
    "usual_p99_ms": "usual p99 ms",
}
_OF_PROCEDURE = {"latency": _LATENCY, "recovery": _RECOVERY}


def write(folder: Path = RESULTS, page: Path = PAGE) -> list[Path]:
    """Writes the page and its plots; the files that were written."""
    results = [_named(read(path)) for path in sorted(folder.glob("*.json"))]
    pictures = page.parent / "performance"
    written = [*plots.write(_measured(results), pictures), *plots.write_growth(results, pictures)]
    page.write_text(_page(results, [path.relative_to(page.parent) for path in written]), encoding="utf-8")
    return [page, *written]


def _measured(results: Iterable[Result]) -> list[Result]:
    """The results without a label (it marks another state or other settings, for comparisons) that have no section of their own."""
    return [one for one in results if not one.label and one.workload in WORKLOADS and not suite.is_of_suite(one)]


def _compared(results: Iterable[Result]) -> list[Result]:
    """The results of the tables: in both executions, and at several rates."""
    labels = (None, "", SLOW, LIVE, f"{LIVE}-{SLOW}")
    return [one for one in results if one.label in labels and one.workload in WORKLOADS]


def _named(one: Result) -> Result:
    """The result with a title that says whether it is of the default execution."""
    return replace(one, title=f"{one.title}, micro-batches") if one.in_micro_batches else one


def _page(results: Sequence[Result], pictures: Sequence[Path]) -> str:
    main = _compared(results)
    parts = [_HEAD.strip()]
    shown = {path.stem: f"![{path.stem}]({path.as_posix()})" for path in pictures}
    parts += [picture for name, picture in shown.items() if name != "growth"]
    for name, workload in WORKLOADS.items():
        mine = [one for one in main if one.workload == name and not suite.is_of_suite(one)]
        if mine:
            columns = _OF_PROCEDURE.get(workload.procedure, _COLUMNS)
            parts += [f"## {name}: {workload.title}", *(_table(size, columns) for size in _by_size(mine))]
    parts += suite.section(results)
    parts += _growth(results, shown.get("growth"))
    parts += sizing.section(plots.largest(_measured(results)))
    parts.append("## Machines, versions and commits\n\n" + "\n".join(_origins(main)))
    return "\n\n".join(parts) + "\n"


def _growth(results: Sequence[Result], picture: str | None) -> list[str]:
    """A section with a table for each series that has results, below the picture of them all."""
    parts = []
    for name, series in SERIES.items():
        rows = []
        for value in series.values:
            mine = [one for one in results if one.label == label_of(name, value)]
            for one in sorted(mine, key=_ours_first):
                cells = " | ".join(cell(one.spread(figure)) for figure in _COLUMNS)
                rows.append(f"| {value:,g} | {one.title} | {one.parameters['records']:,} | {cells} |")
        if rows:
            head = f"| {series.title} | | records | {' | '.join(_COLUMNS.values())} |"
            line = f"|---|---|---|{'---|' * len(_COLUMNS)}"
            parts.append(
                "\n".join(
                    [f"### {series.title[0].upper()}{series.title[1:]} (`{series.workload}`)", "", head, line, *rows]
                )
            )
    return ["## Growth", *([picture] if picture else []), *parts] if parts else []


def _by_size(results: Sequence[Result]) -> list[list[Result]]:
    sizes = dict.fromkeys(_amount(one) for one in results)
    return [sorted((one for one in results if _amount(one) == size), key=_ours_first) for size in sizes]


def _amount(one: Result) -> str:
    rate = f" at {one.parameters['rate']:,} a second" if "rate" in one.parameters else ""
    return f"Size `{one.size}`, {one.parameters['records']:,} records{rate}:"


def _ours_first(one: Result) -> tuple[bool, str, bool, str]:
    return one.peer != OURS, one.peer, one.in_micro_batches, one.label or ""


def _table(results: Sequence[Result], columns: Mapping[str, str]) -> str:
    rows = [
        _amount(results[0]),
        "",
        f"| | guarantee | {' | '.join(columns.values())} | runs | measured |",
        f"|---|---|{'---|' * len(columns)}---|---|",
    ]
    for one in results:
        if one.spread("records") is None:
            why = next((run.why[0] for run in one.runs if run.why), "")
            nothing = f"{one.outcome}: {why} {'| ' * len(columns)}"
            rows.append(f"| {one.title} | {one.guarantee} | {nothing}| {len(one.runs)} | {_measured_at(one)} |")
            continue
        cells = [cell(one.spread(figure)) for figure in columns]
        count = sum(run.counts for run in one.runs)
        of = "" if count == len(one.runs) else f" of {len(one.runs)}"
        rows.append(f"| {one.title} | {one.guarantee} | {' | '.join(cells)} | {count}{of} | {_measured_at(one)} |")
    return "\n".join(rows)


def _origins(results: Sequence[Result]) -> list[str]:
    """What was measured where: an item for each machine with its versions, and below it the results."""
    places: dict[str, list[str]] = {}
    for one in results:
        versions = ", ".join(f"{name} {version}" for name, version in one.versions.items())
        settings = f"; settings {dict(one.settings)}" if one.settings else ""
        row = f"    * `{one.name}`: {_measured_at(one)}{settings}"
        places.setdefault(f"* {one.machine}; {versions}:", []).append(row)
    return [line for place, rows in places.items() for line in (place, *rows)]


def _measured_at(one: Result) -> str:
    return f"{one.at[:10]} `{one.commit}`" if one.at else "-"


_HEAD = """
# Performance

Each workload ran on Streams on Spark and on Kafka Streams, over the same input. The last column shows the day and the commit of
each row. Compare rows of the same day and commit: these ran in turn, on one machine. Other rows may come from other machines and
older code ([machines, versions and commits](#machines-versions-and-commits)). A run counts only if its output equals a
recomputation that shares no code with any of the systems.

* **Runs**: a row of several runs shows medians, with the range in brackets. A single run is a rough figure. No figure has more
  than three digits.
* **CPU** is the CPU time of all processes of a system, without the broker, per record. It is measured in the steady state: from
  the first commit after a fifth of the input to the last commit.
* **Memory** is the largest sum of the proportional set sizes (a page that processes share counts once).
* **Probe** is the CPU time of a small, fixed piece of work, measured during the whole run. If it is larger, the machine was slower.
* **Stood still**: runs in which the virtual machine stalled for more than 1 % of the time are repeated, up to four times. If all
  of them stalled, this column shows for how long.
* **Joins** use `fields(...)`, which joins bytes. A joiner in Python costs several microseconds more.

`benchmarks/README.md` describes the workloads and how to repeat this.

<!-- Generated from `benchmarks/results` by `python -m benchmarks report`. -->
"""
