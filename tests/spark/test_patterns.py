"""What only Kafka shows: which topics a pattern finds, where a duration begins, and a global store that a processor keeps."""

from __future__ import annotations

import re
import time
from datetime import timedelta

import pytest

from state.errors import TopicNotFoundError
from streams import Consumed, Materialized, Processor, Record, Stores, StreamsBuilder, StringSerde, TopologyError
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent

TEXT = StringSerde()
HOUR_MS = 3_600_000


class ByCode(Processor):
    """Countries by code, from topics that have them by name."""

    def process(self, record: Record) -> None:
        self.ctx.store("by-code").put(record.value, record.key, record.timestamp)


class Country(Processor):
    def process(self, record: Record) -> None:
        code, _, count = record.value.partition("=")
        self.ctx.forward(record.with_value(f"{self.ctx.store('by-code').get(code)}={count}"))


def program(harness: Harness, countries: str, target: str) -> Topology:
    """Counts the orders of each country over all topics of orders, of the last hour when a topic is first seen."""
    builder = StreamsBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    builder.add_global_store(Stores.key_value_store("by-code", TEXT, TEXT), countries, ByCode)
    orders = re.compile(re.escape(harness.application_id) + r"\.orders-.*")
    stream = builder.stream(orders, Consumed(offset_reset=timedelta(hours=1), name="orders"))
    counts = stream.group_by_key().count("counted", Materialized(name="counts", caching=False))
    named = counts.to_stream().map(lambda code, count: (code, f"{code}={count}"))
    named.process(Country, ["by-code"], "named").to(target)
    return builder.build()


def test_a_pattern_a_duration_and_a_global_store(harness: Harness) -> None:
    countries, target = harness.topic("countries", 2), harness.topic("out", 1)
    topology = program(harness, countries, target)
    with pytest.raises(TopologyError, match="No topic matches"):
        harness.run(topology)

    now = int(time.time() * 1000)
    old, new = now - 3 * HOUR_MS, now - HOUR_MS // 2

    def order(topic: str, *orders: tuple[str, int]) -> None:
        harness.send(topic, [Sent(code.encode(), b"an order", at, 0) for code, at in orders])

    def results() -> list[str]:
        return [record.value.decode() for record in harness.read(target) if record.value is not None]

    eu, us, other = harness.topic("orders-eu", 2), harness.topic("orders-us", 1), harness.topic("my-orders-eu", 1)
    harness.send(countries, [Sent(b"Germany", b"DE", now), Sent(b"Peru", b"PE", now)])
    order(eu, ("DE", old), ("DE", old), ("DE", new))
    order(us, ("PE", old), ("DE", new + 1))
    order(other, ("DE", new))
    harness.run(topology)
    assert results() == ["Germany=1", "Germany=2"]

    # A new topic is found by the next start, and begins where the policy says; what is known goes on, with its state.
    asia = harness.topic("orders-asia", 1)
    order(asia, ("PE", old), ("PE", new + 2))
    order(eu, ("DE", old))
    harness.run(topology)
    assert sorted(results()[2:]) == ["Germany=3", "Peru=1"]
    order(asia, ("PE", old))
    harness.run(topology)
    assert results()[4:] == ["Peru=2"]


def test_the_topic_of_a_global_store_must_exist(harness: Harness) -> None:
    harness.topic("orders-eu", 1)
    topology = program(harness, f"{harness.application_id}.nowhere", harness.topic("out", 1))
    with pytest.raises(TopicNotFoundError, match="nowhere"):
        harness.run(topology)
