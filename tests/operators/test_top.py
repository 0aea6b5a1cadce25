"""`top`: the best n of each group; of tables exact while rows change and leave. Scores of every kind, or a record that fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    Consumed,
    JsonSerde,
    KStream,
    KTable,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    col,
)
from streams.errors import RecordError
from streams.model.scores import inverted, order_bytes, ordered, score_of
from streams.operators.table import table_aggregate
from streams.testing import TopologyTestDriver
from tests.budget import up_to

scores = st.one_of(st.none(), st.integers(-3, 3), st.floats(-3, 3, allow_nan=False))

ZONES = st.integers(-12, 14).map(lambda hours: timezone(timedelta(hours=hours)))
NUMBERS = (
    st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from([2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2.0**53, 2**64 + 1, 10**400, -(10**400), 1.7e308])
)
ORDERS: dict[str, st.SearchStrategy[Any]] = {
    "numbers": NUMBERS,
    "decimals": st.decimals(allow_nan=False, allow_infinity=False),
    "texts": st.text(max_size=4) | st.sampled_from(["a", "a\0", "a\0b", "ab"]),
    "dates": st.dates(),
    "moments": st.datetimes(timezones=ZONES),
    "local times": st.datetimes(),
    "times": st.times(),
    "lengths": st.timedeltas(),
    "truth values": st.booleans(),
    "tuples": st.tuples(st.booleans(), st.text("ab\0", max_size=2), NUMBERS),
}


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_floats_sort_as_bytes(one, two):
    assert (one < two) == (ordered(one, False) < ordered(two, False)) == (ordered(one, True) > ordered(two, True))


def place(score: Any) -> bytes:
    found = score_of(score)
    assert found is not None
    return order_bytes(found)


@pytest.mark.parametrize("kind", ORDERS)
@given(st.data())
def test_scores_sort_as_bytes(kind, data):
    one, two = data.draw(ORDERS[kind]), data.draw(ORDERS[kind])
    assert (one < two) == (place(one) < place(two)) == (inverted(place(one)) > inverted(place(two)))
    assert (one == two) == (place(one) == place(two))
    assert one == two or not place(one).startswith(place(two))


class Named(Enum):
    A = 1


@pytest.mark.parametrize(
    "score", [float("nan"), Decimal("NaN"), b"x", {1}, {}, UUID(int=1), Named.A, (1, None)], ids=repr
)
def test_other_scores_are_refused(score):
    with pytest.raises(RecordError, match="top ranks by a number, a text, a time"):
        score_of(score)


# --- Grouped streams and tables, against a plain model.


@dataclass
class Task:
    """A typed value, whose fields are times and tuples in a step and in the next one."""

    id: int
    due: date
    at: datetime
    name: str
    rank: tuple[int, str]
    size: int


AN_HOUR = timedelta(hours=1)
tasks = st.builds(
    Task,
    st.integers(0, 99),
    st.dates(date(2026, 1, 1), date(2026, 1, 5)),
    st.integers(0, 5).map(lambda n: datetime(2026, 1, 1, tzinfo=timezone(n * AN_HOUR)) + 2 * n * AN_HOUR),
    st.sampled_from(["", "a", "b", "ä"]),
    st.tuples(st.integers(0, 2), st.sampled_from("xy")),
    st.sampled_from([1, 2, 2**53, 2**53 + 1, 2**63 - 1]),
)
BY = {
    "due": lambda task: task.due,
    "at": lambda task: task.at,
    "name": lambda task: task.name,
    "rank": lambda task: task.rank,
    "size": lambda task: task.size,
    "several": lambda task: (task.due, task.size),
}


def best(values: Sequence[Task], by: Any, largest: bool) -> list[Task]:
    return sorted(values, key=by, reverse=largest)[:3]


@pytest.mark.parametrize("by", BY)
@up_to(8)
@given(
    found=st.lists(st.tuples(tasks, st.sampled_from(["", "restart", "together"])), max_size=8),
    largest=st.booleans(),
    caching=st.booleans(),
)
def test_of_a_stream_of_typed_values(by, found, largest, caching):
    """Python's order, in which equal ones keep theirs, whatever the steps."""
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(value_serde=JsonSerde(Task)))
    stream.group_by_key().top(3, BY[by], largest, materialized=Materialized("best", caching=caching)).to_stream().to(
        "out"
    )
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        topic = driver.create_input_topic("in", value_serde=JsonSerde(Task))
        for task, how in found:
            if how == "together":
                with driver.batch():
                    topic.pipe_input("k", task, 1)
                    topic.pipe_input("k", task, 1)
            else:
                topic.pipe_input("k", task, 1)
            if how == "restart":
                driver.restart()
        values = driver.create_output_topic("out", value_serde=JsonSerde(list[Task])).read_values_to_list()
    given_tasks = [task for task, how in found for _ in range(2 if how == "together" else 1)]
    assert values[-1:] == [best(given_tasks, BY[by], largest)][: len(given_tasks)]


@pytest.mark.slow
@pytest.mark.parametrize("by", BY)
@up_to(8)
@given(
    rows=st.lists(st.tuples(st.sampled_from("abcd"), st.none() | tasks, st.booleans()), max_size=10),
    largest=st.booleans(),
)
def test_of_a_table_of_typed_values(by, rows, largest):
    builder = StreamsBuilder()
    table = builder.table("in", Consumed(value_serde=JsonSerde(Task)))
    table.group_by(lambda key, task: ("all", task)).top(3, BY[by], largest, named="best").to_stream().to("out")
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        topic, now = driver.create_input_topic("in", value_serde=JsonSerde(Task)), {}
        for key, task, restart in rows:
            topic.pipe_input(key, task, 1)
            now[key] = task
            if restart:
                driver.restart()
        values = driver.create_output_topic("out", value_serde=JsonSerde(list[Task])).read_values_to_list()
    there = [task for task in now.values() if task is not None]
    expected = list(map(BY[by], best(there, BY[by], largest)))
    assert list(map(BY[by], (values or [None])[-1] or [])) == expected


@pytest.mark.slow
@up_to(50)
@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.one_of(st.none(), st.tuples(st.sampled_from("gh"), scores)), st.booleans()),
        max_size=30,
    ),
    st.booleans(),
    st.booleans(),
)
def test_of_a_table(rows, largest, caching):
    builder = StreamsBuilder()
    how = Materialized(caching=caching)
    grouped = builder.table("in", materialized=how).group_by(lambda k, v: (v[0], v))
    grouped.top(2, lambda v: v[1], largest, materialized=Materialized(name="best", caching=caching)).to_stream().to(
        "out"
    )
    with TopologyTestDriver(builder.build(), partitions={"in": 2}, tasks=2) as driver:
        topic, table = driver.create_input_topic("in"), {}
        for key, value, restart in rows:
            topic.pipe_input(str(key), value, 0)
            table[key] = value
            if restart:
                driver.restart()
        found = driver.create_output_topic("out").read_key_values_to_map()
    ranked = [value for value in table.values() if value is not None and value[1] is not None]
    expected = {}
    for group in "gh":
        members = sorted((v[1] for v in ranked if v[0] == group), reverse=largest)[:2]
        if members:
            expected[group] = members
    assert {group: [v[1] for v in best] for group, best in found.items() if best is not None} == expected


def of_stream(largest: bool, builder: StreamsBuilder) -> Any:
    return builder.stream("in").group_by_key().top(2, lambda v: v["n"], largest, named="best")


def of_table(largest: bool, builder: StreamsBuilder) -> Any:
    return builder.table("in").group_by(lambda k, v: ("k", v)).top(2, lambda v: v["n"], largest, named="best")


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("build", [of_stream, of_table])
@pytest.mark.parametrize("wrong", ["text", [1], True, {"a": 1}])
def test_a_score_of_another_kind_fails_its_record_and_no_other(build, largest, wrong):
    builder = StreamsBuilder()
    partial(build, largest)(builder).to_stream().to("out")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        topic = driver.create_input_topic("in")
        for number, score in enumerate((1, wrong, None, 2)):
            topic.pipe_input("k" if build is of_stream else f"row {number}", {"n": score}, 1)
            driver.restart()
        found = driver.create_output_topic("out").read_values_to_list()[-1]
        assert found == [{"n": 2}, {"n": 1}][:: 1 if largest else -1]
        assert driver.dropped("processing") == 1


def test_a_row_whose_score_failed_can_be_ranked_again():
    builder = StreamsBuilder()
    of_table(True, builder).to_stream().to("out")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        for score in ({"a": 1}, 2, 3):
            driver.create_input_topic("in").pipe_input("a", {"n": score}, 1)
        assert driver.create_output_topic("out").read_values_to_list() == [[{"n": 2}], [{"n": 3}]]
        assert driver.dropped("processing") == 1


def test_a_row_that_alone_changes_its_kind_is_ranked():
    builder = StreamsBuilder()
    of_table(True, builder).to_stream().to("out")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        for key, score in (("a", 1), ("a", "x"), ("b", 2), ("b", "y"), ("a", 3)):
            driver.create_input_topic("in").pipe_input(key, {"n": score}, 1)
        found = driver.create_output_topic("out").read_values_to_list()
        assert found == [[{"n": 1}], [{"n": "x"}], [{"n": "y"}, {"n": "x"}]]
        assert driver.dropped("processing") == 2, "2 next to 'x', and 3 next to 'y'"


def test_of_a_stream_and_of_its_windows():
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    grouped.top(2, lambda v: v["n"], largest=False).to_stream().to("out")
    windowed = grouped.windowed_by(TimeWindows.of_size_with_no_grace(3))
    windowed.top(1, lambda v: v["n"], materialized=Materialized(name="w")).to_stream().to("of-windows")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        for at, n in enumerate((5, 3, None, 9, 3)):
            topic.pipe_input("k", {"n": n, "at": at}, at)
        best = driver.create_output_topic("out").read_values_to_list()[-1]
        assert best == [{"n": 3, "at": 1}, {"n": 3, "at": 4}]
        of_windows = driver.create_output_topic("of-windows").read_key_values_to_map()
        assert {key.window.start: value[0]["at"] for key, value in of_windows.items()} == {0: 0, 3: 3}
    with pytest.raises(TopologyError, match="at least 1"):
        grouped.top(0, lambda v: v)


# --- Ties, ranks, and a row for each value.


@pytest.mark.parametrize("of", ["stream", "table", "table on disk", "sessions"])
@up_to(16)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 2), st.sampled_from(["", "restart", "step"])),
        max_size=10,
    ),
    largest=st.booleans(),
    ties=st.booleans(),
    n=st.integers(1, 3),
)
def test_ranks_are_those_of_sql(of, rows, largest, ties, n):
    """`ROW_NUMBER() <= n`, or with ties `RANK() <= n`; and the rows of the list are those that `explode` leaves."""
    builder = StreamsBuilder()
    source = builder.table("in") if of.startswith("table") else builder.stream("in")
    grouped: Any = source.group_by(lambda key, row: ("k", row)) if isinstance(source, KTable) else None
    if isinstance(source, KStream):
        grouped = source.filter(lambda row: row is not None).group_by(lambda row: "k")
    if of == "sessions":
        grouped = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(100))
    best = grouped.top(n, lambda row: row["score"], largest, "best", ties=ties, rank="rank")
    best.to_stream().to("lists")
    best.explode(lambda key, position: f"{position}").to("rows")
    most = 1 if of == "table on disk" else table_aggregate._MOST_OF_GROUP
    with patch.object(table_aggregate, "_MOST_OF_GROUP", most), TopologyTestDriver(builder.build()) as driver:
        topic, now, every = driver.create_input_topic("in"), {}, []
        left = list(rows)
        while left:
            size = next((at for at, one in enumerate(left, 1) if one[2]), len(left))
            with driver.batch():
                for key, score, _ in left[:size]:
                    now[key] = None if score is None else {"key": key, "score": score}
                    every += [now[key]] if now[key] else []
                    topic.pipe_input(key, now[key], 1)
            if left[size - 1][2] == "restart":
                driver.restart()
            del left[:size]
        lists = driver.create_output_topic("lists").read_values_to_list()
        places = driver.create_output_topic("rows").read_key_values_to_map()
    ordered = [row for row in now.values() if row] if of.startswith("table") else every
    ordered = sorted(ordered, key=lambda row: row["score"], reverse=largest)
    sign = 1 if largest else -1
    better = [sum(sign * (one["score"] - row["score"]) > 0 for one in ordered) for row in ordered]
    ranks = [count + 1 for count in better] if ties else list(range(1, len(ordered) + 1))
    expected = [(row["score"], rank) for row, rank in zip(ordered, ranks, strict=True) if rank <= n]
    found = [(row["score"], row["rank"]) for row in (lists or [None])[-1] or []]
    assert found == expected
    exploded = {int(place): row for place, row in places.items() if row is not None}
    assert [(exploded[at]["score"], exploded[at]["rank"]) for at in range(1, len(exploded) + 1)] == expected


def test_ranks_need_objects_and_rows_need_lists():
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    grouped.top(2, lambda n: n, rank="rank").to_stream().to("out")
    grouped.count(named="n").explode().to("rows")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        driver.create_input_topic("in").pipe_input("k", 1, 1)
        assert driver.dropped("processing") == 2
        assert driver.create_output_topic("out").is_empty
        assert driver.create_output_topic("rows").is_empty
    with pytest.raises(TopologyError, match="takes the name of the field that gets the rank"):
        grouped.top(2, lambda n: n, rank=1)


def test_the_keys_of_rows_are_made_of_the_key_and_the_position():
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    windowed.top(1, lambda n: n).explode().to("rows")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", 5, 13)
        found = driver.create_output_topic("rows").read_key_value()
        assert found == ({"key": "k", "start": 10, "end": 20, "position": 1}, 5)


def test_a_ranked_value_is_read_once_in_a_step():
    reads: list[bytes | None] = []
    read = JsonSerde.deserialize

    def counting(self, topic, data, headers=()):
        if topic.endswith("-rows"):
            reads.append(data)
        return read(self, topic, data, headers)

    builder = StreamsBuilder()
    builder.table("in").group_by(col("g"), key_serde=JsonSerde()).top(3, by=col("n")).to_stream().to("out")
    with patch.object(JsonSerde, "deserialize", counting), TopologyTestDriver(builder.build()) as driver:
        with driver.batch():
            for n in range(8):
                driver.create_input_topic("in").pipe_input(str(n), {"g": "a", "n": n}, 5)
        (best,) = driver.create_output_topic("out").read_values_to_list()
        assert [one["n"] for one in best] == [7, 6, 5]
    assert len(reads) == len(set(reads)) > 3
