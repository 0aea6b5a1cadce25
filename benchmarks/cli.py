"""The commands: `list`, `run` and `report`, and `data` and `verify` for those who write a peer."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import peers, result
from benchmarks.harness.cluster import own_cluster
from benchmarks.harness.report import write
from benchmarks.harness.result import Result, Run
from benchmarks.harness.run import Loaded, Options, repeat
from benchmarks.workloads.base import SIZES, Workload
from benchmarks.workloads.catalogue import WORKLOADS

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True, help=__doc__)
console = Console()
_notes = Console(stderr=True, highlight=False)

_SHOWN = {
    "records_per_second": "records/s",
    "cpu_us_per_record": "CPU µs a record",
    "first_result_s": "first result s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "peak_pss_mb": "peak memory MB",
    "internal_bytes": "internal topics bytes",
}


@app.command("list")
def list_() -> None:
    """The workloads with their sizes, and the peers."""
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
    peer: Annotated[
        list[str] | None, typer.Option(help="A peer; several times for several. Default: the engine.")
    ] = None,
    size: Annotated[str, typer.Option(help="smoke, small or full.")] = "small",
    times: Annotated[int, typer.Option("--repeat", min=1, help="Runs of each peer, in turn.")] = 1,
    threads: Annotated[int, typer.Option(help="Threads of a peer.")] = 2,
    guarantee: Annotated[str, typer.Option(help="exactly-once or at-least-once; default: the peer's own.")] = "",
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the peer.")
    ] = None,
    label: Annotated[str, typer.Option(help="A word for the result's file name.")] = "",
    keep: Annotated[Path | None, typer.Option(help="A folder for logs and data, kept.")] = None,
    save: Annotated[bool | None, typer.Option(help="Write a result file; default: except for smoke sizes.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Measure workloads; a run counts only if its output is verified."""
    settings = dict(one.split("=", 1) for one in setting or [])
    options = Options(size, threads, guarantee, settings)
    chosen = [peers.find(name) for name in peer or [peers.OURS]]
    # A request to end must still stop the peer, which is not in this process's group.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    results: list[Result] = []
    folder = keep or Path(tempfile.mkdtemp(prefix="streams-bench-"))
    try:
        with own_cluster(folder / "kafka") as cluster:
            for workload in _workloads(workloads):
                loaded = Loaded(cluster, workload, options, folder)
                results += _measured(loaded, chosen, times, label)
                for one in results[-len(chosen) :]:
                    if save or (save is None and size != "smoke"):
                        _notes.print(f"written: {result.save(one)}")
                    if not as_json:
                        show(one)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in results], indent=2))
    if any(one.outcome in ("failed", "wrong") for one in results):
        raise typer.Exit(1)


def _workloads(names: list[str]) -> list[Workload]:
    names = list(WORKLOADS) if names == ["all"] else names
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        raise typer.BadParameter(f"there is no workload {', '.join(unknown)}; there are: {', '.join(WORKLOADS)}")
    return [WORKLOADS[name] for name in names]


def _measured(loaded: Loaded, chosen: list[peers.Peer], times: int, label: str) -> list[Result]:
    """The results of the peers, side by side over the same input."""
    workload, options = loaded.workload, loaded.options
    runs: dict[str, list[Run]] = {one.name: [] for one in chosen}
    loaded.load()
    try:
        for one, done in repeat(loaded, chosen, times):
            runs[one.name].append(done)
            _notes.print(f"{workload.name} {one.name}: {summary(done)}")
    finally:
        loaded.delete()
    return [
        result.described(
            workload=workload.name,
            size=options.size,
            peer=one.name,
            title=one.title,
            guarantee=options.guarantee or one.guarantee,
            settings=options.settings,
            parameters={**workload.parameters_of(options.size), "records": workload.sizes[options.size]},
            runs=runs[one.name],
            label=label,
        )
        for one in chosen
    ]


def summary(run: Run) -> str:
    """A run in one line."""
    if not run.counts:
        return f"{run.outcome}: " + "\n".join(run.why[:40])
    first = "" if run.first_result_s is None else f", first result after {run.first_result_s:.1f} s"
    return (
        f"{run.records_per_second:,} records/s, {run.cpu_us_per_record:.2f} µs CPU a record{first}, "
        f"{run.figures.get('peak_pss_mb', 0):,} MB, verified"
    )


def show(one: Result) -> None:
    """Prints a result as a table: median and range of its runs."""
    title = f"{one.workload} ({one.size}), {one.title}: {one.outcome}, {len(one.runs)} runs"
    table = Table("figure", "median", "from", "to", title=title, title_justify="left")
    for figure, name in _SHOWN.items():
        spread = one.spread(figure)
        if spread is not None:
            table.add_row(name, *(f"{value:,.2f}".removesuffix(".00") for value in spread))
    console.print(table)


@app.command()
def report() -> None:
    """Write docs/performance.md and its plots from the result files."""
    for path in write():
        _notes.print(f"written: {path}")
