"""On real Spark and Kafka: a new program on values of an older one, and records that go to several partitions."""

from __future__ import annotations

import shutil

from streams import JsonSerde, Materialized, Produced, StreamsBuilder, VersionedSerde
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent


def test_records_go_where_the_partitioner_says(harness: Harness) -> None:
    source, target = harness.topic("source", 2), harness.topic("target", 4)
    chosen = {b"one": 2, b"several": {3, 0}, b"none": (), b"kafka": None}
    builder = StreamsBuilder()
    builder.stream(source).to(target, Produced(partitioner=lambda topic, k, v, n: chosen[k.encode()] if n == 4 else 9))
    records = [Sent(key, b"%d" % at, at, headers=(("h", b"x"),)) for at, key in enumerate(chosen)]
    harness.send(source, records)
    harness.run(builder.build())
    found = harness.read(target)
    assert [(r.partition, r.key) for r in found if r.key != b"kafka"] == [(0, b"several"), (2, b"one"), (3, b"several")]
    assert sum(r.key == b"kafka" for r in found) == 1
    assert {r.headers for r in found} == {(("h", b"x"),)}


def totals(source: str, target: str, serde: object, unit: int) -> Topology:
    """Adds up the values of a key, kept under another name and in another unit from version 1 on."""
    name = "total" if unit == 1 else "cents"
    builder = StreamsBuilder()
    table = (
        builder.stream(source)
        .group_by_key()
        .aggregate(
            dict,
            lambda key, value, total: {name: total.get(name, 0) + value * unit},
            materialized=Materialized(name="totals", value_serde=serde),  # type: ignore[arg-type]
        )
    )
    table.to_stream().to(target, Produced(value_serde=JsonSerde()))
    return builder.build()


def test_a_new_program_goes_on_with_old_values(harness: Harness) -> None:
    source, target = harness.topic("source", 2), harness.topic("target", 1)

    def last(key: bytes) -> bytes | None:
        return [record.value for record in harness.read(target) if record.key == key][-1]

    new = totals(source, target, VersionedSerde(JsonSerde(), 1, {1: lambda v: {"cents": v["total"] * 100}}), 100)
    harness.send(source, [Sent(b"%d" % n, b"2", n) for n in range(6)])
    harness.run(totals(source, target, JsonSerde(), 1))
    assert last(b"0") == b'{"total":2}'
    # On the local state, and then on one that is restored from the changelog, which holds both versions.
    harness.send(source, [Sent(b"0", b"3", 10)])
    harness.run(new)
    assert last(b"0") == b'{"cents":500}'
    shutil.rmtree(harness.config().state_dir)
    harness.send(source, [Sent(b"%d" % n, b"1", 20) for n in range(6)])
    harness.run(new)
    assert [last(b"%d" % n) for n in range(6)] == [b'{"cents":600}', *[b'{"cents":300}'] * 5]
