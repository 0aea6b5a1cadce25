"""Programs of expressions on columns leave the same behind as record by record: outputs, changelogs, counters, dead letters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from state.columns import FEW_ROWS
from streams import (
    JoinWindows,
    KGroupedStream,
    KStream,
    Materialized,
    Processor,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
    agg,
    col,
    fields,
    lit,
    record_key,
    record_timestamp,
    timestamp_field,
)
from streams.serdes.json_text import dumps
from streams.serdes.keys import JsonKeySerde
from streams.topology.plan import build_plan
from streams.topology.planning.column_head import ColumnHead
from tests.both_ways import Fed, Seen, played
from tests.budget import up_to

windows = TimeWindows.of_size_and_grace(10, 5)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([2**53 + 1, 2**63 - 1, 2**64 - 1, -(2**63), 2**64 + 1, -(10**30), 0.5, -0.0, 1e308, 1.0])
    | st.sampled_from(["", "x", "warm", 'a"b', "é", "a\\/b"])
)
flat = st.dictionaries(st.sampled_from(["a", "b", "t", "a.b"]), scalars | st.sampled_from([[1], {"x": 2}, [2**64 + 1]]))
nested = st.builds(lambda own, inside, within: {**own, "o": {**inside, "o": within}}, flat, flat, flat | scalars)
objects = flat | nested | st.builds(lambda own, inside: {**own, "o": inside}, flat, scalars | st.just([1]))
raw_values = objects.map(dumps) | st.sampled_from(
    [None, b"null", b"5", b'"text"', b"[1,2]", b"{bad", b'{"a":"\\u0041"}', b'{"t":"a\\/b","a":1.5}']
)
records = st.tuples(st.sampled_from([b"k", b"l", None]), raw_values, st.integers(0, 40))
steps = st.lists(st.lists(records, max_size=12), min_size=1, max_size=3)


@contextmanager
def on_records() -> Iterator[None]:
    """Within the context, topologies are planned so that whole records are processed."""
    with mock.patch("streams.topology.plan.column_head", lambda nodes, *_: ColumnHead(paths=dict.fromkeys(nodes, ()))):
        yield


def a_filter(stream: KStream) -> KStream:
    return stream.filter((col("a") > 0) & ~(col("t") == "x"))


def filters(stream: KStream) -> KStream:
    return stream.filter(col("t").isin(["warm", "a/b", 1]) | (col("a") >= col("b"))).filter_not(col("b") / col("a") > 2)


def mapped(stream: KStream) -> KStream:
    return stream.map_values(fields("t", a=col("a") * 2 + 1, b=col("b").otherwise(lit("none"))))


def extended(stream: KStream) -> KStream:
    return stream.filter_not(col("a").is_null()).map_values(fields("*", a=col("a").cast(float), n=col("b") // col("a")))


def renamed(stream: KStream) -> KStream:
    return stream.map_values(fields(o=col("a"), a=col("b"))).filter((col("o.x") == 2) | (col("a") != 1))


def plain(grouped: KGroupedStream) -> None:
    grouped.aggregate(
        n=agg.count(),
        with_a=agg.count("a"),
        last=agg.last("t"),
        sum=agg.sum(col("a") + col("b").otherwise(0)),
        mean=agg.mean("a"),
        positive=agg.count(where=col("a") > 0),
        best=agg.max_by(fields("t", half=col("b") / 2), by="a"),
        latest=agg.last_by("t", by=col("a") - col("b")),
        recent=agg.collect("t", last=2),
        of_warm=agg.sum("b", where=col("t") == "warm"),
        materialized=Materialized("plain"),
    ).to_stream().to("out")


def windowed(grouped: KGroupedStream) -> None:
    of = grouped.windowed_by(windows)
    of.aggregate(
        top=agg.max(col("a") % 3), first=agg.first(col("b") == 1), materialized=Materialized("w")
    ).to_stream().to("out")


def sessions(grouped: KGroupedStream) -> None:
    of = grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(4, 5))
    of.aggregate(n=agg.count(), x=agg.sum(col("a") * 2), materialized=Materialized("s")).to_stream().to("out")


def sliding(grouped: KGroupedStream) -> None:
    of = grouped.windowed_by(SlidingWindows.of_time_difference_and_grace(4, 5))
    of.aggregate(n=agg.count(), x=agg.max(col("a") + 1), materialized=Materialized("s")).to_stream().to("out")


def both(grouped: KGroupedStream) -> None:
    plain(grouped)
    windowed(grouped)


def unwrapped(stream: KStream) -> KStream:
    return stream.map_values(col("o")).filter(col("a") != 1)


def unwrapped_twice(stream: KStream) -> KStream:
    return stream.filter(col("o.a").is_not_null() | (col("a") == 1)).map_values(col("o")).map_values(col("o"))


def unwrapped_from_fields(stream: KStream) -> KStream:
    return stream.map_values(fields("a", o=col("o.o"))).map_values(col("o")).select_key(col("t"))


def rekeyed(stream: KStream) -> KStream:
    return stream.filter(col("a").is_not_null()).select_key(col("t")).map_values(fields("*", a=col("a") // 2))


def rekeyed_twice(stream: KStream) -> KStream:
    return (
        stream.select_key(col("a").cast(str)).filter_not(col("b") == 1).select_key(col("t") + "-" + col("a").cast(str))
    )


def rekeyed_by_fields(stream: KStream) -> KStream:
    keyed = stream.filter(col("a").is_not_null()).select_key(fields("t", "o", b=col("a") * 2, c=col("b") > 1))
    return keyed.map_values(fields("*", a=col("a") // 2))


def with_dots(stream: KStream) -> KStream:
    """Fields whose own names have dots, beside nested ones that are written alike."""
    made = stream.map_values(fields("`a.b`", "o", t=col("o.`a.b`"), **{"x.y": col("a"), "o.a": col("`a.b`")}))
    return made.filter(col("`x.y`").is_not_null() | (col("`o.a`") != col("o.a"))).map_values(
        fields("*", a=col("`x.y`"), b=col("a.b").otherwise(col("`a.b`")))
    )


def of_the_record(stream: KStream) -> KStream:
    """What the records' keys and times decide, before and behind new keys."""
    wanted = stream.filter((record_key() != "l") | (record_timestamp() > 20)).filter_not(record_key() == col("t"))
    keyed = wanted.map_values(fields("*", t=record_key(), b=record_timestamp() // 2)).select_key(
        record_key().otherwise(col("a")) + "!"
    )
    return keyed.map_values(fields("a", "b", "o", old=col("t"), t=record_key()))


def unwrapped_with_its_key(stream: KStream) -> KStream:
    unwrapped = stream.map_values(fields("o", a=col("b"))).map_values(col("o"))
    return unwrapped.map_values(fields("b", t=record_key(), a=col("a").otherwise(record_timestamp())))


DEAD_LETTERS = {"deserialization": "dlq", "processing": "dlq", "dead_letter_topic": "dead"}
HEADS: list[Callable[[KStream], KStream]] = [
    a_filter,
    filters,
    mapped,
    extended,
    renamed,
    rekeyed,
    rekeyed_twice,
    rekeyed_by_fields,
    unwrapped,
    unwrapped_twice,
    unwrapped_from_fields,
    with_dots,
    of_the_record,
    unwrapped_with_its_key,
]


def not_finite(stream: KStream) -> KStream:
    """Numbers that JSON does not have, if `a` is large."""
    return stream.map_values(fields("t", "o", n=(col("a") * 1e308) * col("a") - col("b")))


def extended_again(stream: KStream) -> KStream:
    return not_finite(stream).filter_not(col("t") == "x").map_values(fields("*", more=col("n") == 1, t=col("t")))


def alone(stream: KStream) -> KStream:
    """Numbers, texts and arrays as values."""
    return stream.filter(col("o").is_not_null()).map_values(fields(o=col("a") / 3, a=col("o"))).map_values(col("a"))


def computed_alone(stream: KStream) -> KStream:
    return not_finite(stream).map_values(col("n"))


def to_topic(stream: KStream) -> None:
    stream.to("out")


def to_topics(stream: KStream) -> None:
    """One stream in several ways to one topic, where the order of the results of each record shows."""
    stream.map_values(fields(n=lit(1), a=col("a"))).to("out")
    stream.to("out")
    stream.filter(col("a").is_not_null()).map_values(fields("*", n=lit(2))).to("out")


def to_typed_topic(stream: KStream) -> None:
    """Keys by another serde than that of the source."""
    stream.select_key(fields("a", "t")).to("out", Produced(key_serde=JsonKeySerde()))


def to_functions(stream: KStream) -> None:
    stream.process(Marking).to("out")


class Marking(Processor):
    """Changes the objects that it gets."""

    def process(self, record: Any) -> None:
        value = record.value
        if isinstance(value, dict):
            value["seen"] = True
        elif isinstance(value, list):
            value.append("seen")
        self.ctx.forward(record)


def to_joins(stream: KStream) -> None:
    table = stream.filter(col("a").is_not_null()).to_table(Materialized("table"))
    stream.left_join(table, fields(left="*", right=["a", "o"])).to("out")
    near = JoinWindows.of_time_difference_and_grace(5, 5)
    stream.join(stream.map_values(fields("t", "o")), fields(left="*", right=["o"]), near).to("joined")


def to_function_aggregates(stream: KStream) -> None:
    stream.group_by_key().reduce(lambda old, new: new, Materialized("last")).to_stream().to("out")
    stream.group_by(col("t")).windowed_by(windows).count(Materialized("counts")).to_stream().to("counts")


STREAMS = [*HEADS, not_finite, extended_again, alone, computed_alone]
ENDS: list[Callable[[KStream], None]] = [
    to_topic,
    to_topics,
    to_typed_topic,
    to_functions,
    to_joins,
    to_function_aggregates,
]


@given(head=st.sampled_from(STREAMS), end=st.sampled_from(ENDS), given_steps=steps, few=st.sampled_from([0, FEW_ROWS]))
@up_to(80)
def test_whole_values_of_columns_are_what_records_are(
    head: Callable[[KStream], KStream], end: Callable[[KStream], None], given_steps: Any, few: int
) -> None:
    builder = StreamsBuilder()
    end(head(builder.stream("in")))
    topology = builder.build()
    assume("object" not in transports(topology))  # an expression within a computed field
    with mock.patch("streams.engine.reader.written_values.FEW_ROWS", few):
        check_both_ways(topology, fed(given_steps), production="dlq", **DEAD_LETTERS)


@given(head=st.sampled_from(STREAMS), given_steps=steps)
@up_to(30)
def test_a_topic_gets_the_same_up_to_the_same_failed_record(
    head: Callable[[KStream], KStream], given_steps: Any
) -> None:
    builder = StreamsBuilder()
    head(builder.stream("in")).to("out")
    check_both_ways(builder.build(), fed(given_steps))


unreadable = st.tuples(st.sampled_from([b"k", b"l", b"\xff", None]), raw_values, st.integers(0, 40))


@pytest.mark.parametrize("head", [of_the_record, unwrapped_with_its_key])
@given(given_steps=st.lists(st.lists(unreadable, max_size=8), min_size=1, max_size=2))
@up_to(10)
def test_keys_that_cannot_be_read_meet_the_same_policy(head: Callable[[KStream], KStream], given_steps: Any) -> None:
    builder = StreamsBuilder()
    head(builder.stream("in")).to("out")
    check_both_ways(builder.build(), fed(given_steps), **DEAD_LETTERS)


def program(head: Callable[[KStream], KStream], tail: Callable[[KGroupedStream], None]) -> Topology:
    builder = StreamsBuilder()
    tail(head(builder.stream("in")).group_by_key())
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("tail", [both, sessions, sliding])
@pytest.mark.parametrize("head", HEADS)
@given(given_steps=steps)
@up_to(6)
def test_both_ways_leave_the_same_behind(
    head: Callable[[KStream], KStream], tail: Callable[[KGroupedStream], None], given_steps: Any
) -> None:
    check_both_ways(program(head, tail), fed(given_steps), **DEAD_LETTERS)


@given(given_steps=steps)
@up_to(20)
def test_both_ways_skip_the_same_records(given_steps: Any) -> None:
    check_both_ways(program(extended, both), fed(given_steps), deserialization="skip", processing="skip")


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
@given(given_steps=steps)
@up_to(8)
def test_both_ways_fail_at_the_same_record(head: Callable[[KStream], KStream], given_steps: Any) -> None:
    check_both_ways(program(head, plain), fed(given_steps))


@pytest.mark.slow
@given(given_steps=steps)
@up_to(30)
def test_branches_of_columns_share_what_is_above_them(given_steps: Any) -> None:
    builder = StreamsBuilder()
    time = timestamp_field(col("a") * 3 - col("b"))
    wanted = builder.stream("in", timestamp_extractor=time).filter(col("a") > col("b"))
    plain(wanted.group_by_key())
    windowed(wanted.map_values(fields(a=col("a") / col("b"), b=col("t") == "warm")).group_by_key())
    topology = builder.build()
    check_both_ways(topology, fed(given_steps), **DEAD_LETTERS)


def fed(given_steps: Sequence[Sequence[tuple[bytes | None, bytes | None, int]]]) -> list[list[Fed]]:
    return [[Fed("in", key, value, time) for key, value, time in step] for step in given_steps]


def check_both_ways(topology: Topology, given_steps: list[list[Fed]], **settings_of_test: Any) -> None:
    assert transports(topology) <= {"columns", "written", "raw"} != {"raw"}
    found = played(topology, given_steps, **settings_of_test)
    with on_records():
        assert transports(topology) <= {"object", "raw"}
        expected = played(topology, given_steps, **settings_of_test)
    assert by_topic(found) == by_topic(expected)
    assert found.counters == expected.counters
    assert without_key(found) == without_key(expected)


def transports(topology: Topology) -> set[str]:
    return {entry.transport for sub in build_plan(topology, "test").sub_topologies for entry in sub.entries}


def by_topic(seen: Seen) -> dict[tuple[str, int], Any]:
    """Topic and partition -> records. Aggregates of one stream take columns in turn, so their dead letters do not alternate."""
    return {
        place: sorted(records, key=repr) if place[0] == "dead" else records for place, records in seen.topics.items()
    }


def without_key(seen: Seen) -> str | None:
    """The failed record without its key, which tasks know of columns, but of objects only where dead letters need it."""
    return seen.failed and re.sub(r", key .*?, made", " made", seen.failed)
