"""Shapes of arguments: options in Kafka Streams' order, their fields as keywords, one name where several are taken."""

from __future__ import annotations

import copy
import inspect
import operator
import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from streams import (
    Branched,
    Consumed,
    Grouped,
    Int32Serde,
    Int64Serde,
    Joined,
    JoinWindows,
    JsonSerde,
    KStream,
    KTable,
    Materialized,
    Named,
    Processor,
    Produced,
    Record,
    Repartitioned,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    TopologyBuilder,
    TopologyError,
    UsePartitionTimeOnInvalidTimestamp,
)
from streams.dsl import functions, options
from streams.dsl.kstream import BranchedKeywords, EnrichSettings
from streams.dsl.options import Option
from streams.testing import TopologyTestDriver
from streams.topology.graph import SinkNode, SourceNode
from streams.topology.manifest import manifest_json
from streams.topology.topology import Topology

WITHIN = JoinWindows.of_time_difference_with_no_grace(timedelta(seconds=5))
BY_FIVE = TimeWindows.of_size_with_no_grace(5)


def built(build: Callable[[StreamsBuilder], object]) -> Topology:
    """What a program gives, with a sink so that tables count as used."""
    builder = StreamsBuilder()
    made = build(builder)
    if isinstance(made, KTable):
        made.to_stream().to("out")
    return builder.build()


def text(build: Callable[[StreamsBuilder], object]) -> str:
    return manifest_json(built(build))


GROUPED = {
    "the operator's name": (lambda g: g.count("n"), lambda g: g.count(named="n")),
    "an object in the name's place": (
        lambda g: g.count(Materialized(name="s")),
        lambda g: g.count(materialized=Materialized(name="s")),
    ),
    "both, in their order": (
        lambda g: g.count("n", "s"),
        lambda g: g.count(named="n", materialized=Materialized(name="s")),
    ),
    "both, the other way round": (
        lambda g: g.count(Materialized(name="s"), Named("n")),
        lambda g: g.count(named="n", materialized=Materialized(name="s")),
    ),
    "a name beside an object that has its place": (
        lambda g: g.count(Materialized(name="s"), "n"),
        lambda g: g.count("n", Materialized(name="s")),
    ),
    "of reduce": (
        lambda g: g.reduce(max, Materialized(name="s")),
        lambda g: g.reduce(max, materialized=Materialized(name="s")),
    ),
    "of sum": (lambda g: g.sum("x", Materialized(name="s")), lambda g: g.sum("x", materialized=Materialized(name="s"))),
    "of top": (
        lambda g: g.top(3, len, True, Materialized(name="s")),
        lambda g: g.top(3, len, materialized=Materialized(name="s")),
    ),
    "of aggregate": (
        lambda g: g.aggregate(int, max, Materialized(name="s")),
        lambda g: g.aggregate(int, max, materialized=Materialized(name="s")),
    ),
    "of cogrouped streams": (
        lambda g: g.cogroup(max).aggregate(int, Materialized(name="s")),
        lambda g: g.cogroup(max).aggregate(int, materialized=Materialized(name="s")),
    ),
}
"""Two ways to say the same of a grouped stream."""


@pytest.mark.parametrize("case", GROUPED)
def test_an_aggregation_takes_its_name_its_store_or_both(case: str) -> None:
    short, long = GROUPED[case]
    assert text(lambda b: short(b.stream("in").group_by_key())) == text(lambda b: long(b.stream("in").group_by_key()))


SAME = {
    "consumed by name": (lambda b: b.stream("in", "source"), lambda b: b.stream("in", Consumed(name="source"))),
    "consumed by keywords": (
        lambda b: b.stream(
            "in", key_serde=Int64Serde(), value_serde=StringSerde(), offset_reset="latest", name="source"
        ),
        lambda b: b.stream("in", Consumed(Int64Serde(), StringSerde(), offset_reset="latest", name="source")),
    ),
    "consumed by an object and a keyword": (
        lambda b: b.stream("in", Consumed(key_serde=Int64Serde()), value_serde=StringSerde()),
        lambda b: b.stream("in", Consumed(Int64Serde(), StringSerde())),
    ),
    "a table's store in the first place": (
        lambda b: b.table("in", Materialized(name="s")),
        lambda b: b.table("in", materialized=Materialized(name="s")),
    ),
    "a table's options the other way round": (
        lambda b: b.table("in", Materialized(name="s"), Consumed(key_serde=Int64Serde())),
        lambda b: b.table("in", Consumed(key_serde=Int64Serde()), Materialized(name="s")),
    ),
    "a table's serdes as keywords": (
        lambda b: b.table("in", "t", "s", key_serde=Int64Serde()),
        lambda b: b.table("in", Consumed(key_serde=Int64Serde(), name="t"), Materialized(name="s")),
    ),
    "a global table's store in the first place": (
        lambda b: (b.stream("other"), b.global_table("in", Materialized(name="s"), value_serde=StringSerde())),
        lambda b: (
            b.stream("other"),
            b.global_table("in", Consumed(value_serde=StringSerde()), Materialized(name="s")),
        ),
    ),
    "a sink by name": (
        lambda b: b.stream("in").to("x", "sink"),
        lambda b: b.stream("in").to("x", Produced(name="sink")),
    ),
    "a sink by keywords": (
        lambda b: b.stream("in").to("x", key_serde=Int32Serde(), value_serde=StringSerde()),
        lambda b: b.stream("in").to("x", Produced(Int32Serde(), StringSerde())),
    ),
    "a repartition topic by name": (
        lambda b: b.stream("in").repartition("r").to("x"),
        lambda b: b.stream("in").repartition(Repartitioned(name="r")).to("x"),
    ),
    "a repartition topic by keywords": (
        lambda b: b.stream("in").repartition(partitions=3, name="r").to("x"),
        lambda b: b.stream("in").repartition(Repartitioned(partitions=3, name="r")).to("x"),
    ),
    "a group by name": (
        lambda b: b.stream("in").process(Echo).group_by(len, "by").count(),
        lambda b: b.stream("in").process(Echo).group_by(len, Grouped(name="by")).count(),
    ),
    "a group by keywords": (
        lambda b: b.stream("in").process(Echo).group_by(len, key_serde=Int64Serde(), name="by").count(),
        lambda b: b.stream("in").process(Echo).group_by(len, Grouped(Int64Serde(), name="by")).count(),
    ),
    "a group and its operator": (
        lambda b: b.stream("in").process(Echo).group_by(len, Named("n"), Grouped(name="by")).count(),
        lambda b: b.stream("in").process(Echo).group_by(len, Grouped(name="by"), "n").count(),
    ),
    "a group by key by name": (
        lambda b: b.stream("in").process(Echo).group_by_key("by").count(),
        lambda b: b.stream("in").process(Echo).group_by_key(Grouped(name="by")).count(),
    ),
    "a table of a stream by name": (
        lambda b: b.stream("in").to_table("s"),
        lambda b: b.stream("in").to_table(Materialized(name="s")),
    ),
    "a table of a stream by keywords": (
        lambda b: b.stream("in").to_table(name="s", value_serde=StringSerde()),
        lambda b: b.stream("in").to_table(Materialized(name="s", value_serde=StringSerde())),
    ),
    "a table's group by keywords": (
        lambda b: b.table("in").group_by(lambda k, v: (v, k), key_serde=Int64Serde(), name="g").count(),
        lambda b: b.table("in").group_by(lambda k, v: (v, k), Grouped(Int64Serde(), name="g")).count(),
    ),
    "a table's filter": (
        lambda b: b.table("in").filter(bool, Materialized(name="s")),
        lambda b: b.table("in").filter(bool, materialized=Materialized(name="s")),
    ),
    "a table's mapper": (
        lambda b: b.table("in").map_values(str, Materialized(name="s"), "n"),
        lambda b: b.table("in").map_values(str, "n", Materialized(name="s")),
    ),
    "a join of streams by keywords": (
        lambda b: b.stream("l").join(b.stream("r"), pair, WITHIN, name="j", store_name="s").to("x"),
        lambda b: b.stream("l").join(b.stream("r"), pair, WITHIN, StreamJoined(name="j", store_name="s")).to("x"),
    ),
    "a join of streams by name": (
        lambda b: b.stream("l").left_join(b.stream("r"), pair, WITHIN, "j").to("x"),
        lambda b: b.stream("l").left_join(b.stream("r"), pair, WITHIN, StreamJoined(name="j")).to("x"),
    ),
    "a join with a table by name": (
        lambda b: b.stream("l").join(b.table("r"), pair, "j").to("x"),
        lambda b: b.stream("l").join(b.table("r"), pair, Joined(name="j")).to("x"),
    ),
    "a join with a table by keywords": (
        lambda b: b.stream("l").left_join(b.table("r"), pair, name="j", key_serde=StringSerde()).to("x"),
        lambda b: b.stream("l").left_join(b.table("r"), pair, Joined(name="j", key_serde=StringSerde())).to("x"),
    ),
    "a join with a global table in Kafka Streams' order": (
        lambda b: b.stream("l").join(b.global_table("r"), lambda k, v: v, pair, Named("j")).to("x"),
        lambda b: b.stream("l").join(b.global_table("r"), pair, Joined(name="j"), key_selector=lambda k, v: v).to("x"),
    ),
    "a join of many streams by name": (
        lambda b: b.stream("a").join_all({"b": b.stream("b"), "c": b.stream("c")}, str, WITHIN, "j").to("x"),
        lambda b: (
            b.stream("a")
            .join_all({"b": b.stream("b"), "c": b.stream("c")}, str, WITHIN, StreamJoined(name="j"))
            .to("x")
        ),
    ),
    "an as-of join by keywords": (
        lambda b: b.stream("a").as_of_join(b.stream("b"), pair, 5, name="j").to("x"),
        lambda b: b.stream("a").as_of_join(b.stream("b"), pair, 5, joined=StreamJoined(name="j")).to("x"),
    ),
    "a join of tables with its store in the name's place": (
        lambda b: b.table("l").join(b.table("r"), pair, Materialized(name="s")),
        lambda b: b.table("l").join(b.table("r"), pair, materialized=Materialized(name="s")),
    ),
    "a join of tables with everything by position": (
        lambda b: b.table("l").join(b.table("r"), pair, "n", Materialized(name="s")),
        lambda b: b.table("l").join(b.table("r"), pair, named="n", materialized=Materialized(name="s")),
    ),
    "everything in Kafka Streams' order": (
        lambda b: b.table("l").join(b.table("r"), str, pair, "n", Materialized(name="s")),
        lambda b: b.table("l").join(
            b.table("r"), pair, foreign_key=str, named="n", materialized=Materialized(name="s")
        ),
    ),
    "a store by keyword behind a name": (
        lambda b: b.table("l").join(b.table("r"), str, pair, "n", materialized="s"),
        lambda b: b.table("l").join(b.table("r"), pair, "n", "s", foreign_key=str),
    ),
    "a foreign key in Kafka Streams' order": (
        lambda b: b.table("l").left_join(b.table("r"), lambda v: v, pair, Materialized(name="s")),
        lambda b: b.table("l").left_join(
            b.table("r"), pair, foreign_key=lambda v: v, materialized=Materialized(name="s")
        ),
    ),
    "a foreign key of key and value before a joiner that takes the key": (
        lambda b: b.table("l").join(b.table("r"), lambda k, v: v, lambda k, one, two: two),
        lambda b: b.table("l").join(b.table("r"), lambda k, one, two: two, foreign_key=lambda k, v: v),
    ),
    "one store of a processor": (
        lambda b: with_store(b).stream("in").process(Echo, "s").to("x"),
        lambda b: with_store(b).stream("in").process(Echo, ["s"]).to("x"),
    ),
    "one store of a processor of values": (
        lambda b: with_store(b).stream("in").process_values(Echo, "s").to("x"),
        lambda b: with_store(b).stream("in").process_values(Echo, ["s"]).to("x"),
    ),
    "a branch by name": (
        lambda b: b.stream("in").split().branch(bool, "b").no_default_branch()["b"].to("x"),
        lambda b: b.stream("in").split().branch(bool, Branched(name="b")).no_default_branch()["b"].to("x"),
    ),
    "a default branch by keywords": (
        lambda b: b.stream("in").split().default_branch(name="b")["b"].to("x"),
        lambda b: b.stream("in").split().default_branch(Branched(name="b"))["b"].to("x"),
    ),
}
"""Two ways to say the same, of which the second is the long one."""


class Echo(Processor):
    def process(self, record: Record) -> None:
        self.ctx.forward(record)


def pair(left: object, right: object) -> list[object]:
    return [left, right]


def with_store(builder: StreamsBuilder) -> StreamsBuilder:
    return builder.add_state_store(Stores.key_value_store("s", StringSerde(), JsonSerde()))


@pytest.mark.parametrize("case", SAME)
def test_the_short_way_builds_what_the_long_way_builds(case: str) -> None:
    short, long = SAME[case]
    assert text(short) == text(long)


REFUSED = {
    "two of a kind": (
        lambda b: b.stream("in").group_by_key().count(Materialized(name="a"), Materialized(name="b")),
        "argument of count() is the name of the operator: it takes text or Named(...), not a Materialized",
    ),
    "an option of another method": (
        lambda b: b.stream("in").to("out", Consumed()),
        "to() takes Produced(...) here, not Consumed(...)",
    ),
    "a class instead of an object": (
        lambda b: b.stream("in", Consumed),
        "stream() takes Consumed(...) here, not the class Consumed: write Consumed(...)",
    ),
    "a serde in an option's place": (
        lambda b: b.stream("in", StringSerde()),
        "not the serde StringSerde: write key_serde=... or value_serde=...",
    ),
    "an unknown keyword": (
        lambda b: b.stream("in", valeu_serde=JsonSerde()),
        "stream() has no option 'valeu_serde'. Did you mean 'value_serde' or 'key_serde'? It takes those of Consumed: key_serde,",
    ),
    "a field given twice": (
        lambda b: b.stream("in", Consumed(value_serde=JsonSerde()), value_serde=StringSerde()),
        "stream() is given value_serde twice: as a keyword and in Consumed(...)",
    ),
    "a join of a table with two functions": (
        lambda b: b.stream("in").join(b.table("t"), lambda v: v, pair),
        "join() with a KTable takes one function, the joiner",
    ),
    "windows behind the option": (
        lambda b: b.stream("l").outer_join(b.stream("r"), pair, StreamJoined(name="j"), WITHIN),
        "A join of two streams needs JoinWindows, not a StreamJoined",
    ),
    "a foreign key behind the joiner": (
        lambda b: b.table("l").join(b.table("r"), pair, lambda v: v),
        "The joiner '<lambda>(v)' cannot be called: it must take (left, right) or (key, left, right)",
    ),
    "a foreign key twice": (
        lambda b: b.table("l").join(b.table("r"), str, pair, foreign_key=str),
        "join() is given foreign_key twice: as a keyword and before the joiner",
    ),
    "too many options of a join": (
        lambda b: b.table("l").join(b.table("r"), pair, "a", "b", "c"),
        "join() takes a name and Materialized(...) after the functions, not all of 'a', 'b', 'c'",
    ),
    "an option of a join twice": (
        lambda b: b.table("l").join(b.table("r"), pair, Materialized("s"), named="n"),
        "join() takes a name and Materialized(...) after the functions, not all of a Materialized, 'n'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_argument_is_answered_with_the_right_one(case: str) -> None:
    build, message = REFUSED[case]
    with pytest.raises(TopologyError) as refused:
        built(build)
    assert message in str(refused.value)


def test_both_sides_of_a_foreign_key_join_may_take_two_arguments_when_the_keyword_says_which_is_which() -> None:
    assert text(lambda b: b.table("l").join(b.table("r"), pair, foreign_key=lambda key, value: key))


def test_one_parent_one_store_and_one_processor_need_no_list() -> None:
    builder = TopologyBuilder()
    builder.add_source("commands", "in", value_serde=StringSerde())
    builder.add_processor("validate", Echo, "commands")
    builder.add_state_store(Stores.key_value_store("s", StringSerde(), JsonSerde()), "validate")
    builder.add_state_store(Stores.key_value_store("t", StringSerde(), JsonSerde()))
    builder.connect_processor_and_state_stores("validate", "t")
    builder.add_sink("out", "out", "validate", value_serde=StringSerde())
    topology = builder.build()
    source, sink = topology.nodes["commands"], topology.nodes["out"]
    assert isinstance(source, SourceNode)
    assert isinstance(sink, SinkNode)
    assert topology.nodes["validate"].stores == ("s", "t")
    assert (source.value_serde, sink.value_serde) == (StringSerde(), StringSerde())


def test_a_table_becomes_a_stream_with_keys_of_a_mapper() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().windowed_by(BY_FIVE).count()
    counts.to_stream(lambda windowed, count: f"{windowed.key}@{windowed.window.start}", "plain").to("out")
    topology = builder.build()
    assert "plain" in topology.nodes
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in", StringSerde(), JsonSerde()).pipe_input("a", 1, 7)
        assert driver.create_output_topic("out", StringSerde(), Int64Serde()).read_key_values_to_list() == [("a@5", 1)]


def test_a_table_becomes_a_stream_with_a_name_or_without() -> None:
    assert text(lambda b: b.table("in").to_stream("n").to("out")) == text(
        lambda b: b.table("in").to_stream(named="n").to("out")
    )


def test_the_best_values_of_a_session_are_those_of_the_sessions_that_were_merged() -> None:
    builder = StreamsBuilder()
    sessions = builder.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10))
    best = sessions.top(2, lambda value: value, materialized=Materialized(name="best", caching=False))
    best.to_stream(lambda windowed, values: windowed.key).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        into = driver.create_input_topic("in", StringSerde(), JsonSerde())
        for value, timestamp in ((1, 0), (5, 4), (3, 20), (9, 22), (4, 12)):
            into.pipe_input("k", value, timestamp)
        values = [
            value
            for _, value in driver.create_output_topic("out", StringSerde(), JsonSerde()).read_key_values_to_list()
        ]
    assert values[-1] == [9, 5]


def test_generic_facades_can_be_written_as_they_are_in_annotations() -> None:
    assert str(KTable[str, int]).endswith("KTable[str, int]")


# --- Options: serdes stand in Kafka Streams' order, all else has a keyword, and what cannot be meant is refused by a sentence.


TEXT, JSON, LONG = StringSerde(), JsonSerde(), Int64Serde()
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (Grouped(TEXT, JSON, name="by-region"), Grouped(key_serde=TEXT, value_serde=JSON, name="by-region")),
        (Grouped(None, JSON), Grouped(value_serde=JSON)),
        (Materialized("counts"), Materialized(name="counts")),
        (Materialized.with_(TEXT, LONG), Materialized(key_serde=TEXT, value_serde=LONG)),
        (Materialized.as_("counts", value_serde=LONG), Materialized(name="counts", value_serde=LONG)),
        (StreamJoined(None, LONG, JSON), StreamJoined(value_serde=LONG, other_value_serde=JSON)),
        (
            Consumed(None, JSON, UsePartitionTimeOnInvalidTimestamp(), "latest"),
            Consumed(value_serde=JSON, timestamp_extractor=UsePartitionTimeOnInvalidTimestamp(), offset_reset="latest"),
        ),
        (Consumed.as_("orders"), Consumed(name="orders")),
        (Joined.with_(TEXT, name="enrich"), Joined(name="enrich", key_serde=TEXT)),
        (Branched("late", function=id), Branched(name="late", function=id)),
    ],
)
def test_an_option_begins_as_in_kafka_streams(short: Option, long: Option) -> None:
    assert short == long


class Swapped:
    """The methods of a serde without the headers."""

    def serialize(self, topic: str, value: object) -> bytes:
        return b""

    def deserialize(self, topic: str, data: bytes) -> object:
        return None


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Grouped("a"), r"key_serde, value_serde without a keyword, and key_serde cannot be 'a': write name=\.\.\. instead"),
        (lambda: Grouped.with_("a", TEXT, JSON), r"key_serde cannot be 'a': write name=\.\.\. instead"),
        (lambda: Materialized(TEXT, LONG), r"name cannot be a StringSerde: write key_serde=\.\.\. or value_serde=\.\.\. instead"),
        (lambda: Materialized(None, LONG), r"takes only name without a keyword, and an Int64Serde is too many"),
        (lambda: Materialized("counts", DAY), r"is too many: write retention=\.\.\. or history_retention=\.\.\. or ttl="),
        (lambda: Consumed("latest"), r"key_serde cannot be 'latest': write offset_reset=\.\.\. or name=\.\.\. instead"),
        (lambda: Branched(id), r"name cannot be the function id: write function=\.\.\. or consumer=\.\.\. instead"),
        (lambda: Consumed(valeu_serde=JSON), r"Consumed has no 'valeu_serde': did you mean value_serde"),
        (lambda: Grouped(StringSerde), r"Grouped\(key_serde=\.\.\.\) takes an object, not the class StringSerde"),
        (lambda: Grouped(Swapped()), r"write def serialize\(self, topic, value, headers=None\)"),
        (lambda: Produced(value_serde=Swapped()), r"write def serialize\(self, topic, value, headers=None\)"),
        (lambda: Grouped(TEXT, JSON, LONG), "and an Int64Serde is too many: its keywords are key_serde, value_serde, name"),
        (lambda: Grouped(lambda value: value), "key_serde cannot be a lambda: its keywords are key_serde, value_serde, name"),
        (lambda: Grouped(Materialized("x")), "key_serde cannot be a Materialized"),
        (
            lambda: Materialized(Stores.versioned_key_value_store("x", TEXT, LONG, history_retention=DAY)),
            r"takes no store: give the store's name, as in Materialized\('x'\)",
        ),
        (lambda: Materialized(name=7), "7 cannot be the name of an operator or a store"),
    ],
)  # fmt: skip
def test_what_fits_nowhere_is_refused(make: Callable[[], Option], sentence: str) -> None:
    with pytest.raises(TopologyError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("shown", "option"),
    [
        ("Materialized()", Materialized()),
        ("Materialized(name='counts', caching=False)", Materialized("counts", caching=False)),
        ("Grouped(key_serde=StringSerde())", Grouped(TEXT)),
        ("Consumed(offset_reset='latest')", Consumed(offset_reset="latest")),
        ("Named(name='x')", Named("x")),
    ],
)
def test_an_option_shows_what_is_set(shown: str, option: Option) -> None:
    assert repr(option) == shown


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda option: pickle.loads(pickle.dumps(option)), replace]
)
def test_an_option_can_be_copied(again: Callable[[Option], Option]) -> None:
    option = Materialized("counts", value_serde=LONG, changelog_config={"segment.ms": "1000"})
    assert again(option) == option


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (len, r"filter\(\) is the name of the operator: it takes text or Named\(...\), not the function len\."),
        (lambda value: value, "not a lambda"),
        (7, "not 7"),
        (TEXT, "not a StringSerde"),
    ],
)
def test_what_is_no_name_is_refused_in_few_words(given: object, sentence: str) -> None:
    with pytest.raises(TopologyError, match=sentence):
        StreamsBuilder().stream("in").filter(bool, given)


@pytest.mark.parametrize("option", [Materialized, StreamJoined])
def test_the_signature_that_help_shows_has_the_fields(option: type[Option]) -> None:
    assert "persistent: 'bool | None' = None" in str(inspect.signature(option))


# --- Functions of every shape the DSL takes, and the errors for those it does not.


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, value):
        return value * self.factor

    def keyed(self, key, value):
        return key, value


@pytest.mark.parametrize(
    ("fn", "result"),
    [
        (lambda value: ("v", value), ("v", 2)),
        (lambda key, value: (key, value), ("k", 2)),
        (lambda value, scale=10: value * scale, 20),  # optional arguments are not filled with the value
        (lambda *args: args, (2,)),
        (lambda key, *rest: (key, rest), (2, ())),
        (str, "2"),  # a builtin type
        (float, 2.0),
        (Scale(3), 6),
        (Scale(3).keyed, ("k", 2)),
        (partial(lambda key, value, extra: (key, value, extra), extra=1), ("k", 2, 1)),
        (partial(pow, 3), 9),
    ],
)
def test_key_value(fn, result):
    assert functions.key_value(fn, "mapper")("k", 2) == result


def test_builtins_without_a_signature_get_the_value():
    assert functions.key_value(operator.itemgetter("a"), "mapper")("k", {"a": 1}) == 1


def test_joiner_aggregator_reducer():
    assert functions.joiner(lambda left, right: (left, right))("k", 1, 2) == (1, 2)
    assert functions.joiner(lambda key, left, right: (key, left, right))("k", 1, 2) == ("k", 1, 2)
    assert functions.aggregator(lambda value, total: total - value)("k", 1, 10) == 9
    assert functions.aggregator(lambda key, value, total: (key, total - value))("k", 1, 10) == ("k", 9)
    assert functions.reducer(lambda total, value: total - value)("k", 1, 10) == 9
    assert functions.initializer(dict)() == {}


def test_topic_extractor_and_timestamp_function():
    for fn in (lambda v: v, lambda k, v: v, lambda k, v, context: v):
        assert functions.topic_extractor(fn)("k", "topic", None) == "topic"
    assert functions.timestamp_function(lambda record: record)(5, 1) == 5
    assert functions.timestamp_function(lambda record, partition_time: partition_time)(5, 1) == 1


@pytest.mark.parametrize(
    ("adapt", "fn", "parts"),
    [
        (lambda fn: functions.key_value(fn, "predicate"), lambda: True, ["predicate", "(value) or (key, value)"]),
        (lambda fn: functions.key_value(fn, "mapper"), lambda a, b, c: 1, ["(a, b, c)"]),
        (lambda fn: functions.key_value(fn, "mapper"), lambda value, *, unit: 1, ["(value, *, unit)"]),
        (functions.joiner, lambda left: 1, ["joiner", "(left, right) or (key, left, right)"]),
        (functions.aggregator, lambda value: 1, ["(value, aggregate) or (key, value, aggregate)"]),
        (functions.reducer, lambda k, v, a: 1, ["(aggregate, value)"]),
        (functions.initializer, lambda value: 0, ["initializer", "()"]),
        (functions.initializer, 0, ["must be a function, not 0"]),
    ],
)
def test_wrong_arity_names_what_and_which_shapes(adapt, fn, parts):
    with pytest.raises(TopologyError) as error:
        adapt(fn)
    assert all(part in str(error.value) for part in parts), str(error.value)


@pytest.mark.parametrize(
    ("keywords", "option"),
    [
        (options.ConsumedKeywords, Consumed),
        (options.ProducedKeywords, Produced),
        (options.GroupedKeywords, Grouped),
        (options.RepartitionedKeywords, Repartitioned),
        (options.JoinedKeywords, Joined),
        (options.MaterializedKeywords, Materialized),
        (options.StreamJoinedKeywords, StreamJoined),
        (BranchedKeywords, Branched),
    ],
)
def test_type_checkers_know_the_fields_of_an_option_as_keywords(keywords: type, option: type[Option]) -> None:
    assert keywords.__optional_keys__ == {field.name for field in options.fields_of(option)}  # type: ignore[attr-defined]
    assert not keywords.__required_keys__  # type: ignore[attr-defined]


def test_type_checkers_know_the_settings_of_enrich() -> None:
    taken = inspect.signature(KStream.enrich).parameters.keys()
    assert EnrichSettings.__optional_keys__ == taken - {"self", "function", "batch_size"}
