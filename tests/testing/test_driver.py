"""`TopologyTestDriver`: what tests write and read, and what it says where they mistake a name."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from state.commit.crash_points import POINTS
from state.errors import RoutingMismatchError
from streams import (
    ConfigError,
    Consumed,
    Int64Serde,
    JsonSerde,
    Materialized,
    Produced,
    StreamsBuilder,
    StringSerde,
    Topology,
)
from streams.config import ErrorPolicy, StreamsConfig
from streams.testing import NodeMetrics, TestRecord, TopologyTestDriver


def copy(source: Any = "in", sink: Any = "out") -> Topology:
    builder = StreamsBuilder()
    builder.stream(source).to(sink)
    return builder.build()


def rows(*pipes: Any, **topic: Any) -> list[TestRecord[Any, Any]]:
    """What comes out of a topology that copies: of functions that pipe into its input topic."""
    with TopologyTestDriver(copy(), start_ms=1000) as driver:
        records = driver.create_input_topic("in", **topic)
        for pipe in pipes:
            pipe(records)
        return driver.create_output_topic("out").read_records_to_list()


@pytest.mark.parametrize(
    ("pipe", "expected"),
    [
        (lambda t: t.pipe_input("v"), TestRecord(None, "v", 1000)),
        (lambda t: t.pipe_input(None), TestRecord(None, None, 1000)),
        (lambda t: t.pipe_input("k", "v"), TestRecord("k", "v", 1000)),
        (lambda t: t.pipe_input("k", "v", 5), TestRecord("k", "v", 5)),
        (lambda t: t.pipe_input("k", None), TestRecord("k", None, 1000)),
        (lambda t: t.pipe_input(key="k", value="v"), TestRecord("k", "v", 1000)),
        (lambda t: t.pipe_input("k", value="v"), TestRecord("k", "v", 1000)),
        (lambda t: t.pipe_input("v", key="k"), TestRecord("k", "v", 1000)),
        (lambda t: t.pipe_input(value="v"), TestRecord(None, "v", 1000)),
        (lambda t: t.pipe_input("v", timestamp=timedelta(seconds=2)), TestRecord(None, "v", 2000)),
        (
            lambda t: t.pipe_input("v", timestamp=datetime.fromisoformat("1970-01-01T00:00:03")),
            TestRecord(None, "v", 3000),
        ),
        (
            lambda t: t.pipe_input("v", timestamp=datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))),
            TestRecord(None, "v", 0),
        ),
        (lambda t: t.pipe_input("v", headers={"h": "x"}), TestRecord("v", timestamp=1000, headers=[("h", b"x")])),
        (lambda t: t.pipe_input("v", headers=[("h", None)]), TestRecord("v", timestamp=1000, headers=(("h", None),))),
        (lambda t: t.pipe_input(TestRecord("k", "v", 7, {"h": b"x"})), TestRecord("k", "v", 7, {"h": "x"})),
        (lambda t: t.pipe_input(TestRecord("v")), TestRecord(None, "v", 1000)),
        (
            lambda t: t.pipe_bytes(b"k", b'"v"', timedelta(seconds=1), {"h": "x"}),
            TestRecord("k", "v", 1000, {"h": b"x"}),
        ),
    ],
)
def test_a_record_goes_through_as_it_was_piped_in(pipe: Any, expected: TestRecord[Any, Any]) -> None:
    assert rows(pipe) == [expected]


@pytest.mark.parametrize(
    ("pipe", "said"),
    [
        (lambda t: t.pipe_input(), r"needs a value: pipe_input\(value\) or pipe_input\(key, value\)"),
        (lambda t: t.pipe_input(key="k"), "needs a value"),
        (lambda t: t.pipe_input("k", "v", key="x"), "two keys, 'k' and 'x'"),
        (lambda t: t.pipe_input(TestRecord("v"), 5), r"pipe_input\(TestRecord\(...\)\) takes nothing besides"),
        (
            lambda t: t.pipe_input("v", timestamp="yesterday"),
            "a datetime, or a timedelta since the epoch, not 'yesterday'",
        ),
        (lambda t: t.pipe_input("v", timestamp=1.5), "not 1.5"),
        (lambda t: t.pipe_input("v", timestamp=True), "not True"),
        (lambda t: t.pipe_input("v", headers={"h": 1}), r"\('h', 1\) is not such a pair"),
        (lambda t: t.pipe_input("v", headers=["h"]), "'h' is not such a pair"),
        (lambda t: TestRecord(), r"TestRecord\(value\) or TestRecord\(key, value\)"),
    ],
)
def test_arguments_that_do_not_fit_are_named(pipe: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        rows(pipe)


@pytest.mark.parametrize(
    ("topic", "pipe", "times"),
    [
        ({}, lambda t: t.pipe_value_list("ab"), [1000, 1000]),
        ({"start_timestamp": 10}, lambda t: t.pipe_value_list("ab"), [10, 10]),
        ({"start_timestamp": 10, "auto_advance": 5}, lambda t: t.pipe_value_list("abc"), [10, 15, 20]),
        ({"auto_advance": timedelta(seconds=1)}, lambda t: t.pipe_value_list("ab"), [1000, 2000]),
        ({"auto_advance": 5}, lambda t: t.pipe_value_list("ab", 100), [100, 105]),
        ({"auto_advance": 5}, lambda t: t.pipe_value_list("ab", 100, 1), [100, 101]),
        ({}, lambda t: t.pipe_value_list("ab", advance=timedelta(milliseconds=3)), [1000, 1003]),
        ({}, lambda t: t.pipe_value_list("ab", datetime.fromisoformat("1970-01-01")), [0, 0]),
        ({}, lambda t: t.pipe_key_value_list([("k", "v"), ("l", "w")], start_ms=3, advance=1), [3, 4]),
        ({}, lambda t: t.pipe_key_value_list({"k": "v"}), [1000]),
        ({"start_timestamp": 1}, lambda t: t.pipe_record_list([TestRecord("v"), TestRecord("w", timestamp=9)]), [1, 9]),
        (
            {"start_timestamp": 1, "auto_advance": 1},
            lambda t: [t.pipe_input("v", timestamp=9), t.pipe_input("w")],
            [9, 1],
        ),
        ({"start_timestamp": 1}, lambda t: [t.pipe_input("v"), t.advance_time(4), t.pipe_input("w")], [1, 5]),
    ],
)
def test_the_times_of_records_that_are_given_none(topic: Any, pipe: Any, times: list[int]) -> None:
    assert [record.timestamp for record in rows(pipe, **topic)] == times


def test_a_topic_without_a_start_goes_by_the_drivers_clock() -> None:
    with TopologyTestDriver(copy()) as driver:
        records = driver.create_input_topic("in")
        driver.advance_wall_clock_time(timedelta(seconds=1))
        records.pipe_input("v")
        assert driver.create_output_topic("out").read_record().timestamp == 1000


def test_the_time_of_a_topic_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="only advances"):
        rows(lambda t: t.advance_time(-1))


def test_a_record_says_where_it_was_read_and_is_equal_to_one_that_does_not() -> None:
    (record,) = rows(lambda t: t.pipe_input("k", "v", 5, {"h": "x"}))
    assert (record.topic, record.partition) == ("out", 0)
    assert record == TestRecord("k", "v", 5, {"h": "x"})
    assert repr(record) == "TestRecord('k', 'v', timestamp=5, headers=(('h', b'x'),))"


def test_what_was_read_can_be_piped_on() -> None:
    (record,) = rows(lambda t: t.pipe_input("k", "v", 5))
    assert rows(lambda t: t.pipe_input(record)) == [record]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("inn", "does not read a topic 'inn': it has 'global', 'in', 'table'. Did you mean 'in'"),
        ("out", "does not read a topic 'out'"),
    ],
)
def test_an_input_topic_that_the_topology_does_not_read_is_refused(name: str, said: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in").join(builder.table("table"), lambda left, right: left).to("out")
    builder.global_table("global")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(LookupError, match=said):
        driver.create_input_topic(name)


def test_an_output_topic_that_the_topology_does_not_write_is_refused() -> None:
    said = "does not write a topic 'outt': it has 'dead', 'out'. Did you mean 'out'"
    settings = {"processing": "dlq", "dead_letter_topic": "dead"}
    with TopologyTestDriver(copy(), settings=settings) as driver, pytest.raises(LookupError, match=said):
        driver.create_output_topic("outt")


def test_any_output_topic_can_be_read_where_records_choose_theirs() -> None:
    with TopologyTestDriver(copy(sink=lambda key, value, context: value)) as driver:
        driver.create_input_topic("in").pipe_input("chosen")
        assert driver.create_output_topic("chosen").read_value() == "chosen"
        assert driver.create_output_topic("never").is_empty


def test_internal_topics_can_be_read() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(materialized=Materialized(name="counts"))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", "v")
        assert driver.create_output_topic("test-counts-changelog").queue_size == 1


@pytest.mark.parametrize("by_keyword", [True, False])
def test_topics_of_another_program_are_known_after_its_start(by_keyword: bool) -> None:
    with TopologyTestDriver(copy()) as driver:
        if by_keyword:
            driver.restart(topology=copy(sink="other"))
        else:
            driver.restart(copy(sink="other"))
        driver.create_input_topic("in").pipe_input("v")
        assert driver.create_output_topic("other").read_value() == "v"


def test_reading_beyond_the_last_record_is_refused() -> None:
    with TopologyTestDriver(copy()) as driver, pytest.raises(LookupError, match="'out' has no more records"):
        driver.create_output_topic("out").read_value()


def test_serdes_default_to_those_of_the_source_and_the_sink() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key_serde=StringSerde(), value_serde=Int64Serde()))
    stream.map_values(str).to("out", Produced(value_serde=StringSerde()))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", 7)
        assert driver.create_output_topic("out").read_key_value() == ("k", "7")


def test_serdes_that_are_given_are_used() -> None:
    with TopologyTestDriver(copy()) as driver:
        driver.create_input_topic("in", value_serde=StringSerde()).pipe_input("k", '{"a": 1}')
        assert driver.create_output_topic("out", value_serde=JsonSerde()).read_value() == {"a": 1}


def test_produced_topics_are_outputs_repartition_topics_and_changelogs() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.repartition().group_by_key().count(materialized=Materialized(name="counts")).to_stream().to("out")
    stream.filter(lambda value: False).to("nothing")
    with TopologyTestDriver(builder.build()) as driver:
        assert driver.produced_topic_names() == set()
        driver.create_input_topic("in").pipe_input("k", "v")
        names = driver.produced_topic_names()
    assert {"out", "test-counts-changelog"} < names
    assert [name for name in names if name.endswith("-repartition")]
    assert not names & {"in", "nothing"}
    assert not [name for name in names if name.endswith("-commits")]


def test_metrics_count_by_node() -> None:
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda value: value != "no", named="some").map_values(int, named="numbers").to("out")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        driver.create_input_topic("in").pipe_value_list(["1", "no", "x", "2"])
        metrics = driver.metrics()
    assert metrics["some"] == NodeMetrics(records_in=4, records_out=3)
    numbers = metrics["numbers"]
    assert (numbers.records_in, numbers.records_out, numbers.skipped) == (3, 2, 1)
    assert numbers.dropped == {"processing": 1}


@pytest.mark.parametrize(
    "given",
    [
        {"settings": {"deserialization": "skip"}},
        {"deserialization": "skip"},
        {"settings": {"deserialization": ErrorPolicy.SKIP}},
        {"settings": {"deserialization": "fail"}, "deserialization": "skip"},
        {"application_id": {"deserialization": "skip"}},
        {"settings": StreamsConfig(application_id="app", deserialization=ErrorPolicy.SKIP)},
        {"settings": {"deserialization": "skip", "bootstrap_servers": "host:9092"}},
    ],
)
def test_settings_are_given_as_a_dictionary_a_config_or_keywords(given: Any) -> None:
    with TopologyTestDriver(copy(), **given) as driver:
        driver.create_input_topic("in").pipe_bytes(b"k", b"no json")
        assert driver.metrics()


def test_the_settings_name_the_application_and_its_tasks() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(materialized=Materialized(name="counts"))
    settings = {"application_id": "shop", "tasks": 3, "mode": "compat"}
    with TopologyTestDriver(builder.build(), settings=settings) as driver:
        driver.create_input_topic("in").pipe_input("k", "v")
        assert driver.produced_topic_names() == {"shop-counts-changelog"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"procesing": "skip"}, "no setting 'procesing' of a topology.* Did you mean 'processing'"),
        ({"application.id": "x"}, "Did you mean 'application_id'"),
        ({"processing": "continue"}, "'processing' is 'fail' .* 'skip' .* or 'dlq' .*, not 'continue'"),
        ({"mode": "java"}, "'strict' or 'compat', not 'java'"),
        ({"xyz": 1}, "no setting 'xyz'"),
        (
            {"max.task.idle.ms": 5},
            "Here a task always waits for a partition if the brokers have more of its records",
        ),
    ],
)
def test_settings_that_do_not_exist_or_do_not_fit_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TopologyTestDriver(copy(), settings=given)


def test_durations_among_the_settings_may_be_timedeltas() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with TopologyTestDriver(builder.build(), max_future_ms=timedelta(minutes=1), future="skip") as driver:
        driver.create_input_topic("in").pipe_value_list(["now", "later"], 0, timedelta(minutes=2))
        assert driver.create_output_topic("out").read_values_to_list() == ["now"]


def test_results_without_keys_are_spread_however_small_the_steps():
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with TopologyTestDriver(builder.build(), partitions={"out": 3}) as driver:
        topic = driver.create_input_topic("in")
        for number in range(12):
            if number == 5:
                driver.crash_at("after_commit")
            topic.pipe_input(None, number)
        sizes = [len(driver._kafka.columns("out", partition)) for partition in range(3)]
        assert (sizes, driver.crashes) == ([4, 4, 4], 1)


def test_all_objects_for_an_output_topic_share_its_queue() -> None:
    with TopologyTestDriver(copy()) as driver:
        driver.create_input_topic("in").pipe_value_list(["a", "b"])
        assert driver.create_output_topic("out").read_value() == "a"
        assert driver.create_output_topic("out").read_values_to_list() == ["b"]
        assert driver.create_output_topic("out").is_empty


# Keys that are made anew in each attempt: refused where they choose the task, safe behind a repartition and at a sink.

RECORDS = 12
COMMITTED = POINTS[POINTS.index("after_commit") :]


class Changing:
    """Another key at every call, as of a random number: but of few, so that keys meet."""

    def __init__(self):
        self.calls = itertools.count()

    def __call__(self, key, value):
        return f"k{next(self.calls) * 7 % 5}"


def run(build, point, task=0):
    """All values of the topic `out`, after a crash in a micro-batch of several records, over two partitions and three tasks."""
    builder = StreamsBuilder()
    build(builder.stream("in").select_key(Changing()))
    with TopologyTestDriver(builder.build(), partitions={"in": 2}, tasks=3) as driver:
        topic = driver.create_input_topic("in")
        driver.crash_at(point, task=task)
        with driver.batch():
            for number in range(RECORDS):
                topic.pipe_input(f"s{number}", number, timestamp=number, partition=number % 2)
        return driver.create_output_topic("out").read_values_to_list(), driver.crashes


def counted(stream):
    stream.group_by_key().count().to_stream().to("out")


@pytest.mark.parametrize("point", COMMITTED)
def test_where_such_a_key_chooses_the_task_the_repeated_step_is_refused(point):
    with pytest.raises(RoutingMismatchError, match=r"KSTREAM-KEY-SELECT-in.*repartition\(\)"):
        run(counted, point)


@pytest.mark.parametrize("point", [point for point in POINTS if point not in ("restore_halfway", "restore_read")])
def test_behind_a_repartition_each_record_counts_once(point):
    def build(stream):
        stream.repartition().group_by_key().aggregate(lambda: [], lambda key, value, all: [*all, value]).to_stream().to(
            "out"
        )

    values, crashes = run(build, point)
    assert crashes == 1
    assert sorted(number for value in values for number in value) == list(range(RECORDS))


# There is no state: so nothing is restored, and nothing of it sent.
STATELESS = [point for point in POINTS if point not in ("restore_halfway", "restore_read", "changelog_half_sent")]


@pytest.mark.parametrize("point", STATELESS)
def test_what_only_goes_to_a_topic_is_written_once(point):
    values, crashes = run(lambda stream: stream.to("out"), point)
    assert crashes == 1
    assert sorted(values) == list(range(RECORDS))


@pytest.mark.parametrize("fails_first", [True, False])
def test_a_function_that_fails_in_one_attempt_alone_is_found_out(fails_first):
    """Otherwise the record would be a dead letter by the attempt of one task, and a result by that of another."""
    attempts = []

    def pipe_all(driver, topic):
        with driver.batch():
            for number in range(RECORDS):
                topic.pipe_input("s2", number, timestamp=number)

    def keyed(key, value):
        if value == 0:
            attempts.append(value)
            if (len(attempts) == 1) == fails_first:
                raise ConnectionError("the service that knows the key is away")
        return f"k{value % 5}"

    builder = StreamsBuilder()
    counted(builder.stream("in").select_key(keyed))
    with TopologyTestDriver(builder.build(), tasks=3, processing="dlq", dead_letter_topic="dead") as driver:
        topic = driver.create_input_topic("in")
        driver.crash_at("after_commit", task=1)
        with pytest.raises(RoutingMismatchError):
            pipe_all(driver, topic)
        assert len(attempts) > 1
        assert driver.crashes == 1
