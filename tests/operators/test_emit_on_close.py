"""Emission on close and suppress: boundaries, jumps of time, modes, bounds of the buffer, cost."""

import pytest

from state.stores.byte_stores import KeyValueBytesStore
from streams import (
    BufferConfig,
    EmitStrategy,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyError,
)
from streams.testing import TopologyTestDriver

ON_CLOSE = EmitStrategy.on_window_close()
UPDATES = Materialized(caching=False)


def final_counts(windows, records, mode="strict", emit_interval_ms=0):
    """(key, start, end, count, timestamp) of all final results, each with the index of the record that closed it."""
    builder = StreamsBuilder()
    counted = builder.stream("in").group_by_key().windowed_by(windows).emit_strategy(ON_CLOSE).count()
    counted.to_stream().to("out")
    return run(builder, records, mode, emit_interval_ms=emit_interval_ms)


def suppressed_counts(windows, records, mode="strict"):
    builder = StreamsBuilder()
    table = builder.stream("in").group_by_key().windowed_by(windows).count(materialized=UPDATES)
    table.suppress(Suppressed.until_window_closes()).to_stream().to("out")
    return run(builder, records, mode)


def run(builder, records, mode="strict", **settings):
    found = []
    with TopologyTestDriver(builder.build(), mode=mode, **settings) as driver:
        out = driver.create_output_topic("out")
        for at, (key, timestamp) in enumerate(records):
            driver.create_input_topic("in").pipe_input(key, 1, timestamp)
            rows = out.read_records_to_list()
            found += [(r.key.key, *r.key.window, r.value, r.timestamp, at) for r in rows]
    return found


TUMBLING = TimeWindows.of_size_and_grace(10, 5)


def test_tumbling_windows_close_at_end_plus_grace():
    records = [("b", 3), ("a", 9), ("b", 1), ("z", 14), ("a", 2), ("z", 15), ("a", 4), ("z", 100)]
    wanted = [("a", 0, 10, 2, 9, 5), ("b", 0, 10, 2, 3, 5), ("z", 10, 20, 2, 15, 7)]
    assert final_counts(TUMBLING, records) == wanted
    assert suppressed_counts(TUMBLING, records) == wanted


def test_hopping_windows_close_one_by_one():
    windows = TimeWindows.of_size_with_no_grace(10).advance_by(5)
    assert final_counts(windows, [("a", 7), ("a", 10), ("a", 15)]) == [("a", 0, 10, 1, 7, 1), ("a", 5, 15, 2, 10, 2)]


@pytest.mark.parametrize("results", [final_counts, suppressed_counts])
def test_sessions_close_when_gap_and_grace_have_passed(results):
    windows = SessionWindows.of_inactivity_gap_with_no_grace(10)
    records = [("a", 0), ("a", 5), ("b", 6), ("z", 15), ("z", 16), ("z", 17)]
    assert results(windows, records) == [("a", 0, 5, 2, 5, 4), ("b", 6, 6, 1, 6, 5)]


@pytest.mark.parametrize("results", [final_counts, suppressed_counts])
def test_sliding_windows_close_behind_their_last_millisecond(results):
    windows = SlidingWindows.of_time_difference_and_grace(10, 0)
    records = [("a", 12), ("a", 15), ("z", 15), ("z", 16), ("z", 40)]
    found = [row for row in results(windows, records) if row[0] == "a"]
    assert found == [("a", 2, 12, 1, 12, 1), ("a", 5, 15, 2, 15, 3), ("a", 13, 23, 1, 15, 4)]


def test_compat_suppress_closes_sliding_windows_too_early():
    windows = SlidingWindows.of_time_difference_and_grace(10, 0)
    records = [("a", 12), ("a", 12), ("z", 50)]
    # Kafka Streams emits [2, 12] at 12 already, and once more when another record comes at 12.
    assert suppressed_counts(windows, records, "compat") == [
        ("a", 2, 12, 1, 12, 0),
        ("a", 2, 12, 2, 12, 1),
        ("z", 40, 50, 1, 50, 2),
    ]
    assert suppressed_counts(windows, records) == [("a", 2, 12, 2, 12, 2)]


@pytest.mark.parametrize("windows", [TUMBLING, SlidingWindows.of_time_difference_and_grace(10, 5)])
def test_a_jump_of_time_loses_nothing(windows):
    records = [(f"k{n}", 1000 + n) for n in range(40)] + [("z", 10**9)]
    found = final_counts(windows, records)
    assert {row[0] for row in found} == {f"k{n}" for n in range(40)}
    assert [row[2] for row in found] == sorted(row[2] for row in found)


def test_only_compat_waits_for_the_wall_clock():
    windows = TimeWindows.of_size_with_no_grace(10)
    records = [("a", 1), ("a", 11), ("a", 21)]
    assert [row[1] for row in final_counts(windows, records, "strict", 1000)] == [0, 10]
    assert final_counts(windows, records, "compat", 1000) == []
    assert [row[1] for row in final_counts(windows, records, "compat", 0)] == [0, 10]


def test_compat_looks_for_closed_windows_by_the_wall_clock():
    builder = StreamsBuilder()
    counted = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    counted.emit_strategy(ON_CLOSE).count().to_stream().to("out")
    with TopologyTestDriver(builder.build(), mode="compat", emit_interval_ms=1000) as driver:
        topic, out = driver.create_input_topic("in"), driver.create_output_topic("out")
        topic.pipe_input("a", 1, 1)  # makes the look that begins the interval
        topic.pipe_input("a", 1, 11)
        driver.restart()
        topic.pipe_input("a", 1, 21)
        driver.advance_wall_clock_time(999)
        topic.pipe_input("a", 1, 31)
        assert out.is_empty
        driver.advance_wall_clock_time(1)
        topic.pipe_input("a", 1, 32)
        assert [record.key.window.start for record in out.read_records_to_list()] == [0, 10, 20]


@pytest.mark.slow
def test_a_record_that_closes_nothing_reads_no_index(monkeypatch):
    """20,000 open windows: what a record costs must not depend on them."""
    builder = StreamsBuilder()
    counted = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(1000))
    counted.emit_strategy(ON_CLOSE).count().to_stream().to("out")
    ranges = []
    original = KeyValueBytesStore.range
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch():
            for number in range(20_000):
                topic.pipe_input(f"k{number}", 1, number % 900)
        monkeypatch.setattr(KeyValueBytesStore, "range", lambda *args: ranges.append(args) or original(*args))
        with driver.batch():
            for number in range(500):
                topic.pipe_input("x", 1, 900 + number % 90)
        assert len(ranges) == 1  # begun once per step
        topic.pipe_input("x", 1, 1000)
        assert driver.create_output_topic("out").queue_size == 20_001


def test_a_full_buffer_fails_or_emits_early():
    def build(how):
        builder = StreamsBuilder()
        builder.table("in", materialized=UPDATES).suppress(how, "held").to_stream().to("out")
        return builder.build()

    small = BufferConfig.max_records(2)  # Kafka Streams' name
    assert (small, small.max_records) == (BufferConfig.of_max_records(2), 2)
    with TopologyTestDriver(build(Suppressed.until_time_limit(1000, small.emit_early_when_full()))) as driver:
        topic, out = driver.create_input_topic("in"), driver.create_output_topic("out")
        for key, value, timestamp in (("c", 1, 3), ("a", 1, 5), ("c", 2, 6), ("b", 1, 4)):
            topic.pipe_input(key, value, timestamp, headers=(("n", str(value).encode()),))
        # The oldest goes first; "c" kept the place of its first update, and has value, time and headers of its last.
        assert [(r.key, r.value, r.timestamp, r.headers) for r in out.read_records_to_list()] == [
            ("c", 2, 6, (("n", b"2"),))
        ]
        driver.restart(wipe_state=True)
        topic.pipe_input("z", 1, 1004)
        assert out.read_key_values_to_list() == [("b", 1)]
        topic.pipe_input("a", None, 1005)
        assert out.read_key_values_to_list() == [("a", None)]
    with TopologyTestDriver(build(Suppressed.until_time_limit(1000, small.shut_down_when_full()))) as driver:
        topic = driver.create_input_topic("in")
        for key in "ab":
            topic.pipe_input(key, 1, 1)
        with pytest.raises(Exception, match="the buffer of 'held' in task 0_0 holds 3 updates"):
            topic.pipe_input("c", 1, 1)


def test_a_table_without_windows_cannot_wait_for_their_end() -> None:
    with pytest.raises(TopologyError, match="has no windows"):
        StreamsBuilder().table("in").suppress(Suppressed.until_window_closes())


def test_a_final_result_cannot_be_emitted_early() -> None:
    with pytest.raises(TopologyError, match="cannot emit early"):
        Suppressed.until_window_closes(BufferConfig.of_max_bytes(1).emit_early_when_full())


def test_a_bound_of_another_kind_counts_what_is_already_held() -> None:
    def build(bounds: BufferConfig) -> Topology:
        builder = StreamsBuilder()
        table = builder.table("in", materialized=Materialized(name="rows"))
        table.suppress(Suppressed.until_time_limit(1000, bounds), "held").to_stream().to("out")
        return builder.build()

    with TopologyTestDriver(build(BufferConfig.of_max_records(9))) as driver:
        topic, out = driver.create_input_topic("in"), driver.create_output_topic("out")
        topic.pipe_key_value_list([("a", 1), ("b", 1)], 1)
        driver.restart(topology=build(BufferConfig.of_max_bytes(89)))
        assert out.is_empty
        topic.pipe_input("c", 1, 1)  # each update has 8 + 20 bytes, and 2 of key and value
        assert out.read_key_values_to_list() == [("a", 1)]
