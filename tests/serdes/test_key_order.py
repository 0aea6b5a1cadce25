"""Ranges of keys: in the order of the keys whatever their bytes, or refused; in every kind of store and by every way of reading."""

from __future__ import annotations

import math
import uuid
from datetime import date, datetime, timezone
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from streams import (
    BooleanSerde,
    BytesSerde,
    Consumed,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    JsonSerde,
    ListSerde,
    Materialized,
    Processor,
    Stores,
    StreamsBuilder,
    StringSerde,
    TimeWindowedSerde,
    TimeWindows,
    TupleSerde,
    UuidSerde,
)
from streams.errors import KeyOrderError, QueryError
from streams.model.record import Window, Windowed
from streams.serdes.order import check_bound, key_order
from streams.serve.app import Api
from streams.serve.http.security import Guard, Security
from streams.serve.requests import Limits
from streams.testing import TopologyTestDriver

NUMBERS = [-300, -3, -1, 0, 2, 5, 70, 1000]
SERDES = [Int16Serde(), Int32Serde(), Int64Serde(), Float32Serde(), Float64Serde()]
BOUNDS = [
    (-2, 3),
    (-3, -1),
    (0, None),
    (None, 0),
    (None, -2),
    (2, 70),
    (3, -2),
    (-1, -1),
    (None, None),
    (-1000, 20_000),
]


def within(lower, upper, reverse):
    return sorted(
        (n for n in NUMBERS if (lower is None or n >= lower) and (upper is None or n <= upper)), reverse=reverse
    )


def table(serde, tasks=1, numbers=NUMBERS):
    builder = StreamsBuilder()
    builder.table("in", Consumed(serde, StringSerde()), Materialized("rows"))
    driver = TopologyTestDriver(builder.build(), rocksdb=False, partitions={"in": tasks})
    for number in numbers:
        driver.create_input_topic("in").pipe_input(number, "x", 1)
    return driver


class Asks(Processor):
    """Reads a range with the bounds and the direction that a record's value has."""

    def process(self, record):
        lower, upper, reverse = record.value
        rows = self.ctx.store("kept")
        found = rows.reverse_range(lower, upper) if reverse else rows.range(lower, upper)
        self.ctx.forward(record.with_value([key for key, _ in found]))


def served_range(client, bounds, reverse):
    """All keys of a range over HTTP, two rows a page."""
    asked = {name: str(one) for name, one in zip(("from", "to"), bounds, strict=True) if one is not None}
    found, cursor = [], ""
    while cursor is not None:
        more = {"cursor": cursor} if cursor else asked
        page = client.get("/v1/stores/rows/range", params={"limit": 2, "reverse": str(reverse).lower(), **more}).json()
        found += [row["key"] for row in page["rows"]]
        cursor = page["cursor"]
    return found


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("serde", SERDES, ids=repr)
def test_ranges_of_numbers_are_in_the_order_of_numbers(serde, tasks):
    with table(serde, tasks) as driver:
        stored = driver.get_key_value_store("rows")
        api = Api(driver.served(), Guard(Security()), Limits()).application()
        client = TestClient(api, client=("127.0.0.1", 1), base_url="http://localhost")
        for bounds, reverse in product(BOUNDS, (False, True)):
            wanted = within(*bounds, reverse)
            assert [key for key, _ in stored.range(*bounds, reverse)] == wanted, (bounds, reverse)
            assert served_range(client, bounds, reverse) == wanted, (bounds, reverse)


@pytest.mark.parametrize("kind", ["key_value_store", "timestamped_key_value_store"])
@pytest.mark.parametrize("serde", SERDES, ids=repr)
def test_ranges_in_a_processor(serde, kind):
    builder = StreamsBuilder()
    builder.add_state_store(getattr(Stores, kind)("kept", serde, StringSerde()))
    builder.stream("in").process(Asks, ["kept"]).to("out")
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        store = driver.get_key_value_store("kept")
        for number in NUMBERS:
            store.put(float(number) if isinstance(serde, Float32Serde | Float64Serde) else number, "x")
        for lower, upper in BOUNDS:
            for reverse in (False, True):
                driver.create_input_topic("in").pipe_input("a", [lower, upper, reverse], 1)
                assert driver.create_output_topic("out").read_value() == within(lower, upper, reverse)


def test_all_is_in_the_order_of_bytes():
    with table(Int32Serde()) as driver:
        found = [key for key, _ in driver.get_key_value_store("rows").all()]
    assert found == sorted(NUMBERS, key=lambda n: n & 0xFFFF_FFFF)


FLOATS = st.floats(allow_nan=False, width=32)


@given(st.lists(FLOATS), st.none() | FLOATS, st.none() | FLOATS, st.booleans(), st.sampled_from(SERDES))
def test_spans_hold_exactly_the_keys_between_their_bounds(numbers, lower, upper, reverse, serde):
    if not isinstance(serde, Float32Serde | Float64Serde):
        bits = 8 * key_order(serde).size - 1

        def whole(n):
            return None if n is None else int(max(-(2**bits), min(2**bits - 1, n)))

        numbers, lower, upper = [whole(n) for n in numbers], whole(lower), whole(upper)
    order, data = key_order(serde), sorted({serde.serialize("", n) for n in numbers})
    bounds = [None if one is None else serde.serialize("", one) for one in (lower, upper)]
    found = []
    for low, high, backwards in order.spans(*bounds, reverse):
        part = [key for key in data if (low is None or low <= key) and (high is None or key <= high)]
        found += part[::-1] if backwards else part
    values = [serde.deserialize("", key) for key in found]
    every = [serde.deserialize("", key) for key in data]
    wanted = [n for n in every if (lower is None or n >= lower) and (upper is None or n <= upper)]
    assert values == sorted(wanted, reverse=reverse)
    assert [order.key_of(order.rank(key)) for key in data] == data
    assert found == sorted(found, key=order.rank, reverse=reverse)


@pytest.mark.parametrize(
    ("serde", "bound"),
    [
        (JsonSerde(), -2),
        (JsonSerde(), 1.5),
        (JsonSerde(int), 3),
        (JsonSerde(), "New"),
        (JsonSerde(), True),
        (JsonSerde(), ["a"]),
        (JsonSerde(datetime), datetime(2026, 1, 1, tzinfo=timezone.utc)),
        (TupleSerde(StringSerde(), Int64Serde()), ("a", 1)),
        (ListSerde(Int64Serde()), [1]),
        (TimeWindowedSerde(StringSerde(), 10), Windowed("a", Window(0, 10))),
        (Float64Serde(), math.nan),
    ],
    ids=repr,
)
def test_ranges_that_would_miss_rows_are_refused(serde, bound):
    with pytest.raises(KeyOrderError, match="range of keys"):
        check_bound(serde, bound, "The store")


@pytest.mark.parametrize(
    ("serde", "bound"),
    [
        (StringSerde(), "a"),
        (BytesSerde(), b"a"),
        (UuidSerde(), uuid.UUID(int=7)),
        (BooleanSerde(), True),
        (JsonSerde(date), date(2026, 1, 1)),
        (Int64Serde(), -1),
    ],
    ids=repr,
)
def test_other_ranges_are_not(serde, bound):
    check_bound(serde, bound, "The store")


def test_a_refusal_names_the_store_the_bound_and_the_cure():
    with table(JsonSerde()) as driver:
        says = r"'.*rows.*' cannot give a range of keys with the bound -2: .*JsonSerde.* Keys of a number serde, such as Int64Serde"
        with pytest.raises(KeyOrderError, match=says):
            driver.get_key_value_store("rows").range(-2, 3)
        assert len(list(driver.get_key_value_store("rows").range())) == len(NUMBERS)
        client = TestClient(
            Api(driver.served(), Guard(Security()), Limits()).application(),
            client=("127.0.0.1", 1),
            base_url="http://localhost",
        )
        answer = client.get("/v1/stores/rows/range", params={"from": "-2"})
    assert answer.status_code == 400
    assert answer.json()["error"] == QueryError.__name__
    assert "do not sort as the keys do" in answer.text


def test_windows_of_a_range_of_numbers():
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(Int32Serde(), StringSerde()))
    stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).count(Materialized("counts"))
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        for number in NUMBERS:
            driver.create_input_topic("in").pipe_input(number, "x", 1)
        found = driver.get_window_store("counts").fetch(-2, 3, 0, 100)
        assert sorted(key for key, _, _ in found) == [-1, 0, 2]
