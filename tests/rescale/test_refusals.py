"""A rescale that would lose or misplace rows is refused before anything is replaced."""

from __future__ import annotations

from typing import Any

import pytest

from streams import (
    BufferConfig,
    Grouped,
    JsonSerde,
    Materialized,
    Processor,
    Stores,
    StreamsBuilder,
    StringSerde,
    Suppressed,
)
from streams.errors import RescaleError
from streams.testing import TopologyTestDriver


class Counting(Processor):
    """Counts the records of each key, or of all keys, in a store."""

    def __init__(self, by_key: bool, remembers: bool = False) -> None:
        self.by_key = by_key
        self.remembers = remembers

    def process(self, record: Any) -> None:
        store = self.ctx.store("seen")
        place = record.key if self.by_key else "all"
        store.put(place, (store.get(place) or 0) + 1)
        if self.remembers:
            self.ctx.state["last"] = record.key
        self.ctx.forward(record.with_value(store.get(place)))


def processing(by_key: bool, remembers: bool = False) -> Any:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("seen", StringSerde(), JsonSerde()))
    counted = builder.stream("in").process(lambda: Counting(by_key, remembers), stores=["seen"], named="counting")
    counted.to("out")
    return builder.build()


def send(driver: TopologyTestDriver, keys: str) -> list[Any]:
    """Sends a record for each key; the new results."""
    before = len(driver.create_output_topic("out").read_records_to_list())
    topic = driver.create_input_topic("in")
    for key in keys:
        topic.pipe_input(key, {"v": 1}, 1)
    return [record.value for record in driver.create_output_topic("out").read_records_to_list()][before:]


def test_a_processors_store_is_moved_on_the_users_word_that_it_is_by_key():
    with TopologyTestDriver(processing(by_key=True), tasks=2) as driver:
        assert send(driver, "abcd") == [1, 1, 1, 1]
        with pytest.raises(RescaleError, match="--by-key seen"):
            driver.rescale(3)
        assert send(driver, "abcd") == [2, 2, 2, 2]
        driver.rescale(3, by_key=["seen"])
        assert send(driver, "abcd") == [3, 3, 3, 3]


def test_a_wrong_word_of_the_user_is_found_out_by_the_rows():
    with TopologyTestDriver(processing(by_key=False), tasks=2) as driver:
        send(driver, "abcdefgh")
        with pytest.raises(RescaleError, match="its rows are not stored under the keys of their records"):
            driver.rescale(3, by_key=["seen"])


def test_a_processors_state_is_refused_copied_or_dropped():
    with TopologyTestDriver(processing(by_key=True, remembers=True), tasks=1) as driver:
        send(driver, "ab")
        with pytest.raises(RescaleError, match="--state counting=copy"):
            driver.rescale(2, by_key=["seen"])
        driver.rescale(2, by_key=["seen"], states={"counting": "copy"})
        assert send(driver, "ab") == [2, 2]


def test_a_store_without_a_changelog_is_lost_only_on_the_users_word():
    builder = StreamsBuilder()
    how = Materialized("counts", logging=False, caching=False)
    builder.stream("in").group_by_key().count(materialized=how).to_stream().to("out")
    with TopologyTestDriver(builder.build(), tasks=1) as driver:
        assert send(driver, "aa") == [1, 2]
        with pytest.raises(RescaleError, match="--drop counts"):
            driver.rescale(2)
        driver.rescale(2, drop=["counts"])
        assert send(driver, "a") == [1]


def test_a_store_with_another_key_serde_than_its_records_have_is_refused():
    class Upper(StringSerde):
        """Writes other bytes than the source has."""

        def serialize(self, topic: str, value: Any, headers: Any = None) -> bytes | None:
            return super().serialize(topic, value and value.upper(), headers)

    builder = StreamsBuilder()
    how = Materialized("counts", key_serde=Upper())
    builder.stream("in").group_by_key(Grouped(key_serde=StringSerde())).count(materialized=how).to_stream().to("out")
    with TopologyTestDriver(builder.build(), tasks=1) as driver:
        send(driver, "a")
        with pytest.raises(RescaleError, match="do not tell where a row belongs"):
            driver.rescale(2)


def test_a_bounded_suppression_counts_its_buffer_again():
    builder = StreamsBuilder()
    limit = Suppressed.until_time_limit(1000, BufferConfig(max_records=3, emit_early=True))
    builder.table("in").suppress(limit).to_stream().to("out")
    with TopologyTestDriver(builder.build(), tasks=2) as driver:
        assert send(driver, "abcd") == []
        driver.rescale(1)
        # Five updates in one buffer of three.
        assert len(send(driver, "e")) == 2
