"""Typed values on their way through a topology: policies, columns, timestamps, and the processes that values cross."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

import pytest

from streams import (
    Consumed,
    JsonSerde,
    Materialized,
    Processor,
    StreamsBuilder,
    StringSerde,
    TopologyError,
    agg,
    timestamp_field,
)
from streams.model.timestamps import ConsumedRecord
from streams.testing import TopologyTestDriver
from streams.topology.plan import build_plan


@dataclass
class Order:
    id: int
    amount: float = 1.0
    at: datetime | None = None


TYPED = Consumed(value_serde=JsonSerde(Order))


def sums(consumed=None):
    builder = StreamsBuilder()
    builder.stream("orders", consumed).group_by_key().aggregate(amount=agg.sum("amount"), n=agg.count()).to_stream().to(
        "sums"
    )
    return builder.build()


def results(topology, values, **settings):
    with TopologyTestDriver(topology, **settings) as driver:
        source = driver.create_input_topic("orders", StringSerde(), JsonSerde())
        for value in values:
            source.pipe_input("k", value)
        found = driver.create_output_topic("sums", StringSerde(), JsonSerde()).read_key_values_to_map()
        return found, driver.counts


def test_fields_of_typed_values_are_aggregated_and_defaults_count():
    found, _ = results(sums(TYPED), [{"id": 1, "amount": 2.5}, {"id": 2}])
    assert found == {"k": {"amount": 3.5, "n": 2}}


def test_typed_values_are_read_as_a_whole_and_plain_ones_as_columns():
    forms = [build_plan(sums(consumed), "app").sub_topologies[0].entries[0].transport for consumed in (TYPED, None)]
    assert forms == ["raw", "columns"]


def test_a_value_of_another_shape_is_the_policys_affair_though_the_field_that_counts_is_there():
    values = [{"id": "one", "amount": 1.0}, {"id": 2, "amount": 2.0}]
    found, _ = results(sums(TYPED), values, deserialization="skip")
    assert found == {"k": {"amount": 2.0, "n": 1}}


def test_the_store_of_built_in_aggregates_takes_no_typed_serde():
    grouped = StreamsBuilder().stream("orders", TYPED).group_by_key()
    with pytest.raises(TopologyError, match="leave the value_serde out"):
        grouped.aggregate(amount=agg.sum("amount"), materialized=Materialized(value_serde=JsonSerde(Order)))


@pytest.mark.parametrize(
    ("at", "ms"),
    [(datetime(2024, 5, 1, tzinfo=timezone.utc), 1_714_521_600_000), (datetime(2024, 5, 1), 1_714_521_600_000)],  # noqa: DTZ001
)
def test_the_time_of_a_record_is_an_attribute_of_its_value(at, ms):
    record = ConsumedRecord("orders", 0, 0, 0, value=Order(1, at=at))
    assert timestamp_field("at").extract(record, -1, 0) == ms


def test_a_value_that_a_task_gets_is_a_copy_of_the_same_class_as_in_a_worker():
    made, got = [], []

    def order(value):
        made.append(Order(value["id"]))
        return made[-1]

    class Look(Processor):
        def process(self, record):
            got.append(record.value)

    builder = StreamsBuilder()
    builder.stream("orders").map_values(order).process(Look)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("orders").pipe_input("k", {"id": 1})
    assert got == made
    assert got[0] is not made[0]


def test_state_that_was_written_without_a_type_is_read_with_one():
    def topology(value_serde):
        builder = StreamsBuilder()
        builder.table("orders", Consumed(value_serde=value_serde), Materialized(name="orders"))
        return builder.build()

    with TopologyTestDriver(topology(JsonSerde())) as driver:
        driver.create_input_topic("orders").pipe_input("k", {"id": 1, "surplus": True})
        driver.restart(topology=topology(JsonSerde(Order)))
        assert driver.get_store("orders").get("k").value == Order(1)
