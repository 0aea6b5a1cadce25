"""The stores of a `TopologyTestDriver`: read by name and kind, over all tasks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from streams import (
    Materialized,
    Processor,
    Record,
    SessionWindows,
    Stores,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    ValueAndTimestamp,
    Window,
    Windowed,
)
from streams.testing import TopologyTestDriver

TEN = timedelta(milliseconds=10)
KEYS = "abcdef"


class Remembers(Processor):
    def process(self, record: Record) -> None:
        self.ctx.store("plain").put(record.key, record.value)


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    """A store of each kind over three tasks, after records of six keys at the times 1 and 12."""
    builder = StreamsBuilder(default_value_serde=StringSerde())
    builder.add_state_store(Stores.key_value_store("plain", StringSerde(), StringSerde()))
    stream = builder.stream("in")
    stream.process(Remembers, stores=["plain"])
    grouped = stream.group_by_key()
    grouped.count(materialized=Materialized(name="counts"))
    grouped.windowed_by(TimeWindows.of_size_with_no_grace(10)).count(materialized=Materialized(name="windows"))
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5))
    sessions.count(materialized=Materialized(name="sessions"))
    builder.table("table", materialized=Materialized(name="versions", history_retention=timedelta(hours=1)))
    builder.global_table("codes", materialized=Materialized(name="codes"))
    partitions = {"in": 3, "table": 3}
    with TopologyTestDriver(builder.build(), partitions=partitions) as driver:
        for topic in ("in", "table", "codes"):
            records = driver.create_input_topic(topic)
            for time in (1, 12):
                with driver.batch():
                    records.pipe_key_value_list([(key, f"{key}{time}") for key in KEYS], time)
        yield driver


def test_a_key_value_store_gives_plain_values(driver: TopologyTestDriver) -> None:
    store = driver.get_key_value_store("counts")
    assert [store.get("a"), store.get("z")] == [2, None]
    assert dict(store.all()) == dict.fromkeys(KEYS, 2)
    assert dict(driver.get_key_value_store("plain").all()) == {key: f"{key}12" for key in KEYS}


def test_a_timestamped_key_value_store_gives_values_and_times(driver: TopologyTestDriver) -> None:
    store = driver.get_timestamped_key_value_store("counts")
    assert store.get("a") == ValueAndTimestamp(2, 12)
    assert dict(store.all())["f"] == ValueAndTimestamp(2, 12)


def test_a_store_without_a_kind_gives_what_it_keeps(driver: TopologyTestDriver) -> None:
    assert driver.get_store("counts").get("a") == ValueAndTimestamp(2, 12)
    assert driver.get_store("plain").get("a") == "a12"


def test_ranges_of_a_key_value_store(driver: TopologyTestDriver) -> None:
    store = driver.get_key_value_store("counts")
    assert sorted(store.range("b", "d")) == [("b", 2), ("c", 2), ("d", 2)]
    assert list(store.reverse_range("b", "d")) == list(store.range("b", "d"))[::-1]
    assert list(store.reverse_all()) == list(store.all())[::-1]
    assert list(store.prefix_scan("c")) == [("c", 2)]
    assert store.approximate_num_entries() == len(KEYS)


def test_a_window_store_gives_plain_values(driver: TopologyTestDriver) -> None:
    store = driver.get_window_store("windows")
    assert [store.fetch("a", 0), store.fetch("a", timedelta(0)), store.fetch("a", 20)] == [1, 1, None]
    assert list(store.fetch("a", 0, 99)) == [(0, 1), (10, 1)]
    assert list(store.fetch_range("a", 0, 99, reverse=True)) == [(10, 1), (0, 1)]
    assert sorted(store.fetch_all(10, 10)) == [(key, 10, 1) for key in KEYS]
    assert sorted(store.all()) == [(key, start, 1) for key in KEYS for start in (0, 10)]


def test_a_timestamped_window_store_gives_values_and_times(driver: TopologyTestDriver) -> None:
    store = driver.get_timestamped_window_store("windows")
    assert store.fetch("a", 10) == ValueAndTimestamp(1, 12)
    assert ("a", 0, ValueAndTimestamp(1, 1)) in list(store.all())


def test_a_session_store_gives_sessions(driver: TopologyTestDriver) -> None:
    store = driver.get_session_store("sessions")
    assert list(store.fetch("a")) == [(Window(1, 1), 1), (Window(12, 12), 1)]
    assert list(store.find_sessions("a", latest_start=1)) == [(Window(1, 1), 1)]
    assert [store.fetch_session("a", 12, 12), store.fetch_session("a", 5, 6)] == [1, None]
    assert sorted(store.all()) == [(Windowed(key, Window(time, time)), 1) for key in KEYS for time in (1, 12)]


def test_a_versioned_store_gives_former_values(driver: TopologyTestDriver) -> None:
    store = driver.get_versioned_key_value_store("versions")
    assert store.get("a") == ValueAndTimestamp("a12", 12)
    assert store.get("a", as_of=timedelta(milliseconds=11)) == ValueAndTimestamp("a1", 1)
    assert driver.get_versioned_store("versions").get("z") is None


def test_the_store_of_a_global_table_is_read_like_others(driver: TopologyTestDriver) -> None:
    store = driver.get_key_value_store("codes")
    assert store.get("a") == "a12"
    assert dict(store.all())["f"] == "f12"


def test_all_stores_by_name(driver: TopologyTestDriver) -> None:
    stores = driver.get_all_state_stores()
    assert sorted(stores) == ["codes", "counts", "plain", "sessions", "versions", "windows"]
    assert stores["plain"].get("b") == "b12"


@pytest.mark.parametrize(
    ("getter", "name", "use"),
    [
        ("get_key_value_store", "windows", "get_timestamped_window_store"),
        ("get_timestamped_key_value_store", "plain", "get_key_value_store"),
        ("get_window_store", "counts", "get_timestamped_key_value_store"),
        ("get_session_store", "windows", "get_timestamped_window_store"),
        ("get_versioned_store", "sessions", "get_session_store"),
        ("get_window_store", "versions", "get_versioned_key_value_store"),
    ],
)
def test_a_store_of_another_kind_is_refused_and_its_getter_named(
    driver: TopologyTestDriver, getter: str, name: str, use: str
) -> None:
    with pytest.raises(TypeError, match=rf"of another kind, use {use}\('{name}'\)"):
        getattr(driver, getter)(name)


@pytest.mark.parametrize("getter", ["get_store", "get_key_value_store", "get_session_store"])
def test_a_store_that_does_not_exist_is_refused(driver: TopologyTestDriver, getter: Any) -> None:
    with pytest.raises(KeyError, match=r"no store 'count': it has .*'plain'.* Did you mean 'counts'"):
        getattr(driver, getter)("count")


def test_windows_and_sessions_of_a_range_of_keys(driver: TopologyTestDriver) -> None:
    windows, sessions = driver.get_window_store("windows"), driver.get_session_store("sessions")
    assert sorted(windows.fetch("b", "d", 5, 15)) == [("b", 10, 1), ("c", 10, 1), ("d", 10, 1)]
    assert {session.key for session, _ in sessions.fetch("e", "x")} == {"e", "f"}


def test_a_windowed_store_that_a_test_writes_to_says_what_to_do(driver: TopologyTestDriver) -> None:
    with pytest.raises(AttributeError, match="pipe in records that create the initial state"):
        driver.get_window_store("windows").put("a", 1, 0)  # type: ignore[attr-defined]


def test_a_test_writes_to_the_store_that_a_processor_then_finds(driver: TopologyTestDriver) -> None:
    store = driver.get_key_value_store("plain")
    store.put_all([("a", "1"), ("new", "2"), ("gone", "3")])
    assert store.delete("gone") == "3"
    assert store.put_if_absent("new", "4") == "2"
    assert store.put_if_absent("z", "5") is None
    driver.restart()
    assert {key: store.get(key) for key in ("a", "b", "new", "gone", "z")} == {
        "a": "1",
        "b": "b12",
        "new": "2",
        "gone": None,
        "z": "5",
    }
    driver.create_input_topic("in").pipe_input("new", "6")
    assert store.get("new") == "6"


def test_an_aggregation_goes_on_from_the_row_of_a_test(driver: TopologyTestDriver) -> None:
    counts = driver.get_key_value_store("counts")
    counts.put("a", 40, timestamp=50)
    counts.put("b", ValueAndTimestamp(7, 60))
    assert driver.get_timestamped_key_value_store("counts").get("b") == ValueAndTimestamp(7, 60)
    driver.create_input_topic("in").pipe_input("a", "x", 1)
    assert driver.get_timestamped_key_value_store("counts").get("a") == ValueAndTimestamp(41, 50)


def test_a_global_table_is_not_written(driver: TopologyTestDriver) -> None:
    with pytest.raises(TypeError, match=r"'codes'.*pipe records"):
        driver.get_key_value_store("codes").put("a", "1")
