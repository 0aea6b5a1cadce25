"""All workloads by name."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.nexmark.workloads import NEXMARK
from benchmarks.workloads.base import Workload
from benchmarks.workloads.counts import Counts
from benchmarks.workloads.devices import DevicesWorkload
from benchmarks.workloads.enrich import Enrich
from benchmarks.workloads.joins import JoinInner, JoinLeft, JoinPython, JoinThreeDays
from benchmarks.workloads.nexmark import BidderSessions, HighestBid, HotItems
from benchmarks.workloads.paced import Latency, Recovery
from benchmarks.workloads.passthrough import Passthrough
from benchmarks.workloads.sessions import Sessions, Sliding
from benchmarks.workloads.shuffle import Shuffle, ShuffleBench
from benchmarks.workloads.tables import Restore, TableFill, TableJoin
from benchmarks.workloads.windows import Windows, WindowsPython

WORKLOADS: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        Passthrough(),
        DevicesWorkload(),
        Windows(),
        WindowsPython(),
        Counts(),
        JoinInner(),
        JoinPython(),
        JoinLeft(),
        JoinThreeDays(),
        Sessions(),
        Sliding(),
        TableJoin(),
        TableFill(),
        Restore(),
        Latency(),
        Recovery(),
        Shuffle(),
        ShuffleBench(),
        HotItems(),
        HighestBid(),
        BidderSessions(),
        Enrich(),
        *NEXMARK,
    )
}
