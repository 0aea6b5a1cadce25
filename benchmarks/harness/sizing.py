"""How many cores a rate takes, computed from measured results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.harness.peers import OURS
from benchmarks.harness.result import Result

RATES = (100_000, 1_000_000)
"""Records per second."""
USED = 0.6
"""The share of a core that is planned for the steady state; the rest is for restores, for catching up after a stop, and for hosts
that are away."""
_HEAD = f"""## Sizing

Cores of the machine of the measurements (see below) for a rate of records, at {USED:.0%} use, and what runs left in the
changelogs and other internal topics, at the largest rate and without replication; compaction may have removed a part. The
brokers' own cores are not in it.
[deployment.md](deployment.md#sizes) says what else a host needs.

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
    return f"| `{one.workload}` | {cpu[0]:.3g} | {of_cores} | {record * RATES[-1] / 1e6:,.1f} |"
