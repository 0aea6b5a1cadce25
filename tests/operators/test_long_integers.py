"""Integers beyond 64 bits are exact wherever the engine reads a field: in columns, expressions, keys, joins and aggregates."""

from __future__ import annotations

from typing import Any

import pytest

from streams import Consumed, JoinWindows, JsonSerde, Materialized, StreamsBuilder, agg, col, fields
from streams.testing import TopologyTestDriver

ONE, OTHER = 2**64 + 1, 2**64 + 2  # one float
TOKEN = 12345678901234567890123


class WholeRecords(JsonSerde):
    """Not exactly `JsonSerde`, so values are read whole and processed record by record."""


def expressions(stream: Any) -> Any:
    return stream.map_values(fields(next=col("id") + 1, half=col("id") // 2, text=col("id").cast(str), id=col("id")))


def nested(stream: Any) -> Any:
    return stream.map_values(fields(list=col("list"), item=col("list.0"), of=col("in.id")))


def compared(stream: Any) -> Any:
    return stream.filter((col("id") == col("list.0")) & (col("id") > 2**64) & col("id").isin([ONE, OTHER, TOKEN]))


def by_expression(stream: Any) -> Any:
    return stream.group_by(col("id").cast(str)).aggregate(n=agg.count(), last=agg.last("id")).to_stream()


def deduplicated(stream: Any) -> Any:
    return stream.deduplicate(1000, by=col("id"))


def joined(stream: Any) -> Any:
    both = fields(left=["id"], sum=col("left.id") + col("right.id"), one=col("left.list"))
    return stream.join(stream, both, JoinWindows.of_time_difference_with_no_grace(0))


def aggregated(stream: Any) -> Any:
    kinds = ("sum", "min", "max", "first", "last")
    wanted = {kind: getattr(agg, kind)("id") for kind in kinds}
    how = Materialized("s", caching=False)
    return stream.group_by_key().aggregate(**wanted, lists=agg.last("list"), materialized=how).to_stream()


EXPECTED: list[tuple[Any, Any]] = [
    (expressions, [{"next": n + 1, "half": n // 2, "text": str(n), "id": n} for n in (ONE, OTHER, TOKEN)]),
    (nested, [{"list": [n], "item": n, "of": n} for n in (ONE, OTHER, TOKEN)]),
    (compared, [{"id": n, "list": [n], "in": {"id": n}} for n in (ONE, OTHER, TOKEN)]),
    (by_expression, [{"n": 1, "last": n} for n in (ONE, OTHER, TOKEN)]),
    (deduplicated, [{"id": n, "list": [n], "in": {"id": n}} for n in (ONE, OTHER, TOKEN)]),
    (joined, [{"id": n, "sum": 2 * n, "one": [n]} for n in (ONE, OTHER, TOKEN)]),
    (
        aggregated,
        [
            {"sum": s, "min": ONE, "max": n, "first": ONE, "last": n, "lists": [n]}
            for s, n in ((ONE, ONE), (ONE + OTHER, OTHER), (ONE + OTHER + TOKEN, TOKEN))
        ],
    ),
]


@pytest.mark.parametrize("serde", [JsonSerde(), WholeRecords()], ids=["columns", "records"])
@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize(("build", "expected"), EXPECTED, ids=lambda one: getattr(one, "__name__", ""))
def test_they_stay_what_they_are(build, expected, restarts, serde):
    builder = StreamsBuilder()
    build(builder.stream("in", Consumed(value_serde=serde))).to("out")
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        topic = driver.create_input_topic("in")
        for at, number in enumerate((ONE, OTHER, TOKEN)):
            topic.pipe_bytes(b"k", b'{"id":%d,"list":[%d],"in":{"id":%d}}' % (number, number, number), at)
            if restarts:
                driver.restart()
        assert driver.create_output_topic("out").read_values_to_list() == expected


@pytest.mark.parametrize("serde", [JsonSerde(), WholeRecords()], ids=["columns", "records"])
def test_keys_are_two(serde):
    keys = JsonSerde()
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key_serde=keys, value_serde=serde))
    stream.group_by_key().count(named="read").to_stream().map(lambda key, n: ("k", [key, n])).to("read-keys")
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        for number in (ONE, OTHER, ONE):
            driver.create_input_topic("in").pipe_bytes(str(number).encode(), b"{}", 1)
        found = driver.create_output_topic("read-keys").read_values_to_list()
        assert found == [[ONE, 1], [OTHER, 1], [ONE, 2]]
