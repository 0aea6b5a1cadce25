"""Records that nothing good comes of: each obeys the policy of its stage, and the others are not touched by it."""

import struct

import numpy as np
import pyarrow as pa
import pytest

from state.columns import RecordColumns
from state.headers import decode_headers, encode_headers
from streams import Consumed, Materialized, StreamsBuilder, agg, timestamp_field
from streams.engine.graph.settings import TaskSettings
from streams.engine.reader.pipeline import ReaderPipeline
from streams.errors import RecordFailedError
from streams.model.timestamps import FAIL_ON_INVALID_TIMESTAMP, UsePartitionTimeOnInvalidTimestamp
from streams.testing import TopologyTestDriver
from streams.topology.plan import build_plan

DAY = 86_400_000
NOW = 1_700_000_000_000
POLICIES = ["fail", "skip", "dlq"]


def letters(driver):
    return driver.create_output_topic("dead").read_records_to_list()


def error(letter, name):
    return dict(letter.headers)[f"__streams.errors.{name}"]


def obeys(driver, policy, stage, pipe, said, key=b"k"):
    """Pipe a poison record and look at what the policy makes of it."""
    if policy == "fail":
        with pytest.raises(RecordFailedError, match=said) as caught:
            pipe()
        assert (caught.value.stage, caught.value.topic, caught.value.key) == (stage, "in", key)
        return
    pipe()
    counts = driver.counts()
    assert counts[f"skipped:{stage}" if policy == "skip" else f"dead_letters:{stage}"] == 1
    assert driver.dropped(stage) == 1
    assert [letter.key for letter in letters(driver)] == ([key] if policy == "dlq" else [])
    for letter in letters(driver):
        assert (error(letter, "topic"), error(letter, "partition"), error(letter, "stage")) == (
            b"in",
            b"0",
            stage.encode(),
        )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", ["records", "raw"])
@pytest.mark.parametrize("time", ["1e300", "18446744073709551615", "1e999999", "-1e300", '"x"', "true", "[1]"])
def test_times_that_do_not_fit_64_bits(policy, way, time):
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(timestamp_extractor=timestamp_field("t")))
    (stream.map_values(lambda v: v) if way == "records" else stream).to("out")
    with TopologyTestDriver(builder.build(), deserialization=policy, dead_letter_topic="dead") as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_bytes(b"a", b'{"t":1}', 0)
        obeys(
            driver,
            policy,
            "deserialization",
            lambda: topic.pipe_bytes(b"k", b'{"t":%s}' % time.encode(), 0),
            "in-0 offset 1",
        )
        if policy != "fail":
            topic.pipe_bytes(b"b", b'{"t":2}', 0)
            assert [r.timestamp for r in driver.create_output_topic("out").read_records_to_list()] == [1, 2]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("time", [2**70, -(2**70), float("nan"), 1.5, None, True, "1"])
def test_an_extractor_of_the_users_own_that_gives_no_time(policy, time):
    builder = StreamsBuilder()

    def extractor(record, partition_time):
        return time if record.value == "bad" else record.timestamp

    builder.stream("in", Consumed(timestamp_extractor=extractor)).to("out")
    with TopologyTestDriver(builder.build(), deserialization=policy, dead_letter_topic="dead") as driver:
        topic = driver.create_input_topic("in")
        obeys(driver, policy, "deserialization", lambda: topic.pipe_input("k", "bad", 1), "in-0 offset 0")
        if policy != "fail":
            topic.pipe_input("k", "good", 2)
            assert driver.create_output_topic("out").read_values_to_list() == ["good"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_time_of_kafkas_own_that_windows_cannot_be_added_to(policy):
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with TopologyTestDriver(builder.build(), future=policy, dead_letter_topic="dead") as driver:
        pipe = driver.create_input_topic("in").pipe_input
        obeys(driver, policy, "future", lambda: pipe("k", 1, 2**63 - 1), "in-0 offset 0.*is not a valid time")


def far_ahead(extractor=FAIL_ON_INVALID_TIMESTAMP):
    builder = StreamsBuilder()
    builder.stream("in", Consumed(timestamp_extractor=extractor)).to("out")
    return builder.build()


@pytest.mark.parametrize("policy", ["skip", "dlq"])
@pytest.mark.parametrize("together", [True, False])
def test_a_time_too_far_ahead_does_not_move_the_time_of_its_partition(policy, together):
    topology = far_ahead(UsePartitionTimeOnInvalidTimestamp())
    settings = {"future": policy, "dead_letter_topic": "dead", "max_future_ms": DAY}
    with TopologyTestDriver(topology, start_ms=NOW, **settings) as driver:
        topic = driver.create_input_topic("in")
        if together:
            with driver.batch():
                for key, time in (("a", NOW), ("k", NOW + DAY + 1), ("b", -1)):
                    topic.pipe_input(key, 1, time)
        else:
            for key, time in (("a", NOW), ("k", NOW + DAY + 1), ("b", -1)):
                topic.pipe_input(key, 1, time)
        found = driver.create_output_topic("out").read_records_to_list()
        assert [(r.key, r.timestamp) for r in found] == [("a", NOW), ("b", NOW)]


def test_a_timestamp_too_far_ahead_is_explained_in_words():
    with TopologyTestDriver(far_ahead(), start_ms=NOW, max_future_ms=DAY) as driver:
        said = (
            r"record at in-0 offset 0, key b'\"k\"|k', .*7258118400000 \(2200-01-01 00:00:00 UTC\) is \d+ ms ahead .*"
            r"\(2023-11-14 22:13:20 UTC\), 86400000 ms are allowed \(max_future_ms\).*policy 'future'"
        )
        with pytest.raises(RecordFailedError, match=said):
            driver.create_input_topic("in").pipe_input("k", 1, 7_258_118_400_000)


def test_timestamps_a_day_ahead_pass_and_without_a_limit_all_do():
    with TopologyTestDriver(far_ahead(), start_ms=NOW, max_future_ms=DAY) as driver:
        driver.create_input_topic("in").pipe_input("k", 1, NOW + DAY)
        assert len(driver.create_output_topic("out").read_values_to_list()) == 1
    with TopologyTestDriver(far_ahead(), start_ms=NOW) as driver:
        driver.create_input_topic("in").pipe_input("k", 1, 7_258_118_400_000)
        assert len(driver.create_output_topic("out").read_values_to_list()) == 1


def test_a_head_without_the_planned_time_leaves_the_check_to_the_task():
    (sub,) = build_plan(far_ahead(), "app").sub_topologies
    head = ReaderPipeline(sub, 1, TaskSettings("app", max_future_ms=DAY))
    offsets = np.arange(1, dtype=np.int64)
    columns = RecordColumns("in", 0, offsets, offsets + 2**45, pa.array([b"k"]), pa.array([b"1"]), None)
    assert sum(batch.rows.num_rows for _, batch in head.run(columns)) == 1
    head.now_ms = NOW
    with pytest.raises(RecordFailedError, match="in-0 offset 0"):
        list(head.run(columns))


def foreign_header_cell():
    return struct.pack("<i", 2) + b"h\xff" + struct.pack("<i", 1) + b"\xfe"


def test_foreign_bytes_in_headers_are_kept():
    headers = decode_headers(foreign_header_cell())
    assert encode_headers(headers) == foreign_header_cell()


@pytest.mark.parametrize("way", ["records", "raw"])
def test_a_header_name_that_is_not_utf_8_stops_no_record(way):
    builder = StreamsBuilder()
    stream = builder.stream("in")
    (stream.map_values(lambda v: v) if way == "records" else stream).to("out")
    headers = tuple(decode_headers(foreign_header_cell()))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", 1, 1, headers=headers)
        (record,) = driver.create_output_topic("out").read_records_to_list()
        assert record.headers == headers


def test_a_header_name_that_is_not_utf_8_goes_into_the_dead_letter():
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda v: v).to("out")
    headers = tuple(decode_headers(foreign_header_cell()))
    with TopologyTestDriver(builder.build(), deserialization="dlq", dead_letter_topic="dead") as driver:
        driver.create_input_topic("in").pipe_bytes(b"k", b"{no", 1, headers=headers)
        (letter,) = letters(driver)
        assert letter.headers[0] == headers[0]


DEEP = b"[" * 1_000 + b"1" + b"]" * 1_000
BOMBS = {
    "nested beyond what is read": b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "never closed": b"[" * 900_000,
    "nested beyond what is written": b'{"x":' + DEEP + b"}",
    "a very long number": b'{"x":' + b"9" * 900_000 + b"}",
    "infinite": b'{"x":1e400}',
    "not a number": b'{"x":NaN}',
    "invalid UTF-8": b'{"x":"\xff\xfe"}',
    "a lone surrogate": b'{"x":"\\ud800"}',
    "cut off": b'{"x":1',
    "nothing": b"",
}


def by_columns(stream):
    return stream.group_by_key().aggregate(x=agg.last("x"), n=agg.sum("x")).to_stream()


def by_time_of_columns(stream):
    return stream.group_by_key().aggregate(n=agg.count()).to_stream()


def by_head(stream):
    return stream.map_values(lambda value: value)


def by_task(stream):
    store = Materialized(name="s", caching=False)
    return stream.group_by_key().aggregate(lambda: None, lambda v, total: v, materialized=store).to_stream()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", [by_columns, by_time_of_columns, by_head, by_task])
@pytest.mark.parametrize("bomb", BOMBS)
def test_values_made_to_hurt(bomb, way, policy):
    builder = StreamsBuilder()
    consumed = Consumed(timestamp_extractor=timestamp_field("x")) if way is by_time_of_columns else Consumed()
    way(builder.stream("in", consumed)).to("out")
    policies = dict.fromkeys(("deserialization", "processing", "production"), policy)
    with TopologyTestDriver(builder.build(), dead_letter_topic="dead", **policies) as driver:
        topic = driver.create_input_topic("in")

        def together():
            with driver.batch():
                for key, value in ((b"a", b'{"x":1}'), (b"k", BOMBS[bomb]), (b"b", b'{"x":2}')):
                    topic.pipe_bytes(key, value, 1)

        if policy == "fail":
            with pytest.raises(RecordFailedError, match="record at in-0 offset 1, key b'k'"):
                together()
            return
        together()
        found = driver.create_output_topic("out").read_key_values_to_list()
        assert [key for key, _ in found] == ["a", "b"]
        assert sum(n for name, n in driver.counts().items() if name.startswith(("skipped:", "dead_letters:"))) == 1
        assert [(letter.key, letter.value) for letter in letters(driver)] == (
            [(b"k", BOMBS[bomb])] if policy == "dlq" else []
        )


def test_a_sum_beyond_64_bits_is_exact_in_each_step_and_over_a_restart():
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().aggregate(n=agg.sum("x")).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch():
            topic.pipe_bytes(b"k", b'{"x":%d}' % (2**64 - 1), 1)
            topic.pipe_bytes(b"k", b'{"x":%d}' % 2**70, 1)
        driver.restart()
        topic.pipe_bytes(b"k", b'{"x":1}', 1)
        sums = [value["n"] for value in driver.create_output_topic("out").read_values_to_list()]
        assert sums == [2**64 - 1 + 2**70, 2**64 + 2**70]


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_record_that_makes_a_sum_overflow_is_refused_alone(policy, caching):
    builder = StreamsBuilder()
    how = Materialized("s", caching=caching)
    builder.stream("in").group_by_key().aggregate(n=agg.sum("x"), materialized=how).to_stream().to("out")
    numbers = [("a", 1), ("k", 1.5e308), ("k", 1.6e308), ("b", 2), ("k", -1e308)]
    with TopologyTestDriver(builder.build(), processing=policy, dead_letter_topic="dead") as driver:
        topic = driver.create_input_topic("in")

        def together():
            with driver.batch():
                for key, number in numbers:
                    topic.pipe_input(key, {"x": number}, 1)

        if policy == "fail":
            with pytest.raises(RecordFailedError, match=r"(?s)in-0 offset 2, key b'k'.*agg.sum\('x'\) overflows"):
                together()
            return
        together()
        sums = driver.create_output_topic("out").read_key_values_to_map()
        assert sums == {"a": {"n": 1}, "b": {"n": 2}, "k": {"n": 1.5e308 - 1e308}}
        assert driver.dropped("processing") == 1
        assert [letter.value for letter in letters(driver)] == ([b'{"x":1.6e+308}'] if policy == "dlq" else [])


@pytest.mark.parametrize("policy", ["skip", "dlq"])
def test_a_record_that_several_branches_cannot_read_is_one_bad_record(policy):
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.group_by_key().count().to_stream().to("counts")
    stream.group_by_key().reduce(lambda first, second: second).to_stream().to("last")
    with TopologyTestDriver(builder.build(), deserialization=policy, dead_letter_topic="dead") as driver:
        driver.create_input_topic("in").pipe_bytes(b"k", b'{"a": ', 0)
        assert [letter.key for letter in letters(driver)] == ([b"k"] if policy == "dlq" else [])
        counts = driver.counts()
        assert counts["dropped:KSTREAM-SOURCE-in:deserialization"] == 1
        assert counts["skipped:deserialization" if policy == "skip" else "dead_letters:deserialization"] == 1
