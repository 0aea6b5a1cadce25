"""`JoinWindows.until`: what it says of times, records that have none, calls that cannot be, and a move to other tasks."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import JoinWindows, JsonSerde, StreamsBuilder, Topology, TopologyError, col, record_timestamp
from streams.errors import RecordError, RecordFailedError
from streams.operators import json_fields
from streams.operators.columnar import EncodedValues
from streams.operators.join.joins import StreamJoin
from streams.operators.join.stream_join import _bounds
from streams.serdes.json_text import dumps
from streams.testing import TopologyTestDriver
from tests.budget import up_to

WINDOWS = JoinWindows.until(col("expires"), at_most=100, grace=5)


def program(method: str = "left_join", windows: JoinWindows = WINDOWS) -> Topology:
    """Auctions with their bids."""
    builder = StreamsBuilder()
    auctions, bids = builder.stream("auctions"), builder.stream("bids")
    getattr(auctions, method)(bids, lambda auction, bid: [auction and auction["id"], bid], windows).to("out")
    return builder.build()


class Run:
    def __init__(self, topology: Topology, **settings: Any) -> None:
        self.driver = TopologyTestDriver(topology, **settings)
        self.auctions, self.bids = map(self.driver.create_input_topic, ("auctions", "bids"))
        self.out = self.driver.create_output_topic("out")

    def auction(self, number: int, expires: Any, time: int, key: str = "a") -> None:
        self.auctions.pipe_input(key, {"id": number, "expires": expires}, time)

    def rows(self) -> list[Any]:
        return [(one.value, one.timestamp) for one in self.out.read_records_to_list()]


def test_until_is_from_the_record_s_own_time_to_the_field() -> None:
    hour = JoinWindows.until("expires", at_most=timedelta(hours=1), grace=timedelta(minutes=1))
    assert (hour.before_ms, hour.after_ms, hour.grace_ms, repr(hour.bound)) == (0, 3_600_000, 60_000, "col('expires')")
    assert hour.before(7).bound is hour.bound


@pytest.mark.parametrize("expires", [50, "1970-01-01T00:00:00.050Z", "1970-01-01T00:00:00.050"])
def test_a_field_is_whole_milliseconds_or_a_text(expires: Any) -> None:
    run = Run(program())
    with run.driver:
        run.auction(1, expires, 10)
        for time in (9, 10, 50, 51, 55):
            run.bids.pipe_input("a", time, time)
        assert run.rows() == [([1, 10], 10), ([1, 50], 50)]


def test_a_typed_value_has_a_datetime() -> None:
    at = datetime(1970, 1, 1, 0, 0, 0, 50_000, timezone.utc)
    windows = JoinWindows.until(col("expires").to_timestamp(), at_most=100)
    run = Run(program(windows=windows))
    with run.driver:
        run.auction(1, at.isoformat(), 10)
        run.bids.pipe_input("a", 1, 50)
        run.bids.pipe_input("a", 2, 51)
        assert run.rows() == [([1, 1], 50)]


def test_records_of_a_time_and_a_key_leave_each_at_its_own_end() -> None:
    """Those that end together, and have other times, meet others."""
    run = Run(program())
    with run.driver:
        run.auction(1, 30, 10)
        run.auction(2, 20, 10)
        run.auction(3, 30, 18)
        run.bids.pipe_input("a", 0, 16)
        assert run.rows() == [([1, 0], 16), ([2, 0], 16)]
        run.driver.restart()
        run.bids.pipe_input("b", 0, 35)
        assert run.rows() == []
        run.bids.pipe_input("b", 0, 36)
        assert run.rows() == [([3, None], 18)]


def test_a_null_is_no_bound_and_the_bound_may_lie_behind_the_record() -> None:
    run = Run(program())
    with run.driver:
        run.auction(1, None, 10)
        run.auction(2, 3, 10)
        run.bids.pipe_input("a", "in time", 10)
        run.bids.pipe_input("a", "later", 16)
        assert run.rows() == [([1, "in time"], 10), ([2, None], 10), ([1, "later"], 16)]
        run.bids.pipe_input("b", "last", 115)
        run.bids.pipe_input("a", "late", 110)
        assert run.rows() == [([1, "late"], 110)]


@pytest.mark.parametrize("expires", ["soon", True, 1.5, [1]])
@pytest.mark.parametrize("together", [False, True])
def test_a_left_record_without_a_time_meets_the_policy(expires: Any, together: bool) -> None:
    with pytest.raises(RecordFailedError, match="no time in col\\('expires'\\)"), Run(program()).driver as driver:
        driver.create_input_topic("auctions").pipe_input("a", {"id": 1, "expires": expires}, 10)
    run = Run(program(), processing="skip")
    with run.driver:
        if together:
            with run.driver.batch():
                run.auction(1, expires, 10)
                run.auction(2, 20, 10)
        else:
            run.auction(1, expires, 10)
            run.auction(2, 20, 10)
        run.bids.pipe_input("a", 7, 12)
        assert run.rows() == [([2, 7], 12)]


TIMES = (None, 5, -3, 2**63 - 1, 2**70, True, 1.5, [1], {"at": 1}, "soon", "2026-02-30T00:00:00", "0999-01-01T00:00:00")
TEXTS = ("2026-01-01T00:00:00", "2026-01-01 10:00:00.123", "1970-01-01T00:00:00.050Z", "2026-01-01T00:00:00.9999+02:00")
VALUES = [*({"expires": at} for at in (*TEXTS, *TIMES)), {}, [], "text", 7]


@up_to(200)
@given(
    st.sampled_from((col("expires"), col("expires").to_timestamp(), col("expires") + 1)),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).flatmap(
        lambda few: st.lists(st.sampled_from(few), min_size=1, max_size=6)
    ),
)
def test_a_column_of_bounds_is_read_as_each_of_them_is(bound: Any, values: list[Any]) -> None:
    join: Any = StreamJoin("inner", JoinWindows.until(bound, at_most=100), lambda *_: None, JsonSerde())
    texts = EncodedValues(pa.array(map(dumps, values), pa.binary()), JsonSerde(), "", {})

    def after(read: Any) -> Any:
        try:
            return read().tolist()
        except RecordError as error:
            return str(error)

    with mock.patch.object(json_fields, "FEW_CELLS", 0):
        together = after(lambda: _bounds(join, texts))
    assert together == after(lambda: np.array([join.until(value) for value in values], np.int64))


def test_waiting_records_move_to_the_tasks_of_their_keys() -> None:
    keys = [f"k{number}" for number in range(20)]
    run = Run(program(), partitions={"auctions": 2, "bids": 2}, tasks=2)
    with run.driver:
        for number, key in enumerate(keys):
            run.auction(number, 50, 10, key)
        run.driver.rescale(3)
        for key in keys[:10]:
            run.bids.pipe_input(key, 1, 20)
        assert sorted(run.rows()) == [([number, 1], 20) for number in range(10)]
        for key in keys:
            run.bids.pipe_input(f"other-{key}", 1, 60)
        assert sorted(run.rows(), key=str) == sorted((([number, None], 10) for number in range(10, 20)), key=str)


def test_the_bound_is_part_of_the_name_and_other_joins_refuse_it() -> None:
    plain = JoinWindows(0, 100, 5)
    names = [next(name for name in program(windows=one).stores) for one in (WINDOWS, plain)]
    assert names[0] != names[1]
    with pytest.raises(TopologyError, match=r"takes a field of the left value, such as col\(\"expires\"\), not 5"):
        JoinWindows.until(5, at_most=1)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"takes a field of the left value, .* not record_timestamp\(\)"):
        JoinWindows.until(record_timestamp() + 5, at_most=1)
    with pytest.raises(TopologyError, match="joined by single dots"):
        JoinWindows.until("a..b", at_most=1)
    builder = StreamsBuilder()
    others = {"b": builder.stream("b"), "c": builder.stream("c")}
    with pytest.raises(TopologyError, match=r"join_all takes no JoinWindows.until"):
        builder.stream("a").join_all(others, lambda found: found, WINDOWS)


def test_a_stream_joined_with_itself_keeps_the_bound_with_one_store_asked_for() -> None:
    builder = StreamsBuilder(optimize=True)
    stream = builder.stream("in")
    stream.join(stream, lambda left, right: [left["id"], right["id"]], WINDOWS).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        values, out = driver.create_input_topic("in", value_serde=JsonSerde()), driver.create_output_topic("out")
        for number, time in enumerate((10, 20, 21)):
            values.pipe_input("a", {"id": number, "expires": 20}, time)
        assert sorted(out.read_values_to_list()) == [[0, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize("method", ["join", "left_join"])
def test_a_late_record_does_not_join_one_that_has_left(method: str) -> None:
    """The right record is still open, by `before`, and the left one has given its result."""
    run = Run(program(method, JoinWindows.until(col("expires"), at_most=30).before(10)))
    with run.driver:
        run.auction(1, 20, 20)
        run.bids.pipe_input("b", "other", 25)
        run.bids.pipe_input("a", "late", 18)
        assert run.rows() == ([] if method == "join" else [([1, None], 20)])
