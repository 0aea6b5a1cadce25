"""B4: three queries of Nexmark over bids: hot items (q5), the highest bid (q7) and the sessions of bidders (q11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.generators.bids import Bids
from benchmarks.generators.records import Batch
from benchmarks.verify.compare import Verdict, compare, table_of
from benchmarks.verify.windows import hopping, sessions
from benchmarks.workloads.base import CLOSING_MS, Output, RunConfig, Workload, session_key
from benchmarks.workloads.sessions import last_of_each
from streams import SessionWindows, StreamsBuilder, TimeWindows, Topology, Windowed, agg

Bid = dict[str, Any]
_CLOSING_BID = b'{"auction":0,"bidder":0,"price":0}'


class _Nexmark(Workload):
    """The input of all three."""

    sizes = {"smoke": 20_000, "small": 3_000_000, "full": 20_000_000}

    def batches(self, size: str) -> Iterator[Batch]:
        yield from Bids(self.sizes[size]).batches("events")

    def closing(self, round_: int, end_ms: int) -> Iterator[Batch]:
        for batch in super().closing(round_, end_ms):
            values = [_CLOSING_BID] * len(batch)
            yield Batch(batch.role, batch.keys, pa.array(values, pa.binary()), batch.timestamps)


class HotItems(_Nexmark):
    """The number of bids of the auction with the most bids in the last ten seconds, every two seconds."""

    name = "nexmark-q5"
    title = "B4: hot items, windows of 10 s every 2 s (two sub-topologies)"
    parameters = {"window_ms": 10_000, "hop_ms": 2_000, "grace_ms": 1_000}

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        parameters = config.parameters
        windows = TimeWindows.of_size_and_grace(parameters["window_ms"], parameters["grace_ms"])
        bids = builder.stream(config.topics["events"]).group_by(lambda key, bid: str(bid["auction"]))
        counts = bids.windowed_by(windows.advance_by(parameters["hop_ms"])).aggregate(count=agg.count())
        # A count only grows, so the largest of all its updates is the largest count.
        largest = counts.to_stream().group_by(window_start).aggregate(count=agg.max("count"))
        largest.to_stream().to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        bids = Bids(self.sizes[size]).columns()
        parameters = found.config.parameters
        counts = hopping(
            bids["auction"], bids["timestamp"], bids["price"], parameters["window_ms"], parameters["hop_ms"]
        )
        starts, inverse = np.unique(counts["start"], return_inverse=True)
        most = np.zeros(len(starts), np.int64)
        np.maximum.at(most, inverse, counts["count"])
        return _compared({"start": starts, "count": most}, found, "count")


class HighestBid(_Nexmark):
    """The highest price of each ten seconds: all bids meet in one task."""

    name = "nexmark-q7"
    title = "B4: highest bid per 10 s (all records behind one key)"
    parameters = {"window_ms": 10_000, "grace_ms": 1_000}

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        windows = TimeWindows.of_size_and_grace(config.parameters["window_ms"], config.parameters["grace_ms"])
        bids = builder.stream(config.topics["events"]).group_by(lambda key, bid: "all").windowed_by(windows)
        highest = bids.aggregate(price=agg.max("price")).to_stream()
        highest.select_key(window_start).to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        bids = Bids(self.sizes[size]).columns()
        window_ms = found.config.parameters["window_ms"]
        starts, inverse = np.unique(bids["timestamp"] // window_ms * window_ms, return_inverse=True)
        highest = np.zeros(len(starts), np.int64)
        np.maximum.at(highest, inverse, bids["price"])
        return _compared({"start": starts, "price": highest}, found, "price")


class BidderSessions(_Nexmark):
    """The number of bids in each session of a bidder."""

    name = "nexmark-q11"
    title = "B4: sessions of bidders, gap 1 s"
    parameters = {"gap_ms": 1_000, "grace_ms": 1_000}

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        gaps = SessionWindows.of_inactivity_gap_and_grace(config.parameters["gap_ms"], config.parameters["grace_ms"])
        bids = builder.stream(config.topics["events"]).group_by_key().windowed_by(gaps)
        bids.aggregate(count=agg.count()).to_stream().to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        bids = Bids(self.sizes[size]).columns()
        expected = sessions(bids["bidder"], bids["timestamp"], bids["price"], found.config.parameters["gap_ms"])
        values, records = found.last_values()
        rows = [(*session_key(key), value["count"]) for key, value in values.items()]
        if not found.retracts:
            rows = last_of_each(rows)
        names = ["key", "start", "end", "count"]
        lines = compare({name: expected[name] for name in names}, table_of(rows, names), names[:3])
        return Verdict(lines, records)


def window_start(key: Windowed, value: Bid) -> str:
    """A window's start."""
    return str(key.window.start)


def _compared(expected: dict[str, Any], found: Output, figure: str) -> Verdict:
    values, records = found.last_values()
    # The windows of closing records have no key of their own; they are far behind all others.
    last = int(expected["start"].max())
    rows = [(int(key), value[figure]) for key, value in values.items() if int(key) < last + CLOSING_MS // 2]
    return Verdict(compare(expected, table_of(rows, ["start", figure]), ["start"]), records)
