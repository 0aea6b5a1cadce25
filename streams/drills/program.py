"""The program that drills use by default: a stream-stream join, a windowed aggregation, counts, and a second stage after a re-key.

Every order and every payment has a unique id, and so does each result: a pair of ids, a window of a key, or the n-th count of a
key. So the output topics alone show duplicate and missing results.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import orjson

from state.kafka.key_hash import partition_for_key
from streams import EmitStrategy, Grouped, JoinWindows, Materialized, StreamJoined, StreamsBuilder, TimeWindows
from streams.application.stored_tasks import stored_tasks
from streams.config import StreamsConfig
from streams.drills.subject import Flow, Site, store_rows, wrong_commits, wrong_reader, wrong_restore
from streams.drills.topics import SOON_ELSEWHERE, OutsideReader, Read, read_committed
from streams.topology.topology import Topology

ORDERS, PAYMENTS = "orders", "payments"
PAIRS, CLOSED, TOTALS, REGIONS = "pairs", "closed", "totals", "regions"
INPUTS, OUTPUTS = (ORDERS, PAYMENTS), (PAIRS, CLOSED, TOTALS, REGIONS)
PARTITIONS = 2
KEYS = 24

NEAR_MS = 2_000
WINDOW_MS = 10_000
GRACE_MS = 120_000
"""Far longer than partitions drift apart during an outage of the broker, so that no record is late."""


def region(key: str) -> str:
    """The region of a key; a region has several keys, so the second stage groups differently."""
    return f"region-{int(key.rpartition('-')[2]) % 5}"


def build() -> Topology:
    """The topology on orders and payments by key."""
    return program().build()


def changed() -> Topology:
    return program(2 * WINDOW_MS).build()


def program(window_ms: int = WINDOW_MS) -> StreamsBuilder:
    """The program, not built yet."""
    builder = StreamsBuilder()
    orders, payments = builder.stream(ORDERS), builder.stream(PAYMENTS)
    grace = timedelta(milliseconds=GRACE_MS)
    near = JoinWindows.of_time_difference_and_grace(timedelta(milliseconds=NEAR_MS), grace)
    pairs = orders.join(
        payments,
        lambda order, payment: {"order": order["id"], "payment": payment["id"]},
        near,
        StreamJoined(name="pairs", store_name="pairs"),
    )
    pairs.to(PAIRS)
    windows = TimeWindows.of_size_and_grace(timedelta(milliseconds=window_ms), grace)
    closed = orders.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.on_window_close())
    (
        closed.count(materialized=Materialized("windows"))
        .to_stream()
        .map(lambda of, count: (of.key, {"start": of.window.start, "count": count}))
        .to(CLOSED)
    )
    every_one = Materialized("totals", caching=False)
    orders.group_by_key().count(materialized=every_one).to_stream().map_values(lambda n: {"count": n}).to(TOTALS)
    regions = pairs.group_by(lambda key, pair: region(key), Grouped(name="by-region"))
    counts = regions.count(materialized=Materialized("regions", caching=False)).to_stream()
    counts.map_values(lambda n: {"count": n}).to(REGIONS)
    return builder


# The expected results of the topology in plain Python, from its input records: no Spark, no RocksDB, no order of arrival.

LARGEST = 1_000_000
"""The number of characters of a pair that the client refuses to send, so that it becomes a dead letter."""

Results = Mapping[str, Counter[tuple[object, ...]]]
"""Output topic -> each result, with its expected number, which is one."""


class InputEvent(NamedTuple):
    """An order or a payment."""

    key: str
    id: str
    time: int


def expected(orders: Iterable[InputEvent], payments: Iterable[InputEvent]) -> Results:
    """All results of the given inputs, if no input is late."""
    orders = sorted(orders, key=lambda order: order.time)
    pairs = list(_pairs(orders, payments))
    windows = Counter((order.key, order.time // WINDOW_MS * WINDOW_MS) for order in orders)
    # Windows close as stream time of their task advances, whichever key's order moves it.
    last = {task_of(order.key): order.time for order in orders}
    return {
        PAIRS: Counter((key, order, payment) for key, order, payment in pairs),
        CLOSED: Counter(
            (key, start, count)
            for (key, start), count in windows.items()
            if start + WINDOW_MS + GRACE_MS <= last[task_of(key)]
        ),
        TOTALS: _numbered(order.key for order in orders),
        REGIONS: _numbered(region(key) for key, _, _ in pairs),
    }


def task_of(key: str) -> int:
    return partition_for_key(key.encode(), PARTITIONS)


def _pairs(orders: Iterable[InputEvent], payments: Iterable[InputEvent]) -> Iterator[tuple[str, str, str]]:
    by_key: dict[tuple[str, int], list[InputEvent]] = defaultdict(list)
    for payment in payments:
        by_key[payment.key, payment.time // NEAR_MS].append(payment)
    for order in orders:
        for slot in range(order.time // NEAR_MS - 1, order.time // NEAR_MS + 2):
            for payment in by_key.get((order.key, slot), ()):
                fits = len(order.id) + len(payment.id) < LARGEST
                if fits and abs(payment.time - order.time) <= NEAR_MS:
                    yield order.key, order.id, payment.id


def _numbered(keys: Iterable[str]) -> Counter[tuple[object, ...]]:
    """The counts 1, 2, 3, … of each key."""
    return Counter((key, n) for key, count in Counter(keys).items() for n in range(1, count + 1))


def result(topic: str, key: bytes, value: bytes) -> tuple[object, ...]:
    """A record of an output topic, in the form that the model uses."""
    return (key.decode(), *orjson.loads(value).values())


def differences(wanted: Results, found: Results) -> list[str]:
    """Descriptions of missing and duplicate results; empty if all results are exact."""
    said = []
    for topic, results in wanted.items():
        for what, too_many in (("missing", results - found[topic]), ("too many", found[topic] - results)):
            if too_many:
                shown = ", ".join(map(str, sorted(too_many, key=str)[:5]))
                said.append(f"{topic}: {too_many.total()} of {results.total()} results {what}, such as {shown}")
    return said


def out_of_order(topic: str, results: Iterable[tuple[object, ...]]) -> list[str]:
    """Describes the keys whose counts do not arrive as 1, 2, 3 and so on."""
    last: dict[object, int] = {}
    said = []
    for key, count in results:
        assert isinstance(count, int)
        if count != last.get(key, 0) + 1:
            said.append(f"{topic}: {key} has {count} after {last.get(key, 0)}")
        last[key] = count
    return said


# The input: orders and payments, at a modest rate, with event times of their own.

RATE = 120
"""Records per second."""
EVENT_MS = 80
"""The event time between two records, ms: event time is about ten times as fast as the clock, so that windows close."""
JITTER_MS = 900
UNSENT = 100
"""The most records that may wait for an unreachable broker.

A partition gets about a fifth of all records, and two records are 80 ms of event time apart. While 100 of its records wait, the
others get about 400, so they are 40 s of event time ahead. The windows' grace leaves another 80 s, or 8 s of the clock, for readers
that find the new leader late.
"""
_TICK_S = 0.05
_DAY_MS = 86_400_000


class Load(Flow):
    """A thread that writes records until `finish`; the verification reads them back from Kafka.

    Args:
        servers: The broker's address.
        seed: The seed of keys, topics and times.
        begin_ms: The first event time; default: yesterday, so that no record is ever ahead of the clock.
    """

    def __init__(self, servers: str, seed: int, begin_ms: int | None = None) -> None:
        # Idempotent and with a long timeout: each record is written once and in order, however long the broker is away.
        client = {"enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 600_000}
        # New partitions and new leaders should be found soon.
        super().__init__({"bootstrap.servers": servers, "partitioner": "murmur2_random", **client, **SOON_ELSEWHERE})
        self._drawn = random.Random(seed)
        self.now_ms = int(time.time() * 1000) - _DAY_MS if begin_ms is None else begin_ms

    def run(self) -> None:
        while not self._finish.wait(_TICK_S):
            for _ in range(0 if self.paused else int(RATE * _TICK_S)):
                if len(self._producer) < UNSENT:
                    self._send(
                        self._drawn.choice(INPUTS), self._drawn.randrange(KEYS), self._drawn.randrange(JITTER_MS)
                    )
                    self.now_ms += EVENT_MS
            self._producer.poll(0)

    def finish(self) -> None:
        """Ends the flow with an order for each key, which closes all windows before it. Does nothing the second time."""
        if self._finish.is_set():
            return
        self._end()
        self.now_ms += 2 * GRACE_MS
        for key in range(KEYS):
            self._send(ORDERS, key, 0)
        self._flush()

    def _send(self, topic: str, key: int, earlier_ms: int) -> None:
        self.sent += 1
        value = orjson.dumps({"id": f"{topic}-{self.sent}"})
        self._producer.produce(
            topic, value, b"key-%d" % key, timestamp=self.now_ms - earlier_ms, on_delivery=self._delivered
        )


# The verification: results exactly once, also for a continuous reader; commits without gaps; state = model = restore.


def inputs(servers: str) -> list[list[InputEvent]]:
    """The good records of the input, by topic."""
    return [
        [event for one in read_committed(servers, topic) if (event := as_event(one)) is not None] for topic in INPUTS
    ]


def as_event(record: Read) -> InputEvent | None:
    """A record as an order or a payment; None for a record without results: poison, or from the future."""
    try:
        event = InputEvent((record.key or b"").decode(), orjson.loads(record.value or b"")["id"], record.timestamp)
    except (ValueError, TypeError, KeyError):
        return None
    return None if record.timestamp > time.time() * 1000 + _DAY_MS else event


def wanted_results(servers: str) -> Results:
    """The expected contents of the output topics."""
    return expected(*inputs(servers))


def wrong_outputs(servers: str, wanted: Results, seen: Mapping[str, Sequence[Read]]) -> list[str]:
    """Errors in the output topics, and in the records that a reader saw during the run."""
    said: list[str] = []
    found: dict[str, Counter[tuple[object, ...]]] = {}
    for topic in OUTPUTS:
        records = read_committed(servers, topic)
        results = [result(topic, one.key or b"", one.value or b"") for one in records]
        found[topic] = Counter(results)
        if topic in (TOTALS, REGIONS):
            said += out_of_order(topic, results)
        said += wrong_reader(topic, seen[topic], records)
    return [*differences(wanted, found), *said]


def wrong_state(program: Topology, config: StreamsConfig, into: Path, wanted: Results) -> list[str]:
    """Differences between the local stores, the stores restored from the changelogs, and the model."""
    tasks = stored_tasks(program, config)
    said = wrong_restore(tasks, config, into)
    for store, topic in (("totals", TOTALS), ("regions", REGIONS)):
        counts = Counter(key for key, _ in wanted[topic])
        rows = {row.key: row.value for row in store_rows(tasks, config.application_id, config.state_dir, store)}
        live = {key.decode(): int.from_bytes(value or b"", "big") for key, value in rows.items()}
        if live != counts:
            said.append(f"store {store} is {live}, the model has {counts}")
    return said


# The default program as the subject of drills: every result is recomputed from the input.


@dataclass
class OwnProgram:
    """The program above, or one that contains it, with a continuous flow of input.

    Attributes:
        target: The program, as `streams run` takes it.
        options: Options of `streams run` that it needs.
        build: Makes its topology; its stores are verified with it.
    """

    target: str = "streams.drills.program:build"
    options: Sequence[str] = ("--max-records-per-trigger", "2000")
    build: Callable[[], Topology] = build

    @property
    def inputs(self) -> Mapping[str, int]:
        return dict.fromkeys(INPUTS, PARTITIONS)

    @property
    def outputs(self) -> Mapping[str, int]:
        """The output topics for pairs, closed windows and counts."""
        return dict.fromkeys(OUTPUTS, PARTITIONS)

    def load(self, servers: str, seed: int, begin_ms: int | None = None) -> Load:
        """The flow of orders and payments."""
        return Load(servers, seed, begin_ms)

    def complete(self, place: Site, readers: Mapping[str, OutsideReader]) -> Callable[[], bool]:
        """Compares the number of results: the input gives a known number in each topic."""
        total = {topic: results.total() for topic, results in wanted_results(place.servers).items()}
        return lambda: all(len(readers[topic].records) >= count for topic, count in total.items())

    def wrong(self, place: Site, seen: Mapping[str, Sequence[Read]]) -> list[str]:
        """Compares results with the model, and local stores with the model and their changelogs."""
        servers = place.servers
        config = StreamsConfig(
            application_id=place.application_id, bootstrap_servers=servers, base_dir=place.base_dir, tasks=PARTITIONS
        )
        wanted = wanted_results(servers)
        return [
            *wrong_outputs(servers, wanted, seen),
            *wrong_commits(servers, place.application_id),
            *wrong_state(self.build(), config, place.folder / "restored", wanted),
        ]
