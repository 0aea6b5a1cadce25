"""`to_delta` and `foreach_batch` in a topology: columns, rows, errors, and the rows that the test driver shows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pytest

from state.columns import RecordColumns, binary_column
from streams import JsonSerde, KStream, StreamsBuilder, TimeWindows, Topology, TopologyError
from streams.errors import RecordFailedError, RowError
from streams.lake.writer import PARTITION, arrow_schema, row_batch
from streams.model.record import Record
from streams.model.table_columns import ColumnRule, ListType, RecordPart, RowLayout, RowMaker, ScalarType, TableColumn
from streams.testing import TopologyTestDriver
from streams.topology.diff import compare
from streams.topology.manifest import manifest
from tests.doctor.world import World

AT = datetime(1970, 1, 1, tzinfo=timezone.utc)
MS = timedelta(milliseconds=1)


@dataclass
class Leg:
    origin: str
    miles: int | None = None


@dataclass
class Flight:
    carrier: str
    delay: float | None
    day: date
    price: Decimal
    legs: list[Leg]
    tags: dict[str, str]


class Order(TypedDict):
    item: str
    amount: int


def orders(builder: StreamsBuilder) -> KStream[str, Any]:
    return builder.stream("orders", value_serde=JsonSerde(Order))


def rows(topology: Topology, records: list[tuple[Any, Any, int]], name: str, **settings: Any) -> list[dict[str, Any]]:
    with TopologyTestDriver(topology, **settings) as driver:
        (topic,) = {str(topic) for source in topology.sources() for topic in source.topics}
        piped = driver.create_input_topic(topic)
        for key, value, at in records:
            piped.pipe_input(key, value, at)
        return driver.table_rows(name)


def test_columns_of_a_typed_stream_are_its_key_timestamp_and_fields() -> None:
    builder = StreamsBuilder()
    builder.stream("flights", value_serde=JsonSerde(Flight)).to_delta("/lake/flights")
    flight = Flight("AA", None, date(2013, 1, 2), Decimal("9.50"), [Leg("JFK", 7), Leg("LAX")], {"a": "b"})
    (row,) = rows(builder.build(), [("k", flight, 5)], "/lake/flights")
    assert row == {
        "key": "k",
        "timestamp": AT + 5 * MS,
        "carrier": "AA",
        "delay": None,
        "day": date(2013, 1, 2),
        "price": Decimal("9.50"),
        "legs": [{"origin": "JFK", "miles": 7}, {"origin": "LAX", "miles": None}],
        "tags": [("a", "b")],
    }


def test_a_set_is_an_array_in_a_fixed_order() -> None:
    words, numbers = ListType(ScalarType("STRING")), ListType(ListType(ScalarType("BIGINT")))
    assert words.cell(set("hgfedcba")) == list("abcdefgh")
    assert words.cell({"b", None, "a"}) == [None, "a", "b"]
    assert numbers.cell({(2, None), (2, 1), (1, 5)}) == [[1, 5], [2, 1], [2, None]]
    assert words.cell(["b", "a"]) == ["b", "a"]


def test_the_manifest_names_columns_in_spark_sql() -> None:
    builder = StreamsBuilder()
    builder.stream("flights", value_serde=JsonSerde(Flight)).to_delta("/lake/flights")
    (sink,) = manifest(builder.build())["lake_sinks"].values()
    assert sink["columns"] == {
        "key": "STRING",
        "timestamp": "TIMESTAMP",
        "carrier": "STRING",
        "delay": "DOUBLE",
        "day": "DATE",
        "price": "DECIMAL(38,18)",
        "legs": "ARRAY<STRUCT<`origin`: STRING, `miles`: BIGINT>>",
        "tags": "MAP<STRING, STRING>",
    }


def test_a_table_upserts_by_key_and_a_tombstone_deletes() -> None:
    builder = StreamsBuilder()
    builder.table("orders", value_serde=JsonSerde(Order)).to_delta("lake.orders", timestamp=None)
    records = [
        ("a", {"item": "x", "amount": 1}, 1),
        ("b", {"item": "y", "amount": 2}, 2),
        ("a", {"item": "x", "amount": 3}, 3),
        ("b", None, 4),
    ]
    assert rows(builder.build(), records, "lake.orders") == [{"key": "a", "item": "x", "amount": 3}]


def test_windowed_results_have_their_window_as_columns() -> None:
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_with_no_grace(timedelta(seconds=1))
    counts = orders(builder).group_by_key().windowed_by(windows).count()
    counts.to_delta("/lake/counts", value="orders", timestamp=None)
    order = {"item": "x", "amount": 1}
    found = rows(builder.build(), [("a", order, 5), ("a", order, 6), ("a", order, 1500)], "delta-counts")
    assert found == [
        {"key": "a", "window_start": AT, "window_end": AT + 1000 * MS, "orders": 2},
        {"key": "a", "window_start": AT + 1000 * MS, "window_end": AT + 2000 * MS, "orders": 1},
    ]


def test_upserts_by_fields_of_the_value_take_the_last_record_of_them_whatever_its_key() -> None:
    builder = StreamsBuilder()
    orders(builder).to_delta("/lake/items", "upsert", keys="item", key=None, timestamp=None)
    records = [(key, {"item": "x", "amount": at}, at) for at, key in enumerate("abcde")]
    found = rows(builder.build(), records, "/lake/items", partitions={"orders": 3})
    assert found == [{"item": "x", "amount": 4}]


@pytest.mark.parametrize(
    "numbers",
    [
        ("10.5", "10.50"),
        ("10.50", "10.5"),
        ("0", "-0.000"),
        (-0.0, 0.0),
        (0.0, -0.0),
        ("12345678901234567890", "1234567890123456789e1"),
    ],
)
def test_equal_numbers_are_one_key_whose_last_record_is_the_row(numbers: tuple[Any, Any]) -> None:
    builder = StreamsBuilder()
    schema = {"price": Decimal if isinstance(numbers[0], str) else float, "amount": int}
    stream = builder.stream("orders", value_serde=JsonSerde())
    stream.to_delta("/lake/prices", "upsert", keys="price", key=None, timestamp=None, schema=schema)
    records = [("k", {"price": number, "amount": at}, at) for at, number in enumerate(numbers)]
    (found,) = rows(builder.build(), records, "/lake/prices", partitions={"orders": 16})
    assert found["amount"] == 1


def test_rows_whose_keys_an_earlier_version_wrote_otherwise_come_first() -> None:
    price = TableColumn("price", ScalarType("DECIMAL(38,18)"), RecordPart.FIELD)
    layout = RowLayout((price, TableColumn("who", ScalarType("STRING"), RecordPart.FIELD)), ("price",))
    cells = [b"10.50", b"10.5", b"-0"]
    columns = RecordColumns(
        "internal",
        3,
        np.arange(3),
        np.zeros(3, np.int64),
        binary_column([b'["' + cell + b'"]' for cell in cells]),
        binary_column([b'{"price":"' + cell + b'","who":"x"}' for cell in cells[:2]] + [None]),
    )
    assert row_batch(columns, layout, arrow_schema(layout)).column(PARTITION).to_pylist() == [-4, 3, -4]


def test_append_writes_records_without_a_value_as_nulls() -> None:
    builder = StreamsBuilder()
    orders(builder).to_delta("/lake/orders", timestamp=None)
    assert rows(builder.build(), [("a", None, 1)], "/lake/orders") == [{"key": "a", "item": None, "amount": None}]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"item": "four", "amount": 1}, "the column 'item' of the table takes 3 characters, and the text has 4"),
        ({"item": "x"}, "the column 'amount' of the table is NOT NULL"),
        ({"item": None, "amount": 1}, ""),
    ],
)
def test_a_record_that_breaks_a_rule_of_the_table_does_not_fit(
    value: dict[str, Any], said: str, tmp_path: Path
) -> None:
    builder = StreamsBuilder()
    schema = {"item": str | None, "amount": int | None}
    builder.stream("in", value_serde=JsonSerde()).to_delta("/lake/orders", schema=schema)
    world = World(tmp_path, builder.build())
    application, _ = world.plan()
    rules = ColumnRule("item", longest=3), ColumnRule("amount", required=True)
    (prepared,) = application.with_rules({"delta-orders": rules}).subs
    assert prepared.sub.topology_hash == application.subs[0].sub.topology_hash
    layout = prepared.sub.nodes["delta-orders-rows"].spec.layout  # type: ignore[union-attr]
    record = Record("k", value, 1)
    if said:
        with pytest.raises(RowError, match=said):
            RowMaker(layout).row(record)
    else:
        assert RowMaker(layout).row(record)[1] == {"key": "k", "timestamp": 1000, **value}


WRONG = ("a", {"item": 1, "amount": "many"}, 7)


def test_a_record_that_does_not_fit_fails_with_its_place_and_its_field() -> None:
    builder = StreamsBuilder()
    builder.stream("orders", value_serde=JsonSerde()).to_delta("/lake/orders", schema={"item": str, "amount": int})
    with pytest.raises(RecordFailedError, match=r"the field 'item': 1 is not a valid STRING") as failed:
        rows(builder.build(), [WRONG], "/lake/orders")
    assert (failed.value.topic, failed.value.partition, failed.value.offset) == ("orders", 0, 0)
    assert failed.value.key == b"a"


def test_a_record_that_does_not_fit_may_become_a_dead_letter() -> None:
    builder = StreamsBuilder()
    builder.stream("orders", value_serde=JsonSerde()).to_delta("/lake/orders", schema=Order, timestamp=None)
    with TopologyTestDriver(builder.build(), processing="dlq", dead_letter_topic="dead") as driver:
        piped = driver.create_input_topic("orders")
        piped.pipe_input(*WRONG)
        piped.pipe_input("b", {"item": "x", "amount": 2}, 8)
        assert driver.table_rows("/lake/orders") == [{"key": "b", "item": "x", "amount": 2}]
        assert driver.create_output_topic("dead").queue_size == 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"item": "x"}, "'amount' is missing or None"),
        ({"item": "x", "amount": True}, "True is not a valid BIGINT"),
        ({"item": "x", "amount": 2**63}, "9223372036854775808 is not a valid BIGINT"),
        ("text", "has no fields"),
    ],
)
def test_values_that_a_column_cannot_hold_are_refused(value: Any, said: str) -> None:
    builder = StreamsBuilder()
    builder.stream("orders", value_serde=JsonSerde()).to_delta("/lake/orders", schema=Order)
    with pytest.raises(RecordFailedError, match=said):
        rows(builder.build(), [("a", value, 1)], "/lake/orders")


def test_a_record_without_a_key_cannot_be_upserted() -> None:
    builder = StreamsBuilder()
    orders(builder).to_delta("/lake/orders", "upsert")
    with pytest.raises(RecordFailedError, match="'key' is a key of the table's rows"):
        rows(builder.build(), [(None, {"item": "x", "amount": 1}, 1)], "/lake/orders")


def test_a_tombstone_cannot_delete_by_a_field_that_it_does_not_have() -> None:
    builder = StreamsBuilder()
    orders(builder).to_delta("/lake/orders", "upsert", keys="item")
    with pytest.raises(RecordFailedError, match="the column 'item', which is part of the value"):
        rows(builder.build(), [("a", None, 1)], "/lake/orders")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schema": None}, "the values' type is unknown"),
        ({"schema": {"key": str, "item": complex}}, "the column 'item' cannot have the type complex"),
        ({"schema": {"timestamp": int}}, "two columns are called 'timestamp'"),
        ({"schema": {"_offset": int}}, "no column may be called '_offset'"),
        ({"mode": "merge", "schema": Order}, "the mode is 'append' or 'upsert'"),
        ({"keys": "item", "schema": Order}, "needs mode='upsert'"),
        ({"mode": "upsert", "keys": "id", "schema": Order}, "'id' is none of the columns key, timestamp, item, amount"),
        ({"mode": "upsert", "key": None, "schema": Order}, "'key' is none of the columns timestamp, item, amount"),
        ({"partition_by": "day", "schema": Order}, "day is none of key, timestamp, item, amount"),
        ({"records_per_file": 0, "schema": Order}, "records_per_file=0"),
        ({"named": "a b", "schema": Order}, "cannot be the name of an operator"),
    ],
)
def test_mistakes_are_found_while_the_topology_is_built(options: dict[str, Any], said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        StreamsBuilder().stream("orders", value_serde=JsonSerde()).to_delta("/lake/orders", **options)


def test_two_sinks_need_two_names() -> None:
    builder = StreamsBuilder()
    orders(builder).to_delta("/lake/orders")
    with pytest.raises(TopologyError, match="Two lake sinks are called 'delta-orders'"):
        orders(builder).to_delta("/other/orders")


def test_a_sink_adds_one_topic_and_leaves_names_and_hashes_of_the_rest_alone() -> None:
    def build(lake: bool) -> Topology:
        builder = StreamsBuilder()
        stream = orders(builder)
        if lake:
            stream.to_delta("/lake/orders")
        stream.group_by_key().count().to_stream().to("counts")
        return builder.build()

    with_sink, without = manifest(build(True)), manifest(build(False))
    (one,), (other,) = with_sink["sub_topologies"].values(), without["sub_topologies"].values()
    assert (one["hash"], one["stores"], one["operators"]) == (other["hash"], other["stores"], other["operators"])
    assert with_sink["repartition_topics"] == {"delta-orders-repartition": None}
    assert "lake_sinks" not in without
    assert not [change for change in compare(without, build(True)) if change.refused]


def test_descriptions_show_the_table() -> None:
    builder = StreamsBuilder()
    orders(builder).to_delta("/lake/orders")
    topology = builder.build()
    assert "(topic: delta-orders-repartition, delta table /lake/orders)" in topology.describe()
    assert "delta-orders-repartition --> delta table /lake/orders (key, timestamp, item, amount)" in topology.explain()
    assert "delta table /lake/orders" in topology.mermaid()


def test_columns_may_come_and_go_but_not_change_their_type_under_the_same_name() -> None:
    def build(**schema: Any) -> Topology:
        builder = StreamsBuilder()
        builder.stream("orders").to_delta("/lake/orders", schema=schema)
        return builder.build()

    before = manifest(build(item=str, amount=int))
    assert not [change for change in compare(before, build(item=str, note=str)) if change.refused]
    (refused,) = [change for change in compare(before, build(item=str, amount=float)) if change.refused]
    assert "has other types of amount" in refused.says


def test_rows_of_the_program_before_are_read_by_the_next_one() -> None:
    def build(**schema: Any) -> Topology:
        builder = StreamsBuilder()
        builder.stream("orders", value_serde=JsonSerde()).to_delta("/lake/orders", schema=schema, timestamp=None)
        return builder.build()

    with TopologyTestDriver(build(item=str, amount=int)) as driver:
        piped = driver.create_input_topic("orders")
        piped.pipe_input("a", {"item": "x", "amount": 1, "note": "n"}, 1)
        driver.restart(topology=build(note=str | None, item=str))
        piped.pipe_input("b", {"item": "y", "amount": 2, "note": "n"}, 2)
        assert driver.table_rows("/lake/orders") == [
            {"key": "a", "note": None, "item": "x"},
            {"key": "b", "note": "n", "item": "y"},
        ]


def test_foreach_batch_has_a_name_and_the_same_columns() -> None:
    builder = StreamsBuilder()
    orders(builder).foreach_batch(lambda frame, batch: None, "warehouse", timestamp=None)
    found = rows(builder.build(), [("a", {"item": "x", "amount": 1}, 1)], "warehouse")
    assert found == [{"key": "a", "item": "x", "amount": 1}]


def test_a_sink_that_does_not_exist_is_an_error_that_names_the_others() -> None:
    builder = StreamsBuilder()
    orders(builder).to_delta("/lake/orders")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(LookupError, match="delta-orders"):
        driver.table_rows("orders")
