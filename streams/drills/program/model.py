"""The expected results of the topology in plain Python, from its input records: no Spark, no RocksDB, no order of arrival."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import orjson

from state.kafka.partitioner import partition_for_key
from streams.drills.program.topology import (
    CLOSED,
    GRACE_MS,
    NEAR_MS,
    PAIRS,
    PARTITIONS,
    REGIONS,
    TOTALS,
    WINDOW_MS,
    region,
)

LARGEST = 1_000_000
"""Characters of a pair that the client would refuse to send; it becomes a dead letter instead."""

Results = Mapping[str, Counter[tuple[object, ...]]]
"""By output topic: each result with its expected number, which is one."""


class Event(NamedTuple):
    """An order or a payment."""

    key: str
    id: str
    time: int


def expected(orders: Iterable[Event], payments: Iterable[Event]) -> Results:
    """All results of the given inputs, none of which is late."""
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


def _pairs(orders: Iterable[Event], payments: Iterable[Event]) -> Iterator[tuple[str, str, str]]:
    by_key: dict[tuple[str, int], list[Event]] = defaultdict(list)
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
    """A record of an output topic in the model's form."""
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
    """Descriptions of the counts of a key that do not arrive as 1, 2, 3 and so on."""
    last: dict[object, int] = {}
    said = []
    for key, count in results:
        assert isinstance(count, int)
        if count != last.get(key, 0) + 1:
            said.append(f"{topic}: {key} has {count} after {last.get(key, 0)}")
        last[key] = count
    return said
