"""Expressions in programs: what they compute, where they are taken, and what mistakes with them say."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    Consumed,
    Expression,
    GlobalKTable,
    Grouped,
    Int64Serde,
    JoinWindows,
    JsonSerde,
    KStream,
    Materialized,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    WallclockTimestampExtractor,
    agg,
    col,
    fields,
    lit,
    record_key,
    record_timestamp,
    timestamp_field,
    when,
)
from streams.dsl import functions
from streams.errors import NoFieldsError, RecordError, RecordFailedError
from streams.model.aggregates import Mean
from streams.model.timestamps import ConsumedRecord
from streams.testing import TopologyTestDriver
from streams.topology.plan import build_plan

VALUE = {"a": 7, "b": 2, "f": 1.5, "t": "text", "yes": True, "no": False, "nil": None, "o": {"x": 4}, "l": [10, 20]}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (col("a") + col("b") * 2, 11),
        (1 + col("a") - col("b"), 6),
        (10 - col("a"), 3),
        (2 * col("f"), 3.0),
        (col("a") / col("b"), 3.5),
        (7 // col("b"), 3),
        (-col("a") // col("b"), -4),
        (-col("a") % col("b"), 1),
        (9 % col("a"), 2),
        (14 / col("a"), 2.0),
        (abs(-col("f")), 1.5),
        (col("t") + "!", "text!"),
        ("<" + col("t"), "<text"),
        (col("o.x") + col("l.1"), 24),
        (col("l.7"), None),
        (col("missing") * 2, None),
        (col("nil") == col("nil"), None),
        (col("a") > 3, True),
        (col("t") < "u", True),
        (col("t") == 5, False),
        (col("a") != 7.0, False),
        ((col("a") > 3) & (col("b") <= 2), True),
        (col("no") & col("nil"), False),
        (col("yes") & col("nil"), None),
        (col("yes") | col("nil"), True),
        (True & col("yes"), True),
        (False | col("nil"), None),
        (~col("yes"), False),
        (~col("nil"), None),
        (col("no") & (col("a") / 0 > 1), False),
        (col("nil").is_null(), True),
        (col("a").is_not_null(), True),
        (col("nil").otherwise(col("missing")).otherwise(3), 3),
        (col("a").otherwise(1 / col("zero")), 7),
        (col("a").between(7, 8), True),
        (col("a").isin([1, 7]), True),
        (col("t").isin(["x"]), False),
        (col("nil").isin([1]), None),
        (col("a").least(col("b")), 2),
        (col("a").greatest(7.0), 7),
        (col("f").cast(int), 1),
        (col("a").cast(float), 7.0),
        (col("a").cast(str) + "%", "7%"),
        (lit("12").cast(int) * 10**30, 12 * 10**30),
        (lit(None), None),
    ],
    ids=repr,
)
def test_an_expression_computes_as_python_does_and_null_gives_null(expression: Expression, expected: Any) -> None:
    found = expression(VALUE)
    assert (found, type(found)) == (expected, type(expected))
    assert eval(repr(expression), {"col": col, "lit": lit})(VALUE) == expected, "the repr is the expression"
    assert pickle.loads(pickle.dumps(expression))(VALUE) == copy.deepcopy(expression)(VALUE) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (col("t") * 2, "'text' * 2 cannot be computed: it takes numbers"),
        (col("yes") + 1, "True + 1 cannot be computed: it takes two numbers or two texts"),
        (col("a") / 0, "7 / 0 cannot be computed: division by zero"),
        (col("a") > "x", "7 > 'x' cannot be computed: '>' not supported between instances of 'int' and 'str'"),
        (col("t").cast(float), "'text'.cast(float) cannot be computed: could not convert string to float: 'text'"),
        (col("o").cast(int), "a dict.cast(int) cannot be computed: it takes a number, a text or a truth value"),
        (col("a") & True, "true or false is needed here, not 7: compare it, as in col('count') != 0"),
    ],
    ids=repr,
)
def test_a_wrong_operand_is_the_records_error(expression: Expression, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        expression(VALUE)
    assert str(caught.value) == message


def test_a_value_without_fields_is_the_records_error_and_a_null_value_has_null_fields() -> None:
    with pytest.raises(NoFieldsError):
        col("a")("text")
    assert col("a")(None) is None


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda: bool(col("a") > 1), "use & instead of 'and'"),
        (lambda: 1 < col("a") < 5, ".between(low, high) instead of low <= x <= high"),
        (lambda: col("a") == None, "use .is_null() instead"),  # noqa: E711
        (lambda: col("a") != None, "use .is_not_null() instead"),  # noqa: E711
        (lambda: col("a..b"), "a field is a name, or names joined by single dots"),
        (lambda: col("a") + object(), "not with an object: use a function, such as lambda value: ..."),
        (lambda: col("a").isin("abc"), "isin() takes a list of constants"),
        (lambda: col("a").cast(list), "cast() takes int, float, str or Decimal, not the class list"),  # type: ignore[arg-type]
        (lambda: fields("a.b"), "fields(b=col('a.b'))"),
        (lambda: fields(a="b"), "write a=col('b') for the field, or a=lit('b') for the text"),  # type: ignore[call-overload]
        (lambda: fields(), "at least one field"),
        (lambda: fields("a", left="*"), "not both"),  # type: ignore[call-overload]
        (lambda: stream().filter(fields("a")).map_values(fields(left="*")), "computes with (left, right)"),
        (lambda: stream_and_table(), "an expression of both values is fields(left=..., right=...)"),
        (lambda: stream().group_by_key().reduce(col("a")), "it is called with (aggregate, value)"),  # type: ignore[arg-type]
    ],
)
def test_a_mistake_says_what_to_write_instead(program: Callable[[], Any], message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        program()
    assert message in str(caught.value)


def stream() -> KStream:
    return StreamsBuilder().stream("in")


def stream_and_table() -> KStream:
    builder = StreamsBuilder()
    return builder.stream("in").join(builder.table("table"), col("a"))


def test_fields_make_objects_and_a_null_value_stays_null() -> None:
    assert fields("a", "missing", n=col("o.x"))(VALUE) == {"a": 7, "missing": None, "n": 4}
    assert fields("*", a=col("a") + 1)({"a": 1, "b": 2}) == {"a": 2, "b": 2}
    assert fields("*", left=lit(1))({"a": 1}) == {"a": 1, "left": 1}
    assert fields("a")(None) is None
    with pytest.raises(NoFieldsError):
        fields("*")("text")


def test_fields_join_objects_and_a_missing_side_has_no_fields() -> None:
    joiner = fields(left="*", right=["name", "n"], total=col("left.n") * col("right.price"))
    assert joiner({"n": 2, "id": 5}, {"name": "x", "n": 9, "price": 1.5}) == {
        "n": 9,
        "id": 5,
        "name": "x",
        "total": 3.0,
    }
    assert joiner({"n": 2}, None) == {"n": None, "name": None, "total": None}
    assert fields(left="*", right="*")(None, {"a": 1}) == {"a": 1}


SIDES = st.sampled_from(
    (None, {}, {"n": 2, "o": {"z": 1.5}}, {"n": None, "t": "x"}, {"n": "text", "o": 5}, [1, 2], "text", 3)
)


@given(SIDES, SIDES)
def test_a_joiner_of_fields_is_compiled_to_what_it_computes_itself(left: Any, right: Any) -> None:
    price = (col("left.n") * col("right.n")).otherwise(lit(-1)) + col("right.o.z")
    for given_fields in (
        fields(left="*", right=["n", "t"], both=price, n=lit("own")),
        fields(left=["n"], right="*", few=(col("left.n") < 3) | ~col("right.o").is_null(), whole=col("right")),
    ):
        joined = functions.joiner(given_fields)
        assert outcome(lambda joined=joined: joined("key", left, right)) == outcome(
            lambda given_fields=given_fields: given_fields(left, right)
        )


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return list(call().items())
    except RecordError as error:
        return type(error), str(error)


def test_a_joiner_may_be_fields_computed_of_both_values() -> None:
    joined = functions.joiner(fields(l=col("left.n"), sum=col("left.n") + col("right.n")))
    assert joined("key", {"n": 1}, {"n": 2}) == {"l": 1, "sum": 3}
    assert fields(l=col("left.n"))({"n": 1}, None) == {"l": 1}
    with pytest.raises(TypeError, match="reads one value"):
        fields("n")({"n": 1}, {"n": 2})
    assert functions.global_joiner(fields(r=col("right.n")))("key", "k", None, {"n": 2}) == {"r": 2}
    with pytest.raises(TopologyError, match=r"fields\(left=..., right=...\)"):
        functions.joiner(fields(l=col("left.n"), other=col("n")))


@dataclass
class Reading:
    sensor: int
    degrees: float


def test_expressions_read_objects_as_well_as_dicts() -> None:
    reading = Reading(5, 20.0)
    assert (col("degrees") * 1.8 + 32)(reading) == 68.0
    assert fields("*", warm=col("degrees") > 15)(reading) == {"sensor": 5, "degrees": 20.0, "warm": True}


def test_an_expression_is_taken_wherever_a_function_of_the_value_is() -> None:
    builder = StreamsBuilder()
    source = builder.stream("in", timestamp_extractor=timestamp_field(col("second") * 1000))
    wanted = source.filter(col("n") > 0).filter_not(col("skip"))
    wanted.select_key(col("user")).map_values(col("n") * 2).to("mapped")
    branches = wanted.split(named="by-size-").branch(col("n") > 5, "large").default_branch("small")
    for name in ("large", "small"):
        branches[f"by-size-{name}"].to(name)
    grouped = wanted.group_by(col("user"), Grouped(name="users"))
    grouped.mean(col("n") * 1.5, materialized=Materialized("mean")).to_stream().to("mean")
    grouped.top(1, col("n"), materialized=Materialized("top")).to_stream().to("top")
    wanted.deduplicate(5, by=col("id"), named="once").to("once")
    with TopologyTestDriver(builder.build()) as driver:
        records = driver.create_input_topic("in")
        for value in (
            {"n": 4, "user": "u", "second": 1, "id": 1},
            {"n": 8, "user": "u", "second": 2, "skip": False, "id": 1},
            {"n": 9, "user": "u", "second": 3, "skip": True},
            {"user": "u", "second": 3},
        ):
            records.pipe_input("k", value)

        def seen(topic: str) -> list[Any]:
            return [
                (one.key, one.value, one.timestamp) for one in driver.create_output_topic(topic).read_records_to_list()
            ]

        assert seen("mapped") == [("u", 8, 1000), ("u", 16, 2000)]
        assert [value["n"] for _, value, _ in seen("large")] == [8]
        assert [value["n"] for _, value, _ in seen("small")] == [4]
        assert seen("mean") == [("u", {"mean": 6.0}, 1000), ("u", {"mean": 9.0}, 2000)]
        assert [[one["n"] for one in value] for _, value, _ in seen("top")] == [[4], [8]]
        assert [value["n"] for _, value, _ in seen("once")] == [4, 8]


def test_fields_join_streams_and_tables() -> None:
    builder = StreamsBuilder()
    orders, users = builder.stream("orders"), builder.table("users", Materialized("users"))
    joiner = fields(left="*", right=["name"], due=col("left.total") - col("right.credit").otherwise(0))
    orders.left_join(users, joiner).to("out")
    everywhere: GlobalKTable = builder.global_table("everywhere")
    orders.join(everywhere, col("user"), fields(left=["total"], right=["rate"])).to("out")
    windows = JoinWindows.of_time_difference_with_no_grace(10)
    orders.join(builder.stream("paid"), fields(left=["total"], right="*"), windows, store_name="paid").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("everywhere").pipe_input("u", {"rate": 0.5})
        driver.create_input_topic("users").pipe_input("k", {"name": "ann", "credit": 3}, 1)
        driver.create_input_topic("orders").pipe_input("k", {"total": 10, "user": "u"}, 2)
        driver.create_input_topic("paid").pipe_input("k", {"at": 5}, 3)
        assert driver.create_output_topic("out").read_values_to_list() == [
            {"total": 10, "user": "u", "name": "ann", "due": 7},
            {"total": 10, "rate": 0.5},
            {"total": 10, "at": 5},
        ]


def test_a_filter_of_a_table_takes_an_expression() -> None:
    builder = StreamsBuilder()
    builder.table("in", Materialized("in")).filter(col("n") > 1).map_values(fields("n")).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("k", {"n": 2, "m": 1})
        topic.pipe_input("k", {"n": None})
        assert driver.create_output_topic("out").read_values_to_list() == [{"n": 2}, None]


def test_a_predicate_must_be_true_false_or_null() -> None:
    builder = StreamsBuilder()
    builder.stream("in").filter(col("n")).to("out")
    needed = pytest.raises(RecordFailedError, match="true or false is needed here, not 5")
    with TopologyTestDriver(builder.build()) as driver, needed:
        driver.create_input_topic("in").pipe_input("k", {"n": 5})


def test_a_column_alone_is_the_same_aggregate_as_its_path() -> None:
    assert Mean(col("a.b")).identity == Mean("a.b").identity == "mean(a.b)"
    assert Mean(col("a.b")) == Mean("a.b")


def test_an_expression_is_part_of_the_topology_hash_by_its_text() -> None:
    def hash_of(field: str | Expression) -> str:
        builder = StreamsBuilder()
        windows = TimeWindows.of_size_with_no_grace(10)
        grouped = builder.stream("in").group_by_key().windowed_by(windows)
        grouped.aggregate(mean=agg.mean(field), materialized=Materialized("store")).to_stream().to("out")
        return build_plan(builder.build(), "app").sub_topologies[0].topology_hash

    assert hash_of(col("a")) == hash_of("a")
    assert hash_of(col("a") * 1.8) == hash_of(col("a") * 1.8)
    assert len({hash_of("a"), hash_of(col("a") * 1.8), hash_of(col("a") * 2)}) == 3


def test_the_serde_of_a_key_follows_from_the_type_of_the_field() -> None:
    builder = StreamsBuilder()
    readings = builder.stream("in", Consumed(value_serde=JsonSerde(Reading)))
    readings.group_by(col("sensor")).count(materialized=Materialized("counts"))
    readings.group_by(col("degrees").cast(int)).count(materialized=Materialized("by-degree"))
    topology = builder.build()
    assert isinstance(topology.stores["counts"].key_serde, Int64Serde)
    assert isinstance(topology.stores["by-degree"].key_serde, Int64Serde)


def test_when_takes_the_first_true_case_and_computes_no_other() -> None:
    size = when(col("n") > 9, "many").when(col("n") > 1, col("n") / col("d"))
    assert [size({"n": n, "d": 0}) for n in (10, 1, None)] == ["many", None, None]
    assert [size.otherwise("few")(value) for value in ({"n": 4, "d": 2}, {"n": 1}, {})] == [2.0, "few", "few"]
    with pytest.raises(RecordError, match="cannot be computed"):
        size({"n": 2, "d": 0})
    assert repr(size.otherwise(0)) == "when(col('n') > 9, 'many').when(col('n') > 1, col('n') / col('d')).otherwise(0)"


def test_a_when_whose_value_is_null_stays_null() -> None:
    assert when(col("a") == 7, col("nil")).otherwise(1)(VALUE) is None


def test_texts_and_times_are_pythons() -> None:
    value = {"url": "https://a/b/Item", "at": "2026-07-01T23:30:00+02:00", "l": [1, 2]}
    parts = fields(
        last=col("url").split("/")[-1].lower(),
        first=col("url").substring(1, 5),
        two=col("l")[1],
        none=col("l")[2],
        nested=col("l")["0"],
        day=col("at").to_timestamp().date_format("%d.%m. %H:%M", "Europe/Berlin"),
        hour=col("at").to_timestamp().hour(),
        length=col("l").length(),
    )
    assert parts(value) == {
        "last": "item", "first": "https", "two": 2, "none": None, "nested": 1, "day": "01.07. 23:30", "hour": 21, "length": 2,
    }  # fmt: skip


DOTTED = {"a.b": {"c": 1, "d.e": [2, {"f.": 3}]}, "a": {"b": {"c": 4}, "`": 5}, "x`y": 6, "`z": 7}


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (col("`a.b`.c"), 1),
        (col("`a.b`")["c"], 1),
        (col("`a.b`")["d.e"]["0"], 2),
        (col("`a.b`.`d.e`.1.`f.`"), 3),
        (col("a.b.c"), 4),
        (col("`a`.`b`.c"), 4),
        (col("a.````"), 5),
        (col("x`y"), 6),
        (col("```z`"), 7),
        (col("a.b.d.e"), None),
    ],
    ids=repr,
)
def test_a_name_that_has_a_dot_stands_between_backticks(field: Expression, expected: Any) -> None:
    assert field(DOTTED) == eval(repr(field), {"col": col})(DOTTED) == expected
    (path,) = field.paths
    assert fields(f=field)(DOTTED) == {"f": expected}
    assert fields(f=col(f"left.{path}"))(DOTTED, None) == {"f": expected}
    assert functions.joiner(fields(f=col(f"right.{path}")))("key", None, DOTTED) == {"f": expected}
    assert agg.sum(path).value_in(DOTTED) == agg.sum(field).value_in(DOTTED)
    assert (
        expected is None or timestamp_field(path).extract(ConsumedRecord("t", 0, 0, 0, None, DOTTED), 0, 0) == expected
    )


def test_fields_take_over_names_that_have_dots() -> None:
    assert fields("`a.b`", "x`y")({"a.b": 1, "x`y": 2}) == {"a.b": 1, "x`y": 2}
    assert repr(fields("`a.b`", "c")) == "fields('`a.b`', 'c')"
    joiner = fields(left=["`a.b`"], right=["c"])
    assert joiner({"a.b": 1}, {"c": 2}) == functions.joiner(joiner)("key", {"a.b": 1}, {"c": 2}) == {"a.b": 1, "c": 2}
    assert agg.sum("`a`.b") == agg.sum("a.b")


@pytest.mark.parametrize("path", ["`a", "`a`b", "``", "a.`b", "a..b", ".a", "a.", ""])
def test_a_path_that_is_none_says_so(path: str) -> None:
    for wrong in (lambda: col(path), lambda: agg.sum(path), lambda: timestamp_field(path)):
        with pytest.raises(
            TopologyError, match=r"single dots, and a name that contains a dot is enclosed in backticks"
        ):
            wrong()


def test_a_field_that_is_not_there_but_has_a_dot_in_its_name_is_suggested() -> None:
    made = TypedDict("made", {"a.b": int, "n": int})
    typed = StreamsBuilder().stream("in", Consumed(value_serde=JsonSerde(made)))
    with pytest.raises(TopologyError, match=r"There is a field 'a.b': .* as in col\('`a.b`'\)"):
        typed.filter(col("a.b") > 1)
    typed.filter(col("`a.b`") > 1).group_by_key().sum("`a.b`")


def test_the_key_and_the_time_of_a_record_are_read_by_operators_of_streams() -> None:
    builder = StreamsBuilder()
    kept = builder.stream("in").filter(lambda value: True).filter_not(record_key() == "no")
    kept.map_values(fields("*", k=record_key(), hour=record_timestamp().hour())).to("out")
    kept.select_key(record_timestamp()).to("by-time")
    kept.map_values(record_key()).to("keys")
    with TopologyTestDriver(builder.build()) as driver:
        for key in ("a", None, "no"):
            driver.create_input_topic("in").pipe_input(key, {"n": 1}, 7_200_000)
        values = driver.create_output_topic("out").read_values_to_list()
        assert values == [{"n": 1, "k": "a", "hour": 2}, {"n": 1, "k": None, "hour": 2}]
        assert driver.create_output_topic("by-time", key_serde=Int64Serde()).read_record().key == 7_200_000
        assert driver.create_output_topic("keys").read_values_to_list() == ["a", None]


def test_the_time_is_that_of_processing_where_the_extractor_says_so() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", timestamp_extractor=WallclockTimestampExtractor())
    stream.map_values(fields(at=record_timestamp())).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", {})
        found = driver.create_output_topic("out").read_record()
        assert found.value == {"at": found.timestamp}
        assert found.timestamp >= 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda stream: stream.group_by_key().sum(record_timestamp()),
        lambda stream: stream.group_by_key().aggregate(x=agg.max_by(fields("a", k=record_key()), by="a")),
        lambda stream: stream.group_by_key().top(1, record_timestamp()),
        lambda stream: stream.split().branch(record_key() == "a"),
        lambda stream: stream.flat_map_values(record_key()),
        lambda stream: stream.deduplicate(5, by=record_key()),
        lambda stream: stream.to_table().filter(record_key() == "a"),
        lambda stream: stream.join(stream.to_table(), fields(left="*", k=record_key())),
    ],
)
def test_where_the_key_cannot_be_read_it_is_taken_into_the_value_before(wrong: Callable[[KStream], Any]) -> None:
    with pytest.raises(TopologyError, match=r"first add it to the value, as in map_values\(fields\('\*', name=record_"):
        wrong(stream())


untyped: Any = col
"""For what mypy refuses, too."""


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: untyped("a").str.lower(), r"functions are methods of the expression, as in col\('x'\).lower"),
        (lambda: untyped("a").fillna(0), "use otherwise"),
        (lambda: untyped("a").isNull, "use is_null"),
        (lambda: untyped("a").alias("b"), "the name is that of the argument"),
        (lambda: untyped("a").lowr(), "did you mean lower"),
        (lambda: col("a").date_format("yyyy-MM-dd"), "it is Python's"),
        (lambda: untyped("a").date_format("%Y", 1), r"^date_format\(\) takes a constant text"),
        (lambda: untyped("a").to_timestamp(1), r"^to_timestamp\(\) takes a constant text"),
        (lambda: col("a").hour("Berlin"), "There is no time zone 'Berlin'"),
        (lambda: col("a").regexp_extract("(", 1), "not a regular expression"),
        (lambda: col("a").regexp_extract("a"), "the pattern has 0 groups"),
        (lambda: col("a").substring(0, 3), "which is 1 for the first character"),
        (lambda: col("a")[::2], "takes one or two whole numbers"),
        (lambda: list(col("a")), "has no elements while the program is built"),
        (lambda: when(True, 1), "takes a condition"),
    ],
)
def test_what_others_write_is_answered(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises((TopologyError, AttributeError), match=says):
        wrong()
