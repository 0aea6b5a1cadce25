"""Measure the engine and its peers; a run counts only if its output is verified."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.failover import failovers
from benchmarks.growth import SERIES, label_of, points
from benchmarks.harness import front, peers, result, sizing, targets
from benchmarks.harness import suite as of_nexmark
from benchmarks.harness.probe import MachineProbe
from benchmarks.harness.report import write
from benchmarks.harness.result import Result
from benchmarks.harness.run import Loaded, Options
from benchmarks.harness.session import all_of, measured, session
from benchmarks.nexmark.queries import QUERIES
from benchmarks.workloads.base import SIZES, Workload
from benchmarks.workloads.catalogue import WORKLOADS
from benchmarks.workloads.paced import Latency

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True, help=__doc__)
console = Console()
_notes = Console(stderr=True, highlight=False)

_SHOWN = {
    "records_per_second": "records/s",
    "cpu_us_per_record": "CPU µs a record",
    "first_result_s": "first result s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "peak_pss_mb": "peak memory MiB",
    "internal_bytes": "internal topics bytes",
    "probe_us": "probe µs",
}
Peers = Annotated[
    list[str] | None, typer.Option("--peer", help="A peer; several times for several. Default: the engine.")
]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the peer.")]
Times = Annotated[int, typer.Option("--repeat", min=1, help="Runs of each peer, in turn.")]


@app.command("list")
def list_() -> None:
    """List the workloads with their sizes, and the peers."""
    table = Table("workload", "what", *SIZES, title="workloads (records)", title_justify="left")
    for workload in WORKLOADS.values():
        table.add_row(workload.name, workload.title, *(f"{workload.sizes[size]:,}" for size in SIZES))
    console.print(table)
    table = Table("peer", "what", "guarantee", title="peers", title_justify="left")
    for name in peers.names():
        peer = peers.find(name)
        table.add_row(name, peer.title, peer.guarantee)
    console.print(table)


@app.command()
def run(
    workloads: Annotated[list[str], typer.Argument(help="Workloads, or `all`.")],
    peer: Peers = None,
    size: Annotated[str, typer.Option(help="smoke, small or full.")] = "small",
    records: Annotated[int | None, typer.Option(help="Another number of records than the size's.")] = None,
    rate: Annotated[int | None, typer.Option(min=1, help="Another number of records a second of a paced load.")] = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="Another number of partitions of a paced load.")] = None,
    times: Times = 1,
    threads: Annotated[int, typer.Option(help="Threads of a peer.")] = 2,
    guarantee: Annotated[str, typer.Option(help="exactly-once or at-least-once; default: the peer's own.")] = "",
    setting: Settings = None,
    label: Annotated[str, typer.Option(help="A word for the result's file name.")] = "",
    keep: Annotated[Path | None, typer.Option(help="A folder for logs and data, kept.")] = None,
    save: Annotated[bool | None, typer.Option(help="Write a result file; default: except for smoke sizes.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Measure workloads."""
    options = Options(size, threads, guarantee, _pairs(setting))
    chosen = [peers.find(name) for name in peer or [peers.OURS]]
    results: list[Result] = []
    with session(keep) as (cluster, folder):
        for workload in _workloads(workloads):
            sized = workload if records is None else workload.varied(sizes={**workload.sizes, size: records})
            if rate is not None or partitions is not None:
                if not isinstance(sized, Latency):
                    raise typer.BadParameter(
                        f"--rate and --partitions are for a paced load, and {workload.name} is not"
                    )
                sized = sized.varied(
                    rates={**sized.rates, size: rate or sized.rates[size]}, partitions=partitions or sized.partitions
                )
            found = measured(Loaded(cluster, sized, options, folder), chosen, times, label, _notes.print)
            _kept(found, save=size != "smoke" if save is None else save, shown=not as_json)
            results += found
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in results], indent=2))
    if not all_of(results):
        raise typer.Exit(1)


@app.command()
def suite(
    queries: Annotated[list[str] | None, typer.Argument(help="Queries, such as q4; default: all 23.")] = None,
    events: Annotated[int, typer.Option(min=1000, help="Events, which are loaded once for all queries.")] = 10_000_000,
    peer: Peers = None,
    times: Times = 3,
    save: Annotated[
        bool | None, typer.Option(help="Write result files; default: with more events than a smoke run.")
    ] = None,
) -> None:
    """Measure Nexmark's queries, ours next to Kafka Streams' and Spark's, and print their table."""
    unknown = [name for name in queries or [] if name not in QUERIES]
    if unknown:
        raise typer.BadParameter(f"there is no query {', '.join(unknown)}; there are: {', '.join(QUERIES)}")
    chosen = [peers.find(name) for name in peer or of_nexmark.PEERS]
    done: dict[str, Result] = {}
    with session() as (cluster, folder):
        for found in of_nexmark.run(cluster, folder, events, queries or [], chosen, times, _notes.print):
            _kept(found, save=found[0].size != "smoke" if save is None else save, shown=False)
            done |= {one.name: one for one in found}
    results = list(done.values())
    typer.echo("\n\n".join(of_nexmark.section(results)))
    if not all_of(results):
        raise typer.Exit(1)


@app.command()
def growth(
    series: Annotated[str, typer.Argument(help=f"What grows: {', '.join(SERIES)}.")],
    peer: Peers = None,
    most: Annotated[float | None, typer.Option(help="Leave out larger values.")] = None,
    least: Annotated[float, typer.Option(help="Leave out smaller values.")] = 0.0,
    times: Times = 1,
    setting: Settings = None,
) -> None:
    """Measure how the cost of a record grows with keys, state, windows, skew, tasks or the size of micro-batches."""
    if series not in SERIES:
        raise typer.BadParameter(f"there is no series {series}; there are: {', '.join(SERIES)}")
    chosen = [peers.find(name) for name in peer or [peers.OURS]]
    results: list[Result] = []
    with session() as (cluster, folder):
        for point in points(series, most, least):
            options = Options("small", settings={**point.settings, **_pairs(setting)})
            loaded = Loaded(cluster, point.workload, options, folder)
            found = measured(loaded, chosen, times, label_of(series, point.value), _notes.print)
            _kept(found, save=True, shown=False)
            results += found
    if not all_of(results):
        raise typer.Exit(1)


@app.command()
def failover(
    rows: Annotated[list[int] | None, typer.Option(help="Rows of the store; several times for several sizes.")] = None,
    tail: Annotated[
        int, typer.Option(min=1, help="Changelog records since the snapshot and the replica's copy.")
    ] = 10_000,
) -> None:
    """Measure how long a task without local state waits: with its changelog alone, with a snapshot, with a replica's copy."""
    table = Table("rows", "tail", "way", "seconds", "records read", title="failover", title_justify="left")
    for count in rows or [1_000_000]:
        for one in failovers(count, tail):
            table.add_row(f"{count:,}", f"{tail:,}", one.way, f"{one.seconds:.2f}", f"{one.records:,}")
    console.print(table)


@app.command()
def reads(
    rows: Annotated[int, typer.Option(min=1000, help="Rows of the store.")] = 1_000_000,
    requests: Annotated[int, typer.Option(min=1000, help="Keys to read.")] = 100_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Measure reads of a served store: single keys, batches and ranges, from Python and over HTTP."""
    from benchmarks.reads import reads as measured

    if as_json:
        with MachineProbe() as machine:
            found = [asdict(one) for one in measured(rows, requests)]
        typer.echo(json.dumps({"rows": rows, "requests": requests, "probe_us": machine.mean_us, "reads": found}))
        return

    table = Table(
        "way", "rows/s", "rows per CPU s", "p50 ms", "p99 ms", title=f"reads of {rows:,} rows", title_justify="left"
    )
    with MachineProbe() as machine:
        for one in measured(rows, requests):
            rates = (f"{one.rows / seconds:,.0f}" for seconds in (one.seconds, one.cpu_seconds))
            table.add_row(one.way, *rates, f"{one.p50_ms:.3f}", f"{one.p99_ms:.3f}")
    console.print(table)
    console.print(f"probe {machine.mean_us:.0f} µs")


@app.command()
def report() -> None:
    """Write docs/performance.md, its plots, the comparison in README.md and the table in targets.md from the result files."""
    for path in [*write(), *front.write(), *targets.write(), *sizing.write()]:
        _notes.print(f"written: {path}")


def _pairs(setting: list[str] | None) -> dict[str, str]:
    wrong = [one for one in setting or [] if "=" not in one]
    if wrong:
        raise typer.BadParameter(f"--set takes NAME=VALUE, not {wrong[0]}")
    return dict(one.split("=", 1) for one in setting or [])


def _workloads(names: list[str]) -> list[Workload]:
    names = list(WORKLOADS) if names == ["all"] else names
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        raise typer.BadParameter(f"there is no workload {', '.join(unknown)}; there are: {', '.join(WORKLOADS)}")
    return [WORKLOADS[name] for name in names]


def _kept(results: list[Result], *, save: bool, shown: bool) -> None:
    for one in results:
        if save:
            _notes.print(f"written: {result.save(one)}")
        if shown:
            show(one)


def show(one: Result) -> None:
    """Prints a result as a table: median and range of its runs."""
    title = f"{one.workload} ({one.size}), {one.title}: {one.outcome}, {len(one.runs)} runs"
    table = Table("figure", "median", "from", "to", title=title, title_justify="left")
    for figure, name in _SHOWN.items():
        spread = one.spread(figure)
        if spread is not None:
            table.add_row(name, *(f"{value:,.2f}".removesuffix(".00") for value in spread))
    console.print(table)
