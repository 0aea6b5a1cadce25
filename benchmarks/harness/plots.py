"""The plots of the report, as SVG. Without matplotlib (a dependency of development) there are none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.growth import SERIES, label_of
from benchmarks.harness.peers import OURS
from benchmarks.harness.result import Result
from benchmarks.workloads.catalogue import WORKLOADS

_SIZES = ("full", "small")
_FIGURES = {
    "cpu": ("cpu_us_per_record", "CPU µs a record (less is better)"),
    "rate": ("records_per_second", "records/s (more is better)"),
    "memory": ("peak_pss_mb", "peak memory, MiB (less is better)"),
}


def write(results: Sequence[Result], folder: Path) -> list[Path]:
    """Writes one plot for each figure: the files."""
    if find_spec("matplotlib") is None:
        return []
    chosen = largest(results)
    if not chosen:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    return [_dots(chosen, *figure, folder / f"{name}.svg") for name, figure in _FIGURES.items()]


def write_growth(results: Sequence[Result], folder: Path) -> list[Path]:
    """Writes one plot with a picture for each series that has results; its file."""
    lines = {name: found for name in SERIES if (found := _line(results, name))}
    if not lines or find_spec("matplotlib") is None:
        return []
    pyplot = start_pyplot()
    from matplotlib import ticker

    rows = math.ceil(len(lines) / 3)
    canvas, grid = pyplot.subplots(rows, 3, figsize=(11, 3 * rows), squeeze=False)
    for axes in grid.flat[len(lines) :]:
        axes.axis("off")
    for axes, (name, found) in zip(grid.flat, lines.items(), strict=False):
        axes.plot(*zip(*found, strict=True), marker="o")
        if found[0][0] > 0:
            axes.set_xscale("log")
            # A series of less than two decades would have labels for each step, on top of one another.
            axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.set_ylim(0, 1.1 * max(cpu for _, cpu in found))
        axes.set_title(SERIES[name].title, fontsize=9)
        axes.grid(alpha=0.3)
    grid[0][0].set_ylabel("CPU µs a record")
    folder.mkdir(parents=True, exist_ok=True)
    return [saved(pyplot, canvas, folder / "growth.svg")]


def _line(results: Sequence[Result], series: str) -> list[tuple[float, float]]:
    """The engine's CPU time of a record for each value of a series."""
    found = []
    for value in SERIES[series].values:
        for one in results:
            cpu = one.spread("cpu_us_per_record")
            if one.peer == OURS and one.label == label_of(series, value) and cpu:
                found.append((value, cpu[0]))
    return found


def largest(results: Sequence[Result]) -> list[Result]:
    """Of each drained workload and peer, the result of the largest size."""
    found: dict[tuple[str, str], Result] = {}
    for size in reversed(_SIZES):
        for one in results:
            if one.size == size and WORKLOADS[one.workload].procedure == "drain" and one.spread("records"):
                found[one.workload, one.peer] = one
    return list(found.values())


def _dots(results: Sequence[Result], figure: str, title: str, path: Path) -> Path:
    """A row for each workload, a dot for each peer; a line through it is the range of the runs.

    Dots, because the axis is logarithmic: bars would have lengths that mean nothing.
    """
    pyplot = start_pyplot()
    from matplotlib import ticker

    workloads = [name for name in WORKLOADS if any(one.workload == name for one in results)]
    peers = sorted({one.peer for one in results}, key=lambda name: (name != OURS, name))
    height = 0.6 / len(peers)
    canvas, axes = pyplot.subplots(figsize=(9, 1.2 + len(workloads) * max(0.5, 0.18 * len(peers))))
    for number, peer in enumerate(peers):
        mine = {one.workload: one for one in results if one.peer == peer}
        spreads = [(row, mine[name].spread(figure)) for row, name in enumerate(workloads) if name in mine]
        dots = [(row, spread) for row, spread in spreads if spread is not None]
        if dots:
            _draw(axes, dots, (number + 0.5) * height - 0.3, next(iter(mine.values())).title)
    axes.set_yticks(range(len(workloads)), workloads)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, place: f"{value:,g}"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_title(title)
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    return saved(pyplot, canvas, path)


def start_pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("svg")
    # The same results give the same file: no random ids and no date.
    mpl.rcParams["svg.hashsalt"] = "benchmarks"
    from matplotlib import pyplot

    return pyplot


def saved(pyplot: Any, canvas: Any, path: Path) -> Path:
    canvas.tight_layout()
    canvas.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(canvas)
    return path


def _draw(axes: Any, dots: Sequence[tuple[int, tuple[float, float, float]]], at: float, name: str) -> None:
    middle = [spread[0] for _, spread in dots]
    ranges = [[spread[0] - spread[1] for _, spread in dots], [spread[2] - spread[0] for _, spread in dots]]
    axes.errorbar(middle, [row + at for row, _ in dots], xerr=ranges, fmt="o", label=name)
