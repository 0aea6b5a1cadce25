"""Policies: what happens to records that cannot be handled, stage by stage."""

import errno
import tempfile

import pytest

from state.errors import StateError
from state.stores import task_store
from state.tables.buffer import BufferMemory
from streams import (
    BytesSerde,
    Consumed,
    Joined,
    JoinWindows,
    Materialized,
    Produced,
    StreamsBuilder,
    TimeWindows,
    agg,
    timestamp_field,
)
from streams.errors import RecordFailedError
from streams.testing import TopologyTestDriver


def through_head():
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda v: 10 // v).to("out")
    return builder.build(), 0


def through_task():
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().aggregate(
        lambda: 0, lambda v, agg: agg + 10 // v, materialized=Materialized(name="s", caching=False)
    ).to_stream().to("out")
    return builder.build(), 0


def columns():
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().aggregate(n=agg.sum("x")).to_stream().to("out")
    return builder.build(), {"x": 1}


def headers_of(record):
    return {name.removeprefix("__streams.errors."): value for name, value in record.headers}


@pytest.mark.parametrize("make", [through_head, through_task, columns])
@pytest.mark.parametrize("policy", ["fail", "skip", "dlq"])
def test_deserialization(make, policy):
    topology, _ = make()
    settings = {"deserialization": policy, "dead_letter_topic": "dead", "start_ms": 1_000}
    with TopologyTestDriver(topology, partitions={"in": 2}, **settings) as driver:
        topic = driver.create_input_topic("in")
        bad = {"key": b"k", "value": b"{no", "timestamp": 7, "headers": (("h", b"1"), ("n", None)), "partition": 1}
        if policy == "fail":
            with pytest.raises(RecordFailedError, match=r"in-1 offset 0, key b'k', cannot be read in node"):
                topic.pipe_bytes(**bad)
            return
        topic.pipe_bytes(**bad)
        topic.pipe_input("k", {"x": 1} if make is columns else 5, 8)
        assert len(driver.create_output_topic("out").read_values_to_list()) == 1
        assert driver.dropped("deserialization") == 1
        letters = driver.create_output_topic("dead").read_records_to_list()
        assert len(letters) == (policy == "dlq")
        for letter in letters:
            # The time of the step: the record's own may be what is wrong with it, and stands in a header.
            assert (letter.key, letter.value, letter.timestamp) == (b"k", b"{no", 1_000)
            assert letter.headers[:2] == (("h", b"1"), ("n", None))
            errors = headers_of(letter)
            assert (errors["topic"], errors["partition"], errors["offset"]) == (b"in", b"1", b"0")
            assert (errors["stage"], errors["timestamp"]) == (b"deserialization", b"7")
            assert errors["exception"] == b"SerdeError"
            assert b"JsonSerde" in errors["message"]
            assert b"Traceback" in errors["stacktrace"]


@pytest.mark.parametrize("make", [through_head, through_task])
@pytest.mark.parametrize("policy", ["fail", "skip", "dlq"])
def test_processing(make, policy):
    topology, bad = make()
    with TopologyTestDriver(topology, processing=policy, dead_letter_topic="dead") as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("k", 5, 1)
        if policy == "fail":
            with pytest.raises(RecordFailedError, match="in-0 offset 1, key b'k', made an operator fail") as caught:
                topic.pipe_input("k", bad, 2)
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
            return
        topic.pipe_input("k", bad, 2)
        topic.pipe_input("k", 2, 3)
        assert len(driver.create_output_topic("out").read_values_to_list()) == 2
        letters = driver.create_output_topic("dead").read_records_to_list()
        assert [(r.key, r.value) for r in letters] == ([(b"k", b"0")] if policy == "dlq" else [])


def test_a_failure_behind_the_head_keeps_the_original_bytes():
    builder = StreamsBuilder()
    builder.stream("in").select_key(lambda v: "other").group_by_key().aggregate(
        lambda: 0, lambda v, agg: agg + 10 // v
    ).to_stream().to("out")
    with TopologyTestDriver(
        builder.build(), processing="dlq", dead_letter_topic="dead", execution="micro-batch"
    ) as driver:
        driver.create_input_topic("in").pipe_input("k", 0, 2, headers=(("h", b"x"),))
        (letter,) = driver.create_output_topic("dead").read_records_to_list()
        assert (letter.key, letter.value, letter.headers[0]) == (b"k", b"0", ("h", b"x"))
        assert headers_of(letter)["stage"] == b"processing"


@pytest.mark.parametrize("policy", ["fail", "skip", "dlq"])
@pytest.mark.parametrize("value", ["not serialisable", "too large"])
def test_production(policy, value):
    builder = StreamsBuilder()
    large = {"too large": "x" * 2000, "not serialisable": object()}
    builder.stream("in").map_values(lambda v: large.get(v, v)).to("out")
    # An object that no serde can write cannot leave the head either unless it can be pickled: `object()` can.
    with TopologyTestDriver(
        builder.build(), production=policy, max_record_bytes=1000, dead_letter_topic="dead"
    ) as driver:
        topic = driver.create_input_topic("in")
        if policy == "fail":
            with pytest.raises(
                RecordFailedError, match="gave a result that cannot be written in node 'KSTREAM-SINK-out'"
            ):
                topic.pipe_input("k", value, 1)
            return
        topic.pipe_input("k", value, 1)
        topic.pipe_input("k", "good", 2)
        assert driver.create_output_topic("out").read_values_to_list() == ["good"]
        letters = driver.create_output_topic("dead").read_records_to_list()
        assert len(letters) == (policy == "dlq")
        if letters:
            assert letters[0].value == f'"{value}"'.encode()


def test_a_result_that_fails_at_the_end_of_a_step_spares_the_others():
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().aggregate(
        lambda: 0, lambda v, agg: object() if v == "bad" else agg + 1, materialized=Materialized(name="s")
    ).to_stream().to("out")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        topic = driver.create_input_topic("in")
        with driver.batch():
            topic.pipe_key_value_list([("a", "x"), ("b", "bad"), ("c", "x")], start_ms=1)
        assert driver.create_output_topic("out").read_key_values_to_list() == [("a", 1), ("c", 1)]
        assert driver.get_store("s").get("b") is None


@pytest.mark.parametrize("make", ["records", "columns", "rekeyed"])
@pytest.mark.parametrize("policy", ["fail", "skip", "dlq"])
def test_timestamps_too_far_ahead_never_advance_stream_time(make, policy):
    builder = StreamsBuilder()
    stream = builder.stream("in")
    if make == "rekeyed":
        stream = stream.select_key(lambda v: "k")
    grouped = stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    table = grouped.aggregate(n=agg.count()) if make == "columns" else grouped.count()
    table.to_stream().to("out")
    with TopologyTestDriver(
        builder.build(), start_ms=1000, max_future_ms=100, future=policy, dead_letter_topic="dead"
    ) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("k", {"x": 1}, 1100)
        if policy == "fail":
            said = r"in-0 offset 1, key b.k., .*1101 \(1970-01-01 00:00:01 UTC\) is 101 ms ahead .* 100 ms are allowed"
            with pytest.raises(RecordFailedError, match=said):
                topic.pipe_input("k", {"x": 2}, 1101)
            return
        topic.pipe_input("k", {"x": 2}, 5000)
        topic.pipe_input("k", {"x": 3}, 1100)
        assert [r.timestamp for r in driver.create_output_topic("out").read_records_to_list()] == [1100, 1100]
        assert driver.dropped("future") == 1
        letters = driver.create_output_topic("dead").read_records_to_list()
        assert [(r.key, r.value) for r in letters] == ([(b"k", b'{"x":2}')] if policy == "dlq" else [])


@pytest.mark.parametrize("make", ["object", "raw", "columns", "nested"])
def test_timestamps_from_a_field(make):
    builder = StreamsBuilder()
    path = "t.t" if make == "nested" else "t"
    stream = builder.stream("in", Consumed(timestamp_extractor=timestamp_field(path, "us")))
    if make == "object":
        stream.map_values(lambda v: v["x"]).to("out", Produced())
    elif make == "columns":
        stream.group_by_key().aggregate(x=agg.last("x"), s=agg.last("s")).to_stream().map_values(lambda v: v["x"]).to(
            "out"
        )
    else:
        stream.to("out")
    with TopologyTestDriver(builder.build(), deserialization="skip") as driver:
        topic = driver.create_input_topic("in")
        for x, time in enumerate((77_999, None, -5, 78_000.5, "text", 2**60)):
            topic.pipe_input("k", {"x": x, "t": {"t": time} if make == "nested" else time}, 0)
        topic.pipe_bytes(b"k", b"{bad")
        rows = driver.create_output_topic("out").read_records_to_list()
        found = [(r.value["x"] if isinstance(r.value, dict) else r.value, r.timestamp) for r in rows]
        expected = [(0, 77), (3, 78), (5, 2**60 // 1000)]
        if make == "columns":
            expected = [(x, max(t for _, t in expected[: i + 1])) for i, (x, t) in enumerate(expected)]
        assert found == expected
        # -5 microseconds are -1 ms: dropped; no field, no number and no JSON are errors.
        assert (driver.dropped("deserialization"), driver.dropped("timestamp")) == (3, 1)


def test_a_dead_letter_policy_needs_a_topic():
    with pytest.raises(ValueError, match="no dead_letter_topic"):
        TopologyTestDriver(through_head()[0], processing="dlq")


def joined(kind, fails="joiner"):
    """A left join of `kind`, in which a record waits for 10 ms or less; it, or what is behind it, fails for "bad"."""

    def joiner(left, right):
        return checked([left, right]) if fails == "joiner" else [left, right]

    def checked(pair):
        if pair[0] == "bad":
            raise ValueError("bad")
        return pair

    builder = StreamsBuilder()
    left = builder.stream("l")
    if kind == "table":
        table = builder.table("r", materialized=Materialized(history_retention=100))
        result = left.left_join(table, joiner, Joined(grace=10))
    elif kind == "as_of":
        result = left.as_of_join(builder.stream("r"), joiner, within=10, grace=10, left=True)
    elif kind == "itself":
        builder = StreamsBuilder(optimize=True)
        left = builder.stream("l")
        result = left.left_join(left, joiner, JoinWindows.of_time_difference_with_no_grace(0).after(10).before(-5))
    else:
        result = left.left_join(builder.stream("r"), joiner, JoinWindows.of_time_difference_with_no_grace(10))
    result.map_values(checked).to("out")
    return builder.build()


@pytest.mark.parametrize("kind", ["stream", "itself", "table", "as_of"])
def test_a_waiting_record_that_fails_spares_the_others_and_the_one_that_made_it_due(kind):
    with TopologyTestDriver(joined(kind), processing="skip") as driver:
        records = driver.create_input_topic("l")
        for key, value, timestamp in [("x", "bad", 1), ("y", "good", 2), ("z", "next", 100), ("z", "last", 300)]:
            records.pipe_input(key, value, timestamp)
        found = driver.create_output_topic("out").read_key_values_to_list()
        assert found == [("y", ["good", None]), ("z", ["next", None])]
        assert driver.dropped("processing") == 1


@pytest.mark.parametrize("fails", ["joiner", "behind"])
@pytest.mark.parametrize("kind", ["stream", "itself", "table", "as_of"])
def test_the_dead_letter_of_a_waiting_record_is_that_record(kind, fails):
    with TopologyTestDriver(joined(kind, fails), processing="dlq", dead_letter_topic="dead") as driver:
        records = driver.create_input_topic("l")
        for key, value, timestamp in [("x", "bad", 1), ("y", "good", 2), ("z", "next", 100)]:
            records.pipe_input(key, value, timestamp, headers=(("of", key.encode()),))
        (letter,) = driver.create_output_topic("dead", BytesSerde(), BytesSerde()).read_records_to_list()
        assert (letter.key, letter.value, headers_of(letter)["timestamp"]) == (b"x", b'"bad"', b"1")
        assert letter.headers[0] == ("of", b"x")
        assert driver.create_output_topic("out").read_key_values_to_list() == [("y", ["good", None])]


@pytest.mark.parametrize("settings", [{"processing": "skip"}, {"processing": "dlq", "dead_letter_topic": "dead"}])
@pytest.mark.parametrize("together", [True, False])
def test_a_full_disk_is_no_records_fault(settings, together, monkeypatch):
    """A step that spills ends with the disk's error, and drops nothing; once there is room, every record counts once."""
    room = []

    def mkdtemp(*_, **__):
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return room[0]()

    def small(limit=None, *more):
        return BufferMemory(limit and 2000, *more)

    def pipe_all(driver, topic):
        with driver.batch():
            for number in range(50):
                topic.pipe_input(f"key {number}", number, timestamp=number)

    monkeypatch.setattr(task_store, "BufferMemory", small)
    builder = StreamsBuilder()
    how = Materialized("lists", caching=together)
    builder.stream("in").group_by_key().aggregate(list, lambda value, held: [*held, value], materialized=how)
    with TopologyTestDriver(builder.build(), rocksdb=True, **settings) as driver:
        topic = driver.create_input_topic("in")
        make = tempfile.mkdtemp
        monkeypatch.setattr("state.tables.buffer.tempfile.mkdtemp", mkdtemp)
        with pytest.raises(StateError, match="No space left"):
            pipe_all(driver, topic)
        room.append(make)
        driver.restart(wipe_state=False)
        topic.pipe_input("key 0", 50, timestamp=50)
        assert driver.dropped() == 0
        assert driver.get_key_value_store("lists").get("key 0") == [0, 50]
        assert driver.get_key_value_store("lists").get("key 49") == [49]


def test_an_error_of_the_system_is_the_records_fault_where_a_function_raises_it():
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: open(value).read()).to("out")  # noqa: SIM115
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        driver.create_input_topic("in").pipe_input("a", "/no/such/file")
        assert driver.counts()["skipped:processing"] == 1
