"""A function owns what it is given: single cases. `tests/properties/test_ownership.py` has random ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial, wraps
from typing import Any, ClassVar

import pytest

from streams import (
    Aggregate,
    Consumed,
    JsonSerde,
    Materialized,
    Processor,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    col,
    fields,
)
from streams.dsl import functions
from streams.engine.graph.node import changing_nodes, owners
from streams.errors import RecordFailedError
from streams.model.ownership import may_share, only_reads, snapshot
from streams.model.record import Window, Windowed
from streams.testing import TopologyTestDriver

Build = Callable[[StreamsBuilder], None]


def outputs(build: Build, *values: Any, topic: str = "other", at_once: bool = False, **settings: Any) -> list[Any]:
    """The values in a topic after records with these values, one of each key."""
    return [
        value for _, value in rows(build, *(("k", value) for value in values), topic=topic, at_once=at_once, **settings)
    ]


def rows(
    build: Build, *records: tuple[Any, Any], topic: str = "other", at_once: bool = False, **settings: Any
) -> list[Any]:
    builder = StreamsBuilder()
    build(builder)
    with TopologyTestDriver(builder.build(), **{"rocksdb": False, **settings}) as driver:
        given = driver.create_input_topic("in")
        if at_once:
            with driver.batch():
                for time, (key, value) in enumerate(records):
                    given.pipe_input(key, value, time)
        else:
            for time, (key, value) in enumerate(records):
                given.pipe_input(key, value, time)
        return driver.create_output_topic(topic).read_key_values_to_list()


def touch(value: Any) -> Any:
    value["n"] = -1
    return value


# --- Which functions only read.

LIMITS, ONE, NAMES = {"DE": 1}, 1, frozenset(("a",))


def is_large(value: Any) -> bool:
    return bool(value["n"] > ONE)


def forwards(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(function)
    def outer(value: Any) -> Any:
        value.clear()
        return function(value)

    return outer


READING: list[Callable[..., Any]] = [
    lambda value: int.from_bytes(value[:8], "big") % 5,
    lambda value: value["n"] > 1 and len(value) > 2,
    lambda value: value["name"] in NAMES and bool(value.get("n", ONE)),
    lambda value: is_large(value),
    lambda value: value["name"].strip().lower().split(","),
    lambda left, right: {**left, "rate": right["rate"]},
    lambda value: f"{value['n']:>3} {ONE}",
    lambda value: math.floor(value["n"]) > 1,
    dict,
    print,
]


class Clearing:
    """A class whose method has the name of one that only reads."""

    @staticmethod
    def get(value: Any) -> None:
        value.clear()


CHANGING: list[Callable[..., Any]] = [
    touch,
    lambda value: Clearing.get(value),
    lambda value: touch(value),
    lambda value: value.pop("n"),
    lambda value: [touch(one) for one in value],
    lambda value: sorted(value, key=lambda one: one.pop()),
    lambda value: setattr(value, "n", 1),
    lambda value, other=[].append: other(value),
    forwards(is_large),
    partial(is_large, {}),
    [].append,
]


@pytest.mark.parametrize("function", READING)
def test_functions_that_only_read(function: Callable[..., Any]) -> None:
    assert only_reads(function)


@pytest.mark.parametrize("function", CHANGING)
def test_functions_that_may_change_what_they_get(function: Callable[..., Any]) -> None:
    assert not only_reads(function)


def test_functions_and_expressions_behind_the_engines_adapters() -> None:
    assert only_reads(functions.predicate(col("n") > 1))
    assert only_reads(functions.key_value(fields("n"), "mapper"))
    assert only_reads(functions.reducer(lambda before, value: value))
    assert not only_reads(functions.key_value(touch, "mapper"))


def test_functions_that_may_give_an_object_again() -> None:
    assert may_share(lambda value: value or LIMITS)
    assert may_share(lambda value, given={}: given)
    assert may_share(lru_cache(is_large))
    assert may_share(LIMITS.get)
    assert not may_share(is_large)
    assert not may_share(lambda value: {"n": ONE, "name": NAMES, **value})
    assert not may_share(dict)


def test_one_of_several_that_all_change_their_values_may_have_the_given_ones() -> None:
    assert owners(["a", "b"], {"a", "b"}) == {"a"}
    assert owners(["a", "b", "c"], {"a", "c"}) == {"a", "c"}
    assert owners(["a"], {"a"}) == owners(["a", "b"], ()) == frozenset()


# --- Streams that part: no copies where nobody changes anything.


class Noted(dict[str, Any]):
    """Notes who gets it."""

    seen: ClassVar[list[int]] = []

    def note(self) -> Noted:
        self.seen.append(id(self))
        return self


def test_a_stream_that_does_not_part_is_not_copied() -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in").map_values(lambda value: Noted(n=value))
        stream.map_values(lambda value: value.note()).map_values(lambda value: value.note()).to("other")

    assert outputs(build, 1) == [{"n": 1}]
    assert len(set(Noted.seen)) == 1


def test_branches_that_only_read_share_their_values() -> None:
    assert not changing_nodes({}, lambda name: ())
    seen: list[int] = []

    class Identity(dict[str, int]):
        def get(self, name: str, default: Any = None) -> Any:
            seen.append(id(self))
            return default

    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in").map_values(lambda value: Identity())
        stream.map_values(lambda value: value.get("n", 1)).to("one")
        stream.map_values(lambda value: value.get("n", 2)).to("other")

    assert outputs(build, 1) == [2]
    assert seen[0] == seen[1]


def test_a_change_of_a_key_is_nobody_elses() -> None:
    def change(key: Any, value: Any) -> Any:
        key["k"] = value
        return key

    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", Consumed(JsonSerde(), JsonSerde()))
        stream.map_values(change).to("other", key_serde=JsonSerde())

    builder = StreamsBuilder()
    build(builder)
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        topic = driver.create_input_topic("in", JsonSerde(), JsonSerde())
        with driver.batch():
            topic.pipe_input({"k": 0}, 1, 1)
            topic.pipe_input({"k": 0}, 2, 2)
        found = driver.create_output_topic("other", JsonSerde(), JsonSerde()).read_key_values_to_list()
    assert found == [({"k": 0}, {"k": 1}), ({"k": 0}, {"k": 2})]


def test_a_new_key_that_is_part_of_the_value_does_not_change_with_it() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in").select_key(lambda value: value["who"])
    stream.map_values(lambda value: value["who"].clear() or value).to("other", key_serde=JsonSerde())
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        driver.create_input_topic("in").pipe_input("k", {"who": {"n": 1}}, 1)
        assert driver.create_output_topic("other", JsonSerde()).read_key_values_to_list() == [({"n": 1}, {"who": {}})]


# --- Functions whose records go on as they are.


@pytest.mark.parametrize(
    "step",
    [
        lambda stream: stream.filter(lambda value: touch(value)["n"] < 0),
        lambda stream: stream.filter_not(lambda value: touch(value)["n"] > 0),
        lambda stream: stream.peek(touch),
        lambda stream: stream.select_key(lambda value: str(touch(value)["n"])),
        lambda stream: stream.deduplicate(timedelta(seconds=1), by=lambda value: str(touch(value))),
        lambda stream: (
            stream.split().branch(lambda value: touch(value)["n"] > 0).default_branch()
            and stream.filter(lambda value: True)
        ),
        lambda stream: stream.to_table().filter(lambda value: touch(value)["n"] < 0).to_stream(),
        lambda stream: stream.to_table(name="t").filter(lambda value: touch(value)["n"] < 0).to_stream(),
    ],
)
@pytest.mark.parametrize("mapped", [False, True])
def test_what_goes_on_is_what_came(step: Any, mapped: bool) -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in")
        step(stream.map_values(lambda value: value) if mapped else stream).to("other")

    assert outputs(build, {"n": 1}) == [{"n": 1}]


def test_each_predicate_of_a_split_gets_the_value_as_it_came() -> None:
    def build(builder: StreamsBuilder) -> None:
        branches = builder.stream("in").split("s-").branch(lambda value: touch(value)["n"] > 0, name="a")
        branches.branch(lambda value: value["n"] == 1, name="b").default_branch(name="c")["s-b"].to("other")

    assert outputs(build, {"n": 1}) == [{"n": 1}]


def test_extractors_of_times_and_topics_change_nothing() -> None:
    def time(record: Any) -> int:
        touch(record.value)
        return int(record.timestamp)

    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", Consumed(timestamp_extractor=time)).map_values(lambda value: value)
        stream.to(lambda key, value, context: touch(value) and "other")

    assert outputs(build, {"n": 1}) == [{"n": 1}]


# --- Results of functions.


def lines(value: Any) -> Iterator[Any]:
    line: dict[str, Any] = {}
    for number in range(value):
        line["n"] = number
        line.setdefault("all", []).append(number)
        yield line


@pytest.mark.parametrize("at_once", [False, True])
def test_a_generator_gives_each_value_as_it_was(at_once: bool) -> None:
    def build(builder: StreamsBuilder) -> None:
        builder.stream("in").flat_map_values(lines).to("other")

    expected = [{"n": 0, "all": [0]}, {"n": 1, "all": [0, 1]}]
    assert outputs(build, 2, 2, at_once=at_once) == expected * 2


def test_a_generator_of_pairs() -> None:
    def build(builder: StreamsBuilder) -> None:
        builder.stream("in").flat_map(lambda key, value: ((key, line) for line in lines(value))).to("other")

    assert [value["n"] for value in outputs(build, 3)] == [0, 1, 2]


def test_rows_of_one_record_are_objects_of_their_own() -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in").flat_map_values(lambda value: [value, value, {"all": value}])
        stream.map_values(lambda value: value.setdefault("seen", []).append(1) or value).to("other")

    assert outputs(build, {"n": 1}) == [{"n": 1, "seen": [1]}] * 2 + [{"all": {"n": 1}, "seen": [1]}]


def test_an_object_of_the_module_stays_as_it_is() -> None:
    default = {"n": 0}

    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in").map_values(lambda value: value or default)
        stream.map_values(lambda value: value.update(n=value["n"] + 1) or value).to("other")

    assert outputs(build, {}, {}, at_once=True) == [{"n": 1}] * 2
    assert default == {"n": 0}


# --- Aggregates.

ZERO: list[Any] = []


def append(value: Any, seen: Any) -> Any:
    seen.append(value)
    return seen


GROUPS: dict[str, Callable[[Any], Any]] = {
    "all": lambda grouped: grouped,
    "tumbling": lambda grouped: grouped.windowed_by(TimeWindows.of_size_with_no_grace(timedelta(seconds=1))),
    "sliding": lambda grouped: grouped.windowed_by(
        SlidingWindows.of_time_difference_with_no_grace(timedelta(seconds=1))
    ),
}


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("windows", list(GROUPS))
def test_an_initial_value_belongs_to_one_key(windows: str, caching: bool, at_once: bool) -> None:
    def build(builder: StreamsBuilder) -> None:
        grouped = GROUPS[windows](builder.stream("in").group_by_key())
        table = grouped.aggregate(lambda: ZERO, append, materialized=Materialized("s", caching=caching))
        table.to_stream().map(lambda key, value: (getattr(key, "key", key), value)).to("other")

    found = rows(build, ("a", 1), ("b", 2), ("a", 3), at_once=at_once)
    assert {key: value for key, value in found if len(value) == max(len(v) for k, v in found if k == key)} == {
        "a": [1, 3],
        "b": [2],
    }
    assert ZERO == []


def test_an_initial_value_of_sessions_cogroups_and_tables() -> None:
    def sessions(builder: StreamsBuilder) -> None:
        grouped = builder.stream("in").group_by_key()
        windowed = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(timedelta(seconds=1)))
        table = windowed.aggregate(lambda: ZERO, append, lambda one, other: append(other, one))
        table.to_stream().map(lambda key, value: (key.key, value)).filter(lambda value: value is not None).to("other")

    def cogroup(builder: StreamsBuilder) -> None:
        grouped = builder.stream("in").group_by_key()
        grouped.cogroup(append).aggregate(lambda: ZERO).to_stream().to("other")

    def table(builder: StreamsBuilder) -> None:
        grouped = builder.table("in").group_by(lambda key, value: (key, value))
        grouped.aggregate(lambda: ZERO, append, lambda value, seen: seen).to_stream().to("other")

    assert [key for key, value in rows(sessions, ("a", 1), ("b", 2)) if len(value) == 1 or len(value) == 2] == [
        "a",
        "b",
    ]
    assert rows(cogroup, ("a", 1), ("b", 2)) == rows(table, ("a", 1), ("b", 2)) == [("a", [1]), ("b", [2])]
    assert ZERO == []


def test_the_accumulator_of_an_own_aggregate_belongs_to_one_key() -> None:
    class Listed(Aggregate):
        def initial(self) -> Any:
            return ZERO

        def add(self, accumulator: Any, value: Any) -> Any:
            return append(value, accumulator)

        def merge(self, earlier: Any, later: Any) -> Any:
            return earlier + later

    def build(builder: StreamsBuilder) -> None:
        builder.stream("in").group_by_key().aggregate(n=Listed("n")).to_stream().to("other")

    assert rows(build, ("a", {"n": 1}), ("b", {"n": 2})) == [("a", {"n": [1]}), ("b", {"n": [2]})]


def test_an_aggregator_that_gives_one_object_for_several_keys() -> None:
    empty = {"n": 0}

    def add(value: Any, total: Any) -> Any:
        if not value:
            return empty
        total["n"] += value
        return total

    def build(builder: StreamsBuilder) -> None:
        builder.stream("in").group_by_key().aggregate(lambda: {"n": 5}, add).to_stream().to("other")

    given = (("a", 0), ("b", 0), ("a", 1), ("b", 2), ("a", 0))
    assert rows(build, *given, at_once=True) == [("b", {"n": 2}), ("a", {"n": 0})]
    assert empty == {"n": 0}


@pytest.mark.parametrize("caching", [False, True])
def test_windows_of_one_record_do_not_share_its_value(caching: bool) -> None:
    def add(before: Any, value: Any) -> Any:
        before["n"] += value["n"]
        return before

    def build(builder: StreamsBuilder) -> None:
        ms = timedelta(milliseconds=1)
        grouped = builder.stream("in").group_by_key()
        windowed = grouped.windowed_by(TimeWindows.of_size_with_no_grace(4 * ms).advance_by(2 * ms))
        table = windowed.reduce(add, materialized=Materialized("s", caching=caching))
        table.to_stream().map(lambda key, value: (key.window.start, value["n"])).to("other", key_serde=JsonSerde())

    builder = StreamsBuilder()
    build(builder)
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch():
            for time in range(2, 6):
                topic.pipe_input("k", {"n": 1}, time)
        found = driver.create_output_topic("other", JsonSerde()).read_key_values_to_list()
    assert dict(found) == {0: 2, 2: 4, 4: 2}


# --- Functions that forget to return their accumulator.


def forget(value: Any, seen: Any) -> Any:
    seen.append(value)


def forget_later(value: Any, seen: Any) -> Any:
    seen.append(value)
    return seen if len(seen) % 2 else None


def drops(value: Any, seen: Any) -> Any:
    return append(value, seen) if value else None


@pytest.mark.parametrize("processing", ["fail", "skip"])
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("windows", list(GROUPS))
@pytest.mark.parametrize("function", [forget, forget_later])
def test_an_aggregator_that_returns_nothing_is_told(
    function: Any, windows: str, caching: bool, at_once: bool, processing: str
) -> None:
    def build(builder: StreamsBuilder) -> None:
        grouped = GROUPS[windows](builder.stream("in").group_by_key())
        table = grouped.aggregate(list, function, materialized=Materialized("s", caching=caching))
        table.to_stream().map(lambda key, value: (getattr(key, "key", key), value)).to("other")

    records = (("a", 1), ("a", 2))
    if processing == "fail":
        with pytest.raises(
            RecordFailedError, match=r"aggregator \(.*test_ownership.py, line \d+\) returned None after changing"
        ):
            rows(build, *records, at_once=at_once)
    else:
        found = rows(build, *records, at_once=at_once, processing="skip")
        assert all(value == [1] or value == [2] for _, value in found)
        assert bool(found) is (function is forget_later)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("caching", [False, True])
def test_none_alone_deletes(caching: bool, at_once: bool) -> None:
    def build(builder: StreamsBuilder) -> None:
        table = (
            builder.stream("in").group_by_key().aggregate(list, drops, materialized=Materialized("s", caching=caching))
        )
        table.to_stream().to("other")

    found = rows(build, ("a", 1), ("a", 0), ("a", 2), at_once=at_once)
    assert found == ([("a", [2])] if caching and at_once else [("a", [1]), ("a", None), ("a", [2])])


def test_reducers_mergers_and_adders_are_told_too() -> None:
    def reducer(builder: StreamsBuilder) -> None:
        builder.stream("in").group_by_key().reduce(lambda seen, value: seen.extend(value)).to_stream().to("other")

    def merger(builder: StreamsBuilder) -> None:
        windowed = (
            builder.stream("in")
            .group_by_key()
            .windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(timedelta(seconds=1)))
        )
        windowed.aggregate(list, append, lambda one, other: one.extend(other)).to_stream().to_table(name="t")

    def adder(builder: StreamsBuilder) -> None:
        grouped = builder.table("in").group_by(lambda key, value: (key, value))
        grouped.aggregate(list, forget, lambda value, seen: seen).to_stream().to("other")

    for what, build in (("reducer", reducer), ("merger", merger), ("adder", adder)):
        with pytest.raises(
            RecordFailedError, match=rf"{what} .*returned None after changing its accumulator in place; return it"
        ):
            rows(build, ("a", [1]), ("a", [2]))


def test_an_own_aggregate_is_told() -> None:
    class Listed(Aggregate):
        def initial(self) -> Any:
            return []

        def add(self, accumulator: Any, value: Any) -> Any:
            accumulator.append(value)

        def merge(self, earlier: Any, later: Any) -> Any:
            return earlier + later

    def build(builder: StreamsBuilder) -> None:
        builder.stream("in").group_by_key().aggregate(n=Listed("n")).to_stream().to("other")

    with pytest.raises(RecordFailedError, match=r"Listed\('n'\): add returned None for an accumulator of type list"):
        rows(build, ("a", {"n": 1}))


# --- Tables and their readers.


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("caching", [False, True])
def test_joins_leave_the_rows_of_tables(caching: bool, at_once: bool) -> None:
    def join(left: Any, right: Any) -> Any:
        right["n"] += left["n"]
        return right

    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in")
        table = stream.map_values(lambda value: {**value}).to_table(name="t", caching=caching)
        stream.join(table, join).to("joined")
        stream.join(table, lambda left, right: [right]).map_values(lambda value: touch(value[0])).to("touched")
        table.to_stream().to("other")

    assert outputs(build, {"n": 1}, {"n": 2}, at_once=at_once) == (
        [{"n": 2}] if caching and at_once else [{"n": 1}, {"n": 2}]
    )
    assert outputs(build, {"n": 1}, {"n": 2}, topic="joined", at_once=at_once) == [{"n": 2}, {"n": 4}]


@pytest.mark.parametrize("caching", [False, True])
def test_a_processor_that_reads_a_tables_store_gets_a_row_of_its_own(caching: bool) -> None:
    class Reads(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None:
            found = self.ctx.store("t").get(record.key)
            if found is not None:
                touch(found.value)
            self.ctx.forward(record.with_value(None if found is None else self.ctx.store("t").get(record.key).value))

    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in")
        table = stream.to_table(materialized=Materialized("t", caching=caching))
        stream.process(Reads, stores=["t"]).to("seen")
        table.to_stream().to("other")

    assert outputs(build, {"n": 1}) == [{"n": 1}]
    assert outputs(build, {"n": 1}, {"n": 2}, topic="seen")[-1] in ({"n": 1}, {"n": 2})


# --- Copies.


@dataclass(frozen=True)
class Kept:
    number: int
    parts: tuple[Any, ...]


def test_copies_of_what_cannot_change_are_the_values_themselves() -> None:
    window, kept = Window(1, 2), Kept(1, ("a",))
    for value in ((1, ("a", None)), Windowed("k", window), kept, window):
        assert snapshot(value) is value
    changing = Kept(1, ("a", []))
    assert snapshot(changing) == changing
    assert snapshot(changing) is not changing
