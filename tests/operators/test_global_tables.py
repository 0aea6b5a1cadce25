"""Global tables: every task sees all of them, whatever the partitions; how they are read, and their limits."""

import pytest

from state.errors import StateError
from state.stores import task_store
from state.tables.buffer import BufferMemory
from streams import BytesSerde, ConfigError, Consumed, Int64Serde, Joined, Materialized, StreamsBuilder, TopologyError
from streams.config import StreamsConfig
from streams.errors import RecordFailedError
from streams.testing import TopologyTestDriver
from tests.both_ways import Fed, check_both_ways


def built():
    builder = StreamsBuilder()
    names = builder.global_table("names", Consumed(key_serde=Int64Serde()), Materialized(name="by-number"))
    stream = builder.stream("in")
    counts = stream.left_join(names, lambda a, b: [a, b], key_selector=lambda v: v, joined=Joined(name="j"))
    counts.to("out")
    stream.join(names, lambda key, a, b: f"{key}:{b}", key_selector=lambda k, v: v).to("matched")
    return builder.build()


def test_every_task_sees_all_of_it():
    with TopologyTestDriver(built(), partitions={"in": 3, "names": 4}, tasks=3) as driver:
        names, stream = driver.create_input_topic("names"), driver.create_input_topic("in")
        for number in range(8):
            names.pipe_input(number, f"n{number}", number)
        names.pipe_input(None, "no key", 0)
        for key in range(12):
            stream.pipe_input(f"k{key}", key, 100)
        out = driver.create_output_topic("out")
        assert out.read_key_values_to_map() == {f"k{key}": [key, f"n{key}" if key < 8 else None] for key in range(12)}
        assert driver.dropped("null_key") == 1
        assert sorted(driver.create_output_topic("matched").read_values_to_list()) == [
            f"k{key}:n{key}" for key in range(8)
        ]
        driver.restart()
        names.pipe_input(3, None, 0)
        stream.pipe_input("again", 3, 0)
        stream.pipe_input("again", 4, 0)
        assert out.read_values_to_list() == [[3, None], [4, "n4"]]
        assert driver.get_store("by-number").get(4).value == "n4"


def test_the_joiner_may_see_the_key_that_was_looked_up():
    builder = StreamsBuilder()
    names = builder.global_table("names", Consumed(key_serde=Int64Serde()))
    builder.stream("in").left_join(
        names, lambda key, looked_up, value, name: [key, looked_up, value, name], key_selector=lambda value: value
    ).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("names").pipe_input(1, "one", 0)
        for value in (1, 2):
            driver.create_input_topic("in").pipe_input("k", value, 5)
        assert driver.create_output_topic("out").read_values_to_list() == [["k", 1, 1, "one"], ["k", 2, 2, None]]


def test_null_keys():
    with TopologyTestDriver(built()) as driver:
        driver.create_input_topic("names").pipe_input(1, "one", 0)
        stream = driver.create_input_topic("in")
        stream.pipe_input(None, 1, 0)
        stream.pipe_input("k", None, 0)
        assert driver.create_output_topic("out").read_key_values_to_list() == [(None, [1, "one"])]
        assert driver.dropped("null_value") == 2


def test_a_record_that_cannot_be_read_follows_the_policy():
    with TopologyTestDriver(built(), deserialization="skip") as driver:
        names = driver.create_input_topic("names")
        names.pipe_bytes(b"short", b'"x"')
        names.pipe_input(1, "one", 0)
        driver.create_input_topic("in").pipe_input("k", 1, 0)
        assert driver.create_output_topic("out").read_values_to_list() == [[1, "one"]]
        assert driver.dropped("deserialization") == 1


def test_a_full_disk_is_no_records_fault(monkeypatch, tmp_path):
    monkeypatch.setattr(task_store, "BufferMemory", lambda *_: BufferMemory(0, tmp_path / "not there"))
    with TopologyTestDriver(built(), deserialization="skip", processing="skip") as driver:
        names = driver.create_input_topic("names")
        with pytest.raises(StateError, match="not there"):
            names.pipe_input(1, "one", 0)
        assert driver.dropped() == 0


def test_it_generates_no_tasks():
    topology = built()
    text = topology.describe()
    assert text.count("Sub-topology") == 2
    assert "Sub-topology: 1 for global store (will not generate tasks)" in text
    assert "Processor: KTABLE-SOURCE-names (stores: [by-number])" in text
    assert list(topology.stores) == []


def test_misuse():
    builder = StreamsBuilder()
    names, stream = builder.global_table("names"), builder.stream("in")
    with pytest.raises(TopologyError, match="needs key_selector"):
        stream.join(names, lambda a, b: a)
    with pytest.raises(TopologyError, match=r"key_selector=\.\.\. is for global tables"):
        stream.join(builder.table("t"), lambda a, b: a, key_selector=lambda v: v)
    with pytest.raises(TopologyError, match="read already"):
        builder.global_table("in")
    with pytest.raises(TopologyError, match="no outer join with a table"):
        stream.outer_join(names, lambda a, b: a)
    builder.stream("names")
    with pytest.raises(TopologyError, match="read as the global table"):
        builder.build()


def test_a_record_without_a_valid_time_is_counted():
    builder = StreamsBuilder()
    table = builder.global_table("table", Consumed(timestamp_extractor=lambda record: -1))
    builder.stream("in").join(table, lambda value, found: found, key_selector=lambda key, value: key).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("table").pipe_input("a", 1, 5)
        assert driver.dropped("timestamp") == 1


@pytest.mark.parametrize("settings", [{"deserialization": "skip"}, {"global_table_errors": "skip"}], ids=str)
def test_what_cannot_be_read_is_skipped_and_counted(settings):
    with TopologyTestDriver(built(), **settings) as driver:
        driver.create_input_topic("names", Int64Serde(), BytesSerde()).pipe_input(1, b"no json", 0)
        driver.create_input_topic("in").pipe_input("k", 1, 5)
        assert driver.create_output_topic("out").read_values_to_list() == [[1, None]]
        assert driver.dropped("deserialization") == 1


def test_what_cannot_be_read_stops_where_only_streams_are_to_skip():
    with TopologyTestDriver(built(), deserialization="skip", global_table_errors="fail") as driver:
        names = driver.create_input_topic("names", Int64Serde(), BytesSerde())
        with pytest.raises(RecordFailedError, match="record at names-0 offset 0"):
            names.pipe_input(1, b"no json", 0)


@pytest.mark.parametrize("stage", ["deserialization", "processing"])
def test_dead_letters_are_refused_unless_global_tables_have_a_policy_of_their_own(stage):
    settings = {stage: "dlq", "dead_letter_topic": "dead"}
    with pytest.raises(ConfigError, match="Set global_table_errors to 'fail' or 'skip'"):
        TopologyTestDriver(built(), **settings)
    TopologyTestDriver(built(), **settings, global_table_errors="skip").close()
    with pytest.raises(ValueError, match="global tables have no dead letters"):
        StreamsConfig(application_id="app", global_table_errors="dlq")


@pytest.mark.parametrize("left", [False, True])
def test_a_step_looks_up_all_its_keys_at_once(left: bool) -> None:
    builder = StreamsBuilder()
    names = builder.global_table("names", Consumed(key_serde=Int64Serde()))
    stream = builder.stream("in")
    join = stream.left_join if left else stream.join
    join(names, lambda value, name: [value, name], key_selector=lambda key, value: value % 7).to("out")
    rows = [Fed("names", bytes([0] * 7 + [n]), b'"n%d"' % n, n) for n in (1, 2, 3, 5)]
    changed = [Fed("names", rows[0].key, None, 50), Fed("names", rows[1].key, b'"other"', 51)]
    records = [Fed("in", b"k", b"%d" % n, 60 + n) for n in range(20)]
    seen = check_both_ways(
        builder.build(), [rows, records, changed, records, [Fed("in", b"k", None, 90)]], restarts=[1]
    )
    assert seen.fallbacks == {}
    assert len(seen.topics["out", 0]) == (40 if left else 21)
