"""Tables: a stream that is joined with a table fed alongside, the fill of a table, and its restore."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.generators.events import FIRST_NUMBER, Events, key_names
from benchmarks.generators.records import START_MS, Batch, Columns, Ints
from benchmarks.generators.text import padded, texts
from benchmarks.verify.compare import Verdict, compare, table_of
from benchmarks.verify.joins import as_of
from benchmarks.workloads.base import Output, RunConfig, Workload
from streams import Materialized, StreamsBuilder, Topology, col, fields

WITH_VERSION = fields(left="n", version=col("right.version"))
"""An event with its key's version, which is null without one."""
ANSWER = fields(left="p", right="n")
"""A probe with the number of the row that it has found."""


@dataclass(frozen=True)
class Versions:
    """Rows of a table: `{"version": 10000017, "pad": …}` for random keys."""

    events: Events

    def columns(self) -> Columns:
        """`key`, `version` and `timestamp`."""
        columns = self.events.columns()
        return Columns({"key": columns["key"], "version": columns["n"], "timestamp": columns["timestamp"]})

    def batches(self, role: str) -> Iterator[Batch]:
        """The rows as bytes."""
        sample = padded('{"version":NNNNNNNN', self.events.width)
        for block in self.columns().blocks():
            values = texts(sample, {"NNNNNNNN": block["version"]}, len(block))
            yield Batch(role, key_names(block["key"]), values, block["timestamp"])


class TableJoin(Workload):
    """A left join of a stream with a table that changes at the same time: four events for each row."""

    name = "table-join"
    title = "stream-table left join, table fed alongside, 100 000 keys"
    inputs = ("events", "table")
    sizes = {"smoke": 30_000, "small": 5_000_000, "full": 20_000_000}
    keys = 100_000

    def stream(self, size: str) -> Events:
        """Four fifths of the records. A tenth of their keys is never in the table."""
        return Events(self.sizes[size] * 4 // 5, self.keys * 10 // 9, rate=40_000, late_share=0.0)

    def table(self, size: str) -> Versions:
        """A fifth of the records."""
        return Versions(Events(self.sizes[size] // 5, self.keys, rate=10_000, seed=43, late_share=0.0))

    def batches(self, size: str) -> Iterator[Batch]:
        yield from self.table(size).batches("table")
        yield from self.stream(size).batches("events")

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        table = builder.table(config.topics["table"], materialized=Materialized(name="versions"))
        builder.stream(config.topics["events"]).left_join(table, WITH_VERSION).to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        events, table = self.stream(size).columns(), self.table(size).columns()
        rows = table_of(found.rows(lambda key, value: (value["n"], value["version"])), ["n", "version"])
        lines = compare({"n": events["n"]}, {"n": rows["n"]}, ["n"], duplicates=found.duplicates)
        if lines:
            return Verdict(lines, len(rows["n"]))
        event, version = rows["n"] - FIRST_NUMBER, rows["version"]
        by_number = np.empty(len(events), np.int64)
        by_number[events["n"] - FIRST_NUMBER] = np.arange(len(events))
        event = by_number[event]
        row = np.maximum(version - FIRST_NUMBER, 0)
        wrong_key = (version >= 0) & (table["key"][row] != events["key"][event])
        if wrong_key.any():
            lines = [f"{int(wrong_key.sum()):,} events have a version of another key"]
        ties = [as_of(events, table, tie=tie)[event] == version for tie in ("right", "left")]
        share = float(1 - (ties[0] | ties[1]).mean())
        return Verdict(lines, len(event), {"out_of_time": round(share, 6)})


class TableFill(Workload):
    """A table of distinct keys and some updates; probes read a part of it afterwards, for the verification."""

    name = "table-fill"
    title = "fill of a table, 2 M rows"
    inputs = ("rows", "probes")
    sizes = {"smoke": 20_000, "small": 2_000_000, "full": 10_000_000}
    probes_each = 100

    def rows(self, size: str) -> Columns:
        """Each key once in random order, then a tenth of them again: `key`, `n`, `milli`, `timestamp`."""
        count = self.sizes[size]
        random = np.random.default_rng(42)
        keys = np.concatenate([random.permutation(count), random.integers(0, count, count // 10)])
        n = np.arange(len(keys), dtype=np.int64)
        return Columns(
            {
                "key": keys,
                "n": n + FIRST_NUMBER,
                "milli": random.integers(10_000, 100_000, len(keys)),
                "timestamp": START_MS + n // 50,
            }
        )

    def batches(self, size: str) -> Iterator[Batch]:
        text = Events(0, 1, 1)
        for block in self.rows(size).blocks():
            yield Batch("rows", key_names(block["key"]), text.values(block), block["timestamp"])

    def probed(self, size: str, round_: int) -> tuple[Ints, Ints]:
        """The keys that a round of probes asks for, and the probes' numbers."""
        count = self.sizes[size] // self.probes_each
        keys = np.random.default_rng([42, round_ + 1]).integers(0, self.sizes[size], count)
        return keys, np.arange(count, dtype=np.int64) + FIRST_NUMBER + round_ * 1_000_000

    def probes(self, size: str, round_: int = 0) -> Iterator[Batch]:
        keys, numbers = self.probed(size, round_)
        times = np.full(len(keys), int(self.rows(size)["timestamp"][-1]) + 1_000 * (round_ + 1))
        yield Batch("probes", key_names(keys), texts('{"p":NNNNNNNN}', {"NNNNNNNN": numbers}, len(keys)), times)

    def topology(self, config: RunConfig) -> Topology:
        builder = StreamsBuilder()
        table = builder.table(config.topics["rows"], materialized=Materialized(name="rows"))
        builder.stream(config.topics["probes"]).join(table, ANSWER).to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        return self.verify_rounds(size, found, 1)

    def verify_rounds(self, size: str, found: Output, rounds: int) -> Verdict:
        """Compares the answers to the probes of the first rounds."""
        columns = self.rows(size)
        last = np.empty(self.sizes[size], np.int64)
        last[columns["key"]] = columns["n"]
        parts = [self.probed(size, round_) for round_ in range(rounds)]
        expected = {
            "p": np.concatenate([numbers for _, numbers in parts]),
            "n": last[np.concatenate([keys for keys, _ in parts])],
        }
        rows = found.rows(lambda key, value: (value["p"], value["n"]))
        lines = compare(expected, table_of(rows, ["p", "n"]), ["p", "n"], duplicates=found.duplicates)
        return Verdict(lines, len(rows))


class Restore(TableFill):
    """The restore of that table from its changelog, in four partitions."""

    name = "restore"
    title = "restore of a table from its changelog, 2 M rows in 4 partitions"
    procedure = "restore"
