"""Event times in seconds or microseconds are noticed: counted for the source, and named once, whatever extracts them."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from streams import Consumed, JsonSerde, Repartitioned, StreamsBuilder, StringSerde, agg, col, timestamp_field
from streams.engine.graph.event_time import IN_MICROSECONDS, IN_SECONDS, in_other_units
from streams.errors import RecordFailedError
from streams.testing import TopologyTestDriver

NOW_S = 1_790_000_000
NOW_MS = NOW_S * 1000


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([], {}),
        ([0, 5, 86_400_000], {}),
        ([NOW_MS, NOW_MS + 1], {}),
        ([NOW_MS, NOW_S, NOW_S + 1], {IN_SECONDS: 2}),
        ([NOW_MS * 1000, -1], {IN_MICROSECONDS: 1}),
        ([NOW_MS * 1_000_000, NOW_S, -(2**63)], {IN_SECONDS: 1, IN_MICROSECONDS: 1}),
    ],
)
def test_units_by_the_size_of_times(times: list[int], found: dict[str, int]) -> None:
    assert in_other_units(np.array(times, np.int64)) == found


def by_field(stream):
    stream.to("out")


def by_columns(stream):
    stream.group_by_key().aggregate(n=agg.count()).to_stream().to("out")


def by_records(stream):
    stream.map_values(lambda v: v).repartition(Repartitioned(name="again")).to("out")


@pytest.mark.parametrize("program", [by_field, by_columns, by_records])
@pytest.mark.parametrize(
    "extractor", [None, timestamp_field("at"), timestamp_field(col("at") + 0)], ids=["kafka", "field", "expression"]
)
def test_seconds_are_counted_and_named_once(program, extractor, caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder()
    how = {} if extractor is None else {"timestamp_extractor": extractor}
    program(builder.stream("in", Consumed(StringSerde(), JsonSerde(), **how)))
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver, caplog.at_level(logging.WARNING):
        for second in range(3):
            driver.create_input_topic("in").pipe_input("a", {"at": NOW_S + second}, NOW_S + second)
        counts = {name: count for name, count in driver.counts().items() if name.startswith(IN_SECONDS)}
    assert list(counts.values()) == [3], "once, and not again behind the repartition topic"
    assert driver.metrics()["KSTREAM-SOURCE-in"].other[IN_SECONDS] == 3
    (said,) = [record.getMessage() for record in caplog.records]
    assert (
        "event times of 'KSTREAM-SOURCE-in' look like seconds: read as milliseconds they are of the first months of 1970"
        in said
    )
    assert "timestamp_field('...', unit='s')" in said


def test_a_field_with_its_unit_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder()
    by_field(
        builder.stream("in", Consumed(StringSerde(), JsonSerde(), timestamp_extractor=timestamp_field("at", unit="s")))
    )
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        driver.create_input_topic("in").pipe_input("a", {"at": NOW_S}, 0)
        assert driver.create_output_topic("out").read_record().timestamp == NOW_MS
    assert not caplog.records


def test_microseconds_are_refused_with_a_hint_and_noticed_where_they_are_not(caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder()
    by_field(builder.stream("in"))
    topology = builder.build()
    with (
        TopologyTestDriver(topology, rocksdb=False, start_ms=NOW_MS, max_future_ms=86_400_000) as driver,
        pytest.raises(RecordFailedError, match="looks like micro- or nanoseconds"),
    ):
        driver.create_input_topic("in").pipe_input("a", 1, NOW_MS * 1000)
    with TopologyTestDriver(topology, rocksdb=False, start_ms=NOW_MS) as driver:
        driver.create_input_topic("in").pipe_input("a", 1, NOW_MS * 1000)
    assert "look like micro- or nanoseconds" in caplog.text
