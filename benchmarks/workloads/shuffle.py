"""B3: a fifth of the records go to one of many consumers: counted by a table, or as ShuffleBench's own consumers do it."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.generators.records import BLOCK, START_MS, Batch
from benchmarks.generators.text import binary
from benchmarks.verify.compare import Verdict, compare, table_of
from benchmarks.verify.output import Row
from benchmarks.workloads.base import Output, RunConfig, Workload, number_of
from streams import (
    BytesSerde,
    Consumed,
    Grouped,
    Processor,
    Record,
    Repartitioned,
    Stores,
    StreamsBuilder,
    StringSerde,
    Topology,
)

_WIDTH = 1_024
_RULES = 1_000_000
_MATCHING = 200_000


class Shuffle(Workload):
    """Records without a key, of 1024 random bytes, of which the first eight decide who gets them."""

    name = "shuffle"
    title = "B3: ShuffleBench, 1 KiB records, selectivity 0.2"
    sizes = {"smoke": 20_000, "small": 2_000_000, "full": 10_000_000}
    consumers = {"smoke": 100, "small": 100_000, "full": 1_000_000}

    def hashes(self, size: str) -> npt.NDArray[np.uint64]:
        """The first eight bytes of each record."""
        return np.random.default_rng(42).integers(0, 2**63, self.sizes[size], np.uint64)

    def parameters_of(self, size: str) -> dict[str, int]:
        return {"consumers": self.consumers[size]}

    def batches(self, size: str) -> Iterator[Batch]:
        hashes = self.hashes(size)
        for begin in range(0, len(hashes), BLOCK):
            block = hashes[begin : begin + BLOCK]
            data = self.payload(begin, len(block))
            data[:, :8] = block.astype(">u8")[:, None].view(np.uint8)
            n = np.arange(begin, begin + len(block), dtype=np.int64)
            yield Batch("events", None, binary(data), START_MS + n // 250, (n % self.partitions).astype(np.int32))

    def payload(self, begin: int, count: int) -> npt.NDArray[np.uint8]:
        """So many records from a number on, uint8[n, 1024], without their hashes."""
        return np.tile(np.random.default_rng(43).integers(0, 256, _WIDTH, np.uint8), (count, 1))

    def topology(self, config: RunConfig) -> Topology:
        consumers = config.parameters["consumers"]
        builder = StreamsBuilder()
        events = builder.stream(config.topics["events"], consumed=Consumed(value_serde=BytesSerde()))
        matching = events.filter(lambda key, value: _hash(value) % _RULES < _MATCHING)
        by_consumer = matching.group_by(
            lambda key, value: _named(_hash(value) // _RULES % consumers), grouped=Grouped(value_serde=BytesSerde())
        )
        by_consumer.count().map_values(lambda count: {"count": count}).to_stream().to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        hashes = self.hashes(size)
        chosen = hashes[hashes % np.uint64(_RULES) < _MATCHING]
        consumers = (chosen // np.uint64(_RULES) % np.uint64(self.consumers[size])).astype(np.int64)
        keys, counts = np.unique(consumers, return_counts=True)
        values, records = found.last_values()
        rows = [(number_of(key), value["count"]) for key, value in values.items()]
        return Verdict(compare({"key": keys, "count": counts}, table_of(rows, ["key", "count"]), ["key"]), records)


def _hash(value: bytes) -> int:
    return int.from_bytes(value[:8], "big")


def _named(consumer: int) -> str:
    return f"c-{consumer:07d}"


# --- ShuffleBench's matcher: each consumer has a range of hashes, which wrap around at 2^63.

_HASHES = 2**63


class Rules(NamedTuple):
    """The ranges of hashes, in the order of their offsets. A range begins at its offset.

    Attributes:
        offsets: uint64[C].
        consumers: int64[C], the number of the consumer of each range.
        width: How many hashes a range has, so that all together match a fifth of the records in the mean.
    """

    offsets: array[int]
    consumers: array[int]
    width: int

    def matching(self, value: bytes) -> list[int]:
        """The consumers of a record: none, one or several."""
        at = _hash(value)
        found = self._between(at - self.width, at)
        return found if at >= self.width else found + self._between(at - self.width + _HASHES, _HASHES)

    def _between(self, low: int, high: int) -> list[int]:
        """The consumers whose ranges begin behind `low`, and not behind `high`."""
        offsets = self.offsets
        return self.consumers[bisect_right(offsets, max(low, -1)) : bisect_right(offsets, high)].tolist()

    def pairs(self, hashes: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """`matching` for the hashes of records: each hash once for each of its consumers, and these."""
        offsets, consumers = np.asarray(self.offsets).astype(np.int64), np.asarray(self.consumers)
        at = hashes.astype(np.int64)
        wrapped = np.flatnonzero(at < self.width)
        ends = np.append(np.searchsorted(offsets, at, "right"), np.full(len(wrapped), len(offsets)))
        starts = np.searchsorted(offsets, np.append(at - self.width, at[wrapped] + (_HASHES - self.width)), "right")
        counts = ends - starts
        places = np.repeat(ends - np.cumsum(counts), counts) + np.arange(counts.sum())
        return np.repeat(np.append(hashes, hashes[wrapped]), counts), consumers[places]


@cache
def rules_of(consumers: int) -> Rules:
    """Those of so many consumers: offsets are what SplitMix64 (Steele, Lea and Flood 2014) makes of their numbers."""
    numbers = np.arange(1, consumers + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    offsets = (numbers ^ (numbers >> np.uint64(31))) & np.uint64(_HASHES - 1)
    order = np.argsort(offsets, kind="stable")
    width = _HASHES * _MATCHING // _RULES // consumers
    return Rules(array("Q", offsets[order].tobytes()), array("q", order.tobytes()), width)


_EVERY = 10
"""Each tenth record of a consumer makes an event."""
_STATE = struct.Struct(">4Q")
"""Count, sum, and the times of the first and the last record; the sum may overflow."""
_EMPTY = _STATE.pack(0, 0, 0, 0)
_ALL_BITS = 2**64 - 1
_COMPARED_BITS = 2**31 - 1
"""Of sums: what a comparison of floats bears."""


class ShuffleBenchConsumer(Processor[str, bytes, str, bytes]):
    """ShuffleBench's `AdvancedStateConsumer`: its state of 32 bytes becomes an event, and is empty again, at each tenth record."""

    def process(self, record: Record[str, bytes]) -> None:
        """Takes in a record, which comes whole."""
        assert record.key is not None
        assert record.value is not None
        store = self.ctx.store("consumers")
        count, total, start, _ = _STATE.unpack(store.get(record.key) or _first_state(record.key))
        now = record.timestamp
        state = _STATE.pack(count + 1, (total + _hash(record.value)) & _ALL_BITS, start or now, now)
        if count + 1 == _EVERY:
            self.ctx.forward(record.with_value(state))
            state = _EMPTY
        store.put(record.key, state)


def _first_state(consumer: str) -> bytes:
    """Consumers begin at different counts, so that they do not all make their events at the same time."""
    return _STATE.pack(number_of(consumer.encode()) % _EVERY, 0, 0, 0)


class ShuffleBench(Shuffle):
    """ShuffleBench with its published parameters: records are shuffled whole, a million consumers, an event of ten records.

    As upstream, each consumer has a range of hashes of its own (`RangeBasedMatchingRule`), so that a record goes to none, one or
    several, to a fifth of a consumer in the mean. Two differences make the output one that can be recomputed everywhere. A record's
    hash is its first eight bytes, which are random, without Komihash. And consumers begin at different counts by their numbers, not
    by the first record that comes (`consumer.init.count.random`).
    """

    name = "shufflebench"
    title = "ShuffleBench as published: whole records of 1 KiB, selectivity 0.2, a million consumers, an event of ten records"
    consumers = {"smoke": 100, "small": 1_000_000, "full": 1_000_000}

    def payload(self, begin: int, count: int) -> npt.NDArray[np.uint8]:
        return np.random.default_rng((43, begin)).integers(0, 256, (count, _WIDTH), np.uint8)

    def topology(self, config: RunConfig) -> Topology:
        consumers = config.parameters["consumers"]
        builder = StreamsBuilder()
        builder.add_state_store(Stores.key_value_store("consumers", StringSerde(), BytesSerde()))
        events = builder.stream(config.topics["events"], consumed=Consumed(value_serde=BytesSerde()))
        by_consumer = events.flat_map(
            lambda key, value: [(_named(consumer), value) for consumer in rules_of(consumers).matching(value)]
        )
        shuffled = by_consumer.repartition(Repartitioned(key_serde=StringSerde(), value_serde=BytesSerde()))
        shuffled.process_values(ShuffleBenchConsumer, stores=["consumers"]).to(config.topics["out"])
        return builder.build()

    def verify(self, size: str, found: Output) -> Verdict:
        hashes, consumers = rules_of(self.consumers[size]).pairs(self.hashes(size))
        numbers = np.arange(self.consumers[size], dtype=np.int64)
        records = np.bincount(consumers, minlength=len(numbers))
        events, rest = np.divmod(records + np.where(records > 0, numbers % _EVERY, 0), _EVERY)
        # The sum is known where no record waits for the next event.
        known = rest == 0
        expected = {
            "key": numbers,
            "events": events,
            "counts": events * _EVERY,
            "sum": np.where(known, _sums(consumers, hashes, len(numbers)), 0),
        }
        rows = np.array(found.rows(_event, parse=_STATE.unpack), np.uint64).reshape(-1, 3)
        by = rows[:, 0].astype(np.int64)
        given = {
            "key": numbers,
            "events": np.bincount(by, minlength=len(numbers)),
            "counts": _sums(by, rows[:, 1], len(numbers)),
            "sum": np.where(known, _sums(by, rows[:, 2], len(numbers)), 0),
        }
        return Verdict(compare(expected, given, ["key"]), len(rows))


def _event(key: bytes, state: tuple[int, ...]) -> Row:
    """Consumer, count and sum of an event."""
    return number_of(key), state[0], state[1]


def _sums(consumers: npt.NDArray[np.int64], values: npt.NDArray[np.uint64], number: int) -> npt.NDArray[np.int64]:
    """The low bits of the sum of each consumer."""
    sums = np.zeros(number, np.uint64)
    np.add.at(sums, consumers, values)
    low: npt.NDArray[np.int64] = (sums & np.uint64(_COMPARED_BITS)).astype(np.int64)
    return low
