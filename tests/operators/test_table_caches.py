"""Tables whose updates are held back within a step: what is told of them, when, and who sees them before."""

import pytest

from streams import (
    BufferConfig,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from streams.operators.processor import Processor
from streams.testing import TopologyTestDriver

EVERY = Materialized(caching=False)


def run(builder, *steps, out="out", mode="strict"):
    """Rows of a topic as (key, value, time), where each step is a list of (topic, key, value, time)."""
    with TopologyTestDriver(builder.build(), mode=mode) as driver:
        for step in steps:
            with driver.batch():
                for topic, key, value, time in step:
                    driver.create_input_topic(topic).pipe_input(key, value, time)
        return [(r.key, r.value, r.timestamp) for r in driver.create_output_topic(out).read_records_to_list()]


def total(table, pick=lambda value: value):
    """The sum of a table's rows, which subtracts what it had added."""
    rows = table.group_by(lambda key, value: ("all", pick(value)))
    rows.reduce(lambda a, b: a + b, lambda a, b: a - b).to_stream().to("out")


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_what_is_subtracted_of_a_join_is_what_was_added(kind):
    """Both sides change in one step: the pair that was told is subtracted, not one that never was."""
    builder = StreamsBuilder()
    left, right = builder.table("left"), builder.table("right")
    total(getattr(left, kind)(right, lambda a, b: (a or 0) * (b or 0)))
    steps = [("left", "k", 2, 1), ("right", "k", 3, 2)], [("left", "k", 5, 3), ("right", "k", 7, 4)]
    assert run(builder, *steps)[-1] == ("all", 35, 4)


def test_sides_of_one_table_are_subtracted_as_they_were_emitted():
    builder = StreamsBuilder()
    table = builder.table("in", materialized=EVERY)
    total(table.filter(lambda v: v > 0).join(table.map_values(lambda v: v + 1), lambda a, b: a * b))
    assert run(builder, [("in", "k", 2, 1)], [("in", "k", 5, 2)])[-1] == ("all", 30, 2)


def test_a_row_of_two_sides_of_one_table_goes_with_it():
    """Neither side finds the other any more; Kafka Streams then leaves the joined row where it is."""
    rows = {}
    for mode in ("strict", "compat"):
        builder = StreamsBuilder()
        table = builder.table("in", materialized=EVERY)
        table.filter(lambda v: v > 0).join(table.map_values(str), lambda a, b: f"{a}{b}").to_stream().to("out")
        rows[mode] = run(builder, [("in", "k", 2, 1)], [("in", "k", None, 2)], mode=mode)[-1]
    assert rows == {"strict": ("k", None, 2), "compat": ("k", "22", 1)}


def test_a_filter_deletes_what_a_join_had_emitted():
    """The old pair matched, and a mixture of both sides' updates does not: it must not be taken for the old pair."""
    builder = StreamsBuilder()
    joined = builder.table("left").join(builder.table("right"), lambda a, b: a + b)
    joined.filter(lambda v: v == 3).to_stream().to("out")
    rows = run(builder, [("left", "k", 1, 1), ("right", "k", 2, 2)], [("left", "k", 5, 3), ("right", "k", 6, 4)])
    assert rows[-1][1] is None


def test_a_join_does_not_see_a_row_that_comes_and_goes():
    """Nobody would tell it that the row is gone."""
    builder = StreamsBuilder()
    left = builder.table("left", materialized=EVERY)
    left.join(builder.table("right"), lambda a, b: a + b).to_stream().to("out")
    assert run(builder, [("right", "k", "r", 1), ("left", "k", "l", 2), ("right", "k", None, 3)]) == []


def test_a_foreign_key_does_not_find_a_row_that_comes_and_goes():
    builder = StreamsBuilder()
    right = builder.stream("right").repartition().to_table()  # in the step in which the subscription comes
    left = builder.table("left")
    left.join(right, lambda a, b: a + b, foreign_key=lambda value: "r").to_stream().to("out")
    assert run(builder, [("right", "r", "R", 1), ("left", "k", "l", 2), ("right", "r", None, 3)]) == []


def test_a_session_is_subtracted_once():
    """Its update comes as a deletion, which subtracts it, and the new value."""
    builder = StreamsBuilder()
    sessions = builder.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10))
    total(sessions.count(materialized=EVERY))
    steps = [[("in", "a", 1, 10)], [("in", "a", 1, 15)], [("in", "a", 1, 12)], [("in", "a", 1, 12)]]
    assert run(builder, *steps)[-1] == ("all", 4, 15)


def test_what_is_held_back_by_suppress_is_not_seen_in_a_cache_above():
    builder = StreamsBuilder()
    table = builder.table("table").suppress(Suppressed.until_time_limit(10))
    builder.stream("in").left_join(table, lambda value, found: [value, found]).to("out")
    assert run(builder, [("table", "a", "x", 0), ("in", "a", 1, 1)]) == [("a", [1, None], 1)]


def test_an_update_is_held_back_from_its_own_time_on():
    """A later one of the same step does not take its place."""
    builder = StreamsBuilder()
    builder.table("in").suppress(Suppressed.until_time_limit(10)).to_stream().to("out")
    assert run(builder, [("in", "a", 1, 0), ("in", "a", 2, 9), ("in", "b", 3, 10)]) == [("a", 2, 9)]


def test_mapped_windows_that_are_suppressed_keep_their_cache():
    """Only the last value of a step is mapped and held back: none but what a filter leaves out could be missed."""
    builder, mapped = StreamsBuilder(), []
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).count()
    closed = counts.map_values(lambda n: mapped.append(n) or -n).suppress(Suppressed.until_window_closes())
    closed.to_stream().to("out")
    assert [row[1:] for row in run(builder, [("in", "a", 1, time) for time in (1, 2, 3, 15)])] == [(-3, 3)]
    assert mapped == [3, 1]


def test_a_bounded_buffer_emits_early_unless_configured_to_fail():
    builder = StreamsBuilder()
    held = Suppressed.until_time_limit(100, BufferConfig.of_max_records(1))
    builder.table("in").suppress(held).to_stream().to("out")
    assert run(builder, [("in", "a", 1, 0), ("in", "b", 2, 1)]) == [("a", 1, 0)]


@pytest.mark.parametrize("windows", [None, TimeWindows.of_size_with_no_grace(10)])
def test_an_aggregate_that_comes_and_goes_is_not_emitted(windows):
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    grouped = grouped if windows is None else grouped.windowed_by(windows)
    grouped.aggregate(lambda: 0, lambda value, sum_: sum_ + value or None).to_stream().to("out")
    assert run(builder, [("in", "a", 2, 5), ("in", "a", -2, 6)]) == []


@pytest.mark.parametrize("windows", [None, TimeWindows.of_size_with_no_grace(10)])
def test_the_streams_of_a_cogroup_go_on_together_in_order_of_time(windows):
    builder = StreamsBuilder()
    one, two = builder.stream("one").group_by_key(), builder.stream("two").group_by_key()
    both = one.cogroup(lambda value, sum_: sum_ + value).cogroup(two, lambda value, sum_: sum_ + value)
    both = both if windows is None else both.windowed_by(windows)
    both.aggregate(lambda: 0).to_stream().to("out")
    rows = run(builder, [("two", "a", 1, 1), ("two", "b", 2, 5), ("one", "a", 4, 7), ("one", "c", 8, 8)])
    assert [row[1:] for row in rows] == [(2, 5), (5, 7), (8, 8)]


class Scan(Processor):
    """Forwards what a store holds."""

    def process(self, record):
        self.ctx.forward(record.with_value([[key, found.value] for key, found in self.ctx.store("rows").all()]))


@pytest.mark.parametrize("made_by", ["table", "reduce"])
def test_a_row_that_was_scanned_and_went_in_one_step_is_gone(made_by):
    """The scan writes what the cache holds, so the deletion must be written, too."""
    builder, how = StreamsBuilder(), Materialized(name="rows")
    if made_by == "table":
        builder.table("in", materialized=how)
    else:
        builder.stream("in").group_by_key().reduce(lambda one, two: two or None, materialized=how)
    builder.stream("scan").process(Scan, stores=["rows"]).to("out")
    gone = None if made_by == "table" else 0
    steps = [("in", "a", 1, 1), ("scan", "s", 0, 2), ("in", "a", gone, 3)], [("scan", "s", 0, 4)]
    assert run(builder, *steps) == [("s", [["a", 1]], 2), ("s", [], 4)]


def test_what_was_held_back_goes_on_in_order_of_time():
    """Else a long step would make its own results late where they are put into windows."""
    builder = StreamsBuilder()
    updates = builder.table("in", materialized=Materialized(name="kept")).to_stream().group_by_key()
    updates.windowed_by(TimeWindows.of_size_with_no_grace(10)).count().to_stream().map(
        lambda window, count: (window.key, count)
    ).to("out")
    rows = run(builder, [("in", "a", 1, 5), ("in", "b", 1, 50), ("in", "a", 2, 101)])
    assert rows == [("b", 1, 50), ("a", 1, 101)]


def test_the_cache_emits_the_last_value_of_a_step_once_and_shows_it_to_readers_at_once():
    builder = StreamsBuilder()
    stream = builder.stream("in")
    table = stream.group_by_key().count(materialized=Materialized(name="c"))
    table.to_stream().to("out")
    builder.stream("probe").join(table, lambda k, a, b: b).to("seen")
    with TopologyTestDriver(builder.build()) as driver:
        topic, probe = driver.create_input_topic("in"), driver.create_input_topic("probe")
        with driver.batch():
            for t in range(3):
                topic.pipe_input("k", "v", t)
            probe.pipe_input("k", "?", 1)
        assert driver.create_output_topic("out").read_key_values_to_list() == [("k", 3)]
        # Merged by time: "in" comes before "probe" at the same time.
        assert driver.create_output_topic("seen").read_values_to_list() == [2]
