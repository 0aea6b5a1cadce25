"""However records are cut into steps, cached, and however often the application starts anew: the results are the same.

Compared with records fed one by one, every update emitted: the last row of each place, or, where only final results are
emitted, all rows. Here are windows by the calendar, unlimited ones, cogroups and stores on disk; the other windows are in
`tests/properties/test_windows.py`.
"""

import random
from collections import Counter
from datetime import timedelta
from functools import cache

import pytest

from streams import (
    BufferConfig,
    CalendarWindows,
    EmitStrategy,
    Int64Serde,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    UnlimitedWindows,
    agg,
)
from streams.testing import TopologyTestDriver

HOUR = 3_600_000
SESSIONS = SessionWindows.of_inactivity_gap_and_grace(8 * HOUR, 10 * HOUR)
DAYS = CalendarWindows.of("day", "Europe/Berlin", grace=timedelta(hours=1))
ON_CLOSE = EmitStrategy.on_window_close()


def count(grouped, how):
    return grouped.count(materialized=how)


def texts(grouped, how):
    """An aggregate that shows the order in which values were added and merged."""
    merger = (lambda a, b: [*a, *b],) if type(grouped).__name__ == "SessionWindowedKStream" else ()
    return grouped.aggregate(list, lambda value, all_: [*all_, value], *merger, materialized=how)


def built_in(grouped, how):
    return grouped.aggregate(n=agg.count(), mean=agg.mean("v"), last=agg.last("v"), materialized=how)


def update(windows, aggregate):
    return lambda stream, how: aggregate(stream.group_by_key().windowed_by(windows), how)


def final(windows, aggregate):
    return lambda stream, how: aggregate(stream.group_by_key().windowed_by(windows).emit_strategy(ON_CLOSE), how)


def suppressed(stream, how):
    return texts(stream.group_by_key().windowed_by(DAYS), how).suppress(Suppressed.until_window_closes())


UPDATES = {
    "days-texts": update(DAYS, texts),
    "days-built_in": update(DAYS, built_in),
    "unlimited": update(UnlimitedWindows.start_on(30 * HOUR), count),
}
FINALS = {
    "days-texts": final(DAYS, texts),
    "days-built_in": final(DAYS, built_in),
    "suppressed-days": suppressed,
    "sessions": final(SESSIONS, texts),
}


def records(seed):
    """(key, value, timestamp): out of order by more than grace now and then, with jumps, some at the same time."""
    rng, now = random.Random(seed), 0
    for number in range(60):
        now += rng.choice([0, 0, 1, 2, 5, 9, 40 if rng.random() < 0.2 else 3])
        late = rng.choice([0, 0, 0, rng.randrange(30)])
        yield rng.choice("abc"), {"v": number}, max(0, now - late) * HOUR


def run(build, seed, *, caching, batches, rocksdb=False):
    """All rows that come out; with `batches`, steps of random sizes and restarts between them."""
    builder = StreamsBuilder()
    build(builder.stream("in"), Materialized(caching=caching)).to_stream().to("out")
    rng = random.Random(seed)
    with TopologyTestDriver(builder.build(), rocksdb=rocksdb) as driver:
        topic = driver.create_input_topic("in")
        waiting = list(records(seed))
        while waiting:
            size = rng.choice([1, 2, 7, 30]) if batches else 1
            with driver.batch():
                for key, value, timestamp in waiting[:size]:
                    topic.pipe_input(key, value, timestamp)
            del waiting[:size]
            if batches and rng.random() < 0.3:
                driver.restart(wipe_state=rng.random() < 0.7)
        rows = driver.create_output_topic("out").read_records_to_list()
    return [(row.key, repr(row.value), row.timestamp) for row in rows]


@cache
def one_by_one(build, seed):
    """What all other ways are compared with: a step for each record, every update emitted."""
    return run(build, seed, caching=False, batches=False)


def last_rows(rows):
    last = {key: (value, timestamp) for key, value, timestamp in rows}
    return {key: row for key, row in last.items() if row[0] != "None"}


@pytest.mark.slow
@pytest.mark.parametrize("name", UPDATES)
def test_updates(name):
    """The last ones with a cache; without one, each."""
    expected = one_by_one(UPDATES[name], 1)
    steps = run(UPDATES[name], 1, caching=True, batches=True)
    assert len(steps) < len(expected)
    assert last_rows(steps) == last_rows(expected)
    assert run(UPDATES[name], 1, caching=False, batches=True) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", FINALS)
def test_final_results(name):
    expected = one_by_one(FINALS[name], 1)
    assert expected
    for caching in (True, False):
        steps = run(FINALS[name], 1, caching=caching, batches=True, rocksdb=name == "sessions" and caching)
        assert Counter(steps) == Counter(expected)


def test_a_window_has_one_final_result_and_it_is_its_last_update():
    rows = run(FINALS["days-texts"], 1, caching=True, batches=True)
    assert max(Counter(key for key, _, _ in rows).values()) == 1
    updates = last_rows(one_by_one(UPDATES["days-texts"], 1))
    assert {key: updates[key] for key, _, _ in rows} == last_rows(rows)


def test_time_limit():
    def build(stream, how):
        return (
            stream.group_by_key()
            .count(materialized=how)
            .suppress(Suppressed.until_time_limit(10 * HOUR, BufferConfig.of_max_records(2).emit_early_when_full()))
        )

    expected = one_by_one(build, 4)
    assert len(expected) > 10
    assert run(build, 4, caching=False, batches=True) == expected


def test_cogrouped():
    def build(stream, how, windows=SESSIONS):
        evens, odds = (stream.filter(lambda v, odd=odd: v["v"] % 2 == odd).group_by_key() for odd in (0, 1))
        cogrouped = evens.cogroup(lambda v, all_: [*all_, v["v"]]).cogroup(odds, lambda v, all_: [*all_, -v["v"]])
        return cogrouped.windowed_by(windows).aggregate(list, lambda a, b: [*a, *b], materialized=how)

    expected = one_by_one(build, 6)
    assert run(build, 6, caching=False, batches=True) == expected
    assert last_rows(run(build, 6, caching=True, batches=True)) == last_rows(expected)


def test_cogrouped_emits_a_window_once_per_step():
    builder = StreamsBuilder()
    streams = [builder.stream(name).group_by_key() for name in ("a", "b")]
    cogrouped = streams[0].cogroup(lambda v, n: n + v).cogroup(streams[1], lambda v, n: n + 10 * v)
    cogrouped.aggregate(int, materialized=Materialized(value_serde=Int64Serde())).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        with driver.batch():
            for name in ("a", "b", "a"):
                driver.create_input_topic(name).pipe_input("k", 1, 1)
        assert driver.create_output_topic("out").read_key_values_to_list() == [("k", 12)]


@pytest.mark.parametrize("rocksdb", [False, True])
def test_partitions_and_tasks_give_the_same_counts(rocksdb):
    builder = StreamsBuilder()
    builder.stream("in").select_key(lambda v: v % 7).map(lambda k, v: (str(k), v)).group_by_key().count(
        materialized=Materialized(name="c")
    ).to_stream().to("out")
    with TopologyTestDriver(builder.build(), partitions={"in": 3, "out": 2}, tasks=4, rocksdb=rocksdb) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch():
            for i in range(200):
                topic.pipe_input(f"k{i}", i, i)
        driver.restart()
        for i in range(200, 210):
            topic.pipe_input(f"k{i}", i, i)
        counts = driver.create_output_topic("out").read_key_values_to_map()
        stored = {key: found.value for key, found in driver.get_store("c").all()}
        assert driver.get_store("c").get("3").value == 30
    assert counts == stored == {str(k): 30 for k in range(7)}
