"""How many cores a rate takes, computed from measured results."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.peers import OURS
from benchmarks.harness.result import RESULTS, Result, read

RATES = (100_000, 1_000_000)
"""Records per second."""
USED = 0.6
"""The share of a core that is planned for the steady state; the rest is for restores, for catching up after a stop, and for hosts
that are away."""
_HEAD = f"""## Sizing

Cores of the machine of the measurements (see below) for a rate of records, at {USED:.0%} use, and what runs left in the
changelogs and other internal topics, at the largest rate and without replication; compaction may have removed a part. The
brokers' own cores are not in it.
[How much hardware](sizing.md#what-each-part-needs) says what else a host needs.

| | CPU µs a record | {" | ".join(f"cores at {rate:,}/s" for rate in RATES)} | internal topics, MB/s at {RATES[-1]:,}/s |
|---|---|{"---|" * len(RATES)}---|"""


def section(results: Sequence[Result]) -> list[str]:
    """The section with a row for each result of the engine with a steady rate; nothing without any."""
    rows = [row for one in results if one.peer == OURS and (row := _row(one))]
    return ["\n".join([_HEAD, *rows])] if rows else []


def cores(rate: float, cpu_us: float) -> int:
    """The cores for a rate.

    Args:
        rate: Records per second.
        cpu_us: CPU time of a record, µs.
    """
    return math.ceil(rate * cpu_us / 1e6 / USED)


def _row(one: Result) -> str:
    cpu, written = one.spread("cpu_us_per_record"), one.spread("internal_bytes")
    if not cpu or not cpu[0]:
        return ""
    of_cores = " | ".join(str(cores(rate, cpu[0])) for rate in RATES)
    record = written[0] / one.parameters["records"] if written else 0.0
    batches = " (micro-batches)" if one.in_micro_batches else ""
    return f"| `{one.workload}`{batches} | {cpu[0]:.3g} | {of_cores} | {record * RATES[-1] / 1e6:,.1f} |"


# --- The calculator of docs/sizing.md, which has the figures within the page.

PAGE = Path(__file__).parents[2] / "docs" / "sizing.md"
_CALCULATED = [
    "windows",
    "windows-python",
    "sliding",
    "sessions",
    "join-inner",
    "join-left",
    "table-join",
    "table-fill",
]
_KEYS = re.compile(r"growth-keys-(.*)")
_ROW = 1.2
"""Bytes of state for a byte of a record, with the row's key and RocksDB's own."""
_FIGURES = re.compile(r'(<script type="application/json" id="figures">\n).*?(\n</script>)', re.DOTALL)


def figures(results: Sequence[Result]) -> dict[str, Any]:
    """What the calculator computes with: CPU and written bytes of a record, and what more keys cost."""
    ours = [one for one in results if one.peer == OURS]
    plain = {one.workload: one for one in ours if not one.label}
    keys = {float(found[1]): one for one in ours if one.workload == "counts" and (found := _KEYS.fullmatch(one.label))}
    return {
        "used": USED,
        "row": _ROW,
        "keys": [
            [number, _median(keys[number], "cpu_us_per_record"), _written(keys[number])] for number in sorted(keys)
        ],
        "workloads": {
            name: {
                "cpu_us": _median(plain[name], "cpu_us_per_record"),
                "internal_bytes": _written(plain[name]),
            }
            for name in _CALCULATED
        },
    }


def _written(one: Result) -> float:
    """Bytes that a record leaves in internal topics."""
    return round(_median(one, "internal_bytes") / float(one.parameters["records"]), 1)


def _median(one: Result, figure: str) -> float:
    found = one.spread(figure)
    if found is None:
        raise ValueError(f"{one.name} has no {figure}")
    return found[0]


def with_figures(page: str, results: Sequence[Result]) -> str:
    """The page with the figures of these results."""
    text = json.dumps(figures(results), indent=1)
    return _FIGURES.sub(lambda match: f"{match[1]}{text}{match[2]}", page)


def write(folder: Path = RESULTS, page: Path = PAGE) -> list[Path]:
    """Writes the figures into the page; the file that was written."""
    results = [read(path) for path in sorted(folder.glob("*.json"))]
    page.write_text(with_figures(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    return [page]
