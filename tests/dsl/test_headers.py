"""Headers, operator by operator: those of the record that made the result, unless the table in the semantics says otherwise."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from streams import (
    Branched,
    Joined,
    JoinWindows,
    Materialized,
    Processor,
    Record,
    Repartitioned,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    ValueTransformer,
    agg,
)
from streams.model.windows import EmitStrategy
from streams.testing import TopologyTestDriver

EVERY = Materialized(caching=False)
TEN = TimeWindows.of_size_with_no_grace(10)
NEAR = JoinWindows.of_time_difference_with_no_grace(5)


def pair(a, b):
    return [a, b]


def pair_of(values):
    return list(values.values())


class Adds(Processor):
    """Adds a header to what it got."""

    def process(self, record: Record) -> None:
        self.ctx.forward(Record(record.key, record.value, record.timestamp, (*record.headers, ("by", b"me"))))


class Same(ValueTransformer):
    def transform(self, key, value):
        return value


class Later(Processor):
    """Forwards from a punctuation, where there is no record."""

    def init(self, ctx) -> None:
        super().init(ctx)
        ctx.schedule(10, "stream_time", lambda time: ctx.forward(Record("p", time, time)))

    def process(self, record: Record) -> None:
        pass


# What is built on the streams x and y of the topics `l` and `r`; records (topic, value, time) of the key "k", each with its
# number as header; the numbers in the headers of the results.
CASES = {
    "filter, map, flat_map": (
        lambda x, y: x.filter(lambda v: v).map(lambda k, v: (k, v)).flat_map_values(lambda v: [v, v]),
        [("l", 1, 0), ("l", 2, 1)],
        [0, 0, 1, 1],
    ),
    "select_key, repartition": (
        lambda x, y: x.select_key(lambda k, v: k).repartition(Repartitioned(name="again")),
        [("l", 1, 0), ("l", 2, 1)],
        [0, 1],
    ),
    "merge": (lambda x, y: x.merge(y), [("l", 1, 0), ("r", 2, 1)], [0, 1]),
    "count": (lambda x, y: x.group_by_key().count(materialized=EVERY), [("l", 1, 0), ("l", 2, 1)], [0, 1]),
    "built-in aggregate": (
        lambda x, y: x.group_by_key().aggregate(n=agg.count(), materialized=EVERY),
        [("l", {}, 0), ("l", {}, 1)],
        [0, 1],
    ),
    "windows": (
        lambda x, y: x.group_by_key().windowed_by(TEN).count(materialized=EVERY),
        [("l", 1, 0), ("l", 2, 1)],
        [0, 1],
    ),
    "windows on close": (
        lambda x, y: (
            x.group_by_key().windowed_by(TEN).emit_strategy(EmitStrategy.on_window_close()).count(materialized=EVERY)
        ),
        [("l", 1, 0), ("l", 2, 1), ("l", 3, 20)],
        [2],
    ),
    "suppress": (
        lambda x, y: (
            x.group_by_key().windowed_by(TEN).count(materialized=EVERY).suppress(Suppressed.until_window_closes())
        ),
        [("l", 1, 0), ("l", 2, 1), ("l", 3, 20)],
        [1],
    ),
    "sliding windows": (
        lambda x, y: (
            x.group_by_key().windowed_by(SlidingWindows.of_time_difference_with_no_grace(10)).count(materialized=EVERY)
        ),
        [("l", 1, 100)],
        [0],
    ),
    "sessions": (
        lambda x, y: (
            x.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).count(materialized=EVERY)
        ),
        [("l", 1, 0), ("l", 2, 1)],
        [None, None, None],
    ),
    "stream join": (lambda x, y: x.join(y, pair, NEAR), [("l", 1, 100), ("r", 2, 101), ("l", 3, 102)], [1, 2]),
    "unmatched": (lambda x, y: x.left_join(y, pair, NEAR, StreamJoined(name="j")), [("l", 1, 100), ("r", 2, 200)], [0]),
    "join of several": (
        lambda x, y: x.join_all({"y": y, "x": x}, pair_of, NEAR),
        [("l", 1, 100), ("r", 2, 101), ("l", 3, 102)],
        [1, 2, 2, 2],
    ),
    "stream-table join": (
        lambda x, y: x.join(y.to_table(), pair),
        [("r", 1, 0), ("l", 2, 1), ("r", 3, 2), ("l", 4, 3)],
        [1, 3],
    ),
    "stream-table join with grace": (
        lambda x, y: x.join(
            y.to_table(Materialized(name="t", history_retention=100)), pair, joined=Joined(name="j", grace=5)
        ),
        [("r", 1, 0), ("l", 2, 1), ("l", 3, 20)],
        [1],
    ),
    "table-table join": (
        lambda x, y: x.to_table(EVERY).join(y.to_table(EVERY), pair),
        [("l", 1, 0), ("r", 2, 1), ("l", 3, 2)],
        [1, 2],
    ),
    "table grouping": (
        lambda x, y: x.to_table(EVERY).group_by(lambda k, v: (k, v)).count(materialized=EVERY),
        [("l", 1, 0), ("l", 2, 1)],
        [0, 1],
    ),
    "as-of join": (
        lambda x, y: x.as_of_join(y, pair, within=10, joined=StreamJoined(name="j")),
        [("r", 1, 0), ("l", 2, 1), ("l", 3, 30)],
        [1],
    ),
    "table filter, map_values": (
        lambda x, y: x.to_table(EVERY).filter(lambda v: v > 0).map_values(lambda v: v),
        [("l", 1, 0), ("l", 2, 1)],
        [0, 1],
    ),
    "table transform_values": (
        lambda x, y: x.to_table(EVERY).transform_values(Same, materialized=EVERY),
        [("l", 1, 0), ("l", 2, 1)],
        [0, 1],
    ),
    "process_values": (lambda x, y: x.process_values(Adds), [("l", 1, 0)], [[0, "me"]]),
    "split": (
        lambda x, y: x.split().branch(lambda v: v > 1, Branched("a")).no_default_branch()["a"],
        [("l", 1, 0), ("l", 2, 1)],
        [1],
    ),
    "cogroup": (
        lambda x, y: (
            x.group_by_key()
            .cogroup(lambda v, a: a + v)
            .cogroup(y.group_by_key(), lambda v, a: a + v)
            .aggregate(lambda: 0, materialized=EVERY)
        ),
        [("l", 1, 0), ("r", 2, 1)],
        [0, 1],
    ),
    "top": (
        lambda x, y: x.group_by_key().top(2, by=lambda v: v, materialized=EVERY),
        [("l", 1, 0), ("l", 2, 1)],
        [0, 1],
    ),
    "deduplicate": (lambda x, y: x.deduplicate(10), [("l", 1, 0), ("l", 1, 1)], [0]),
    "process": (lambda x, y: x.process(Adds), [("l", 1, 0)], [[0, "me"]]),
    "punctuation": (lambda x, y: x.process(Later), [("l", 1, 0), ("l", 1, 15)], [None, None]),
}


def results(program, records, *, restarts=False, one_step=False, mode="strict"):
    builder = StreamsBuilder()
    made = program(builder.stream("l"), builder.stream("r"))
    (made.to_stream() if hasattr(made, "to_stream") else made).map(lambda k, v: ("k", 1)).to("out")
    with TopologyTestDriver(builder.build(), mode=mode) as driver:
        topics = {name: driver.create_input_topic(name) for name in ("l", "r")}
        with driver.batch() if one_step else nullcontext():
            for number, (topic, value, time) in enumerate(records):
                topics[topic].pipe_input("k", value, time, headers=(("n", b"%d" % number),))
                if restarts:
                    driver.restart()
        found = []
        for record in driver.create_output_topic("out").read_records_to_list():
            values = [int(v) if name == "n" else v.decode() for name, v in record.headers]
            found.append(values if len(values) > 1 else values[0] if values else None)
        return found


@pytest.mark.parametrize("what", CASES)
def test_headers(what):
    program, records, expected = CASES[what]
    assert results(program, records) == expected
    # Whether state was restored in between makes no difference.
    assert results(program, records, restarts=True) == expected


@pytest.mark.parametrize("what", ["count", "windows", "built-in aggregate"])
def test_within_a_step_the_last_update_counts(what):
    """With caching, one result per key and step: with the headers of the update that it shows."""
    cached = {
        "count": lambda x, y: x.group_by_key().count(),
        "windows": lambda x, y: x.group_by_key().windowed_by(TEN).count(),
        "built-in aggregate": lambda x, y: x.group_by_key().aggregate(n=agg.count()),
    }
    records = [("l", {}, 0), ("l", {}, 1)]
    assert results(cached[what], records, one_step=True) == [1]


def test_within_a_step_the_last_update_of_a_cogroup_counts():
    """Whichever of its streams it comes from."""

    def program(x, y):
        both = x.group_by_key().cogroup(lambda v, a: a + v).cogroup(y.group_by_key(), lambda v, a: a + v)
        return both.aggregate(lambda: 0)

    assert results(program, [("l", 1, 0), ("r", 2, 1)], one_step=True) == [1]


def test_in_compat_mode_the_record_that_makes_it_due_gives_its_headers():
    assert results(*CASES["unmatched"][:2], mode="compat") == [1]


def test_a_join_does_not_mix_headers():
    """Kafka Streams keeps those of the record that came last; nothing of its partner's is added."""
    program = CASES["stream join"][0]
    assert results(program, [("r", 1, 100), ("l", 2, 101)]) == [1]


def test_a_join_with_a_global_table_has_the_streams():
    builder = StreamsBuilder()
    table = builder.global_table("g")
    builder.stream("l").join(table, pair, key_selector=lambda k, v: k).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("g").pipe_input("k", 1, 0, headers=(("n", b"0"),))
        driver.create_input_topic("l").pipe_input("k", 2, 1, headers=(("n", b"1"),))
        assert driver.create_output_topic("out").read_record().headers == (("n", b"1"),)


def test_a_foreign_key_join_has_those_of_the_update_that_made_it():
    def program(x, y):
        return x.to_table(Materialized(name="a")).join(
            y.to_table(Materialized(name="b")), pair, foreign_key=lambda k, v: "k", named="fk"
        )

    assert results(program, [("l", 1, 0), ("r", 2, 1), ("l", 3, 2)]) == [1, 2]


def test_what_was_dropped_keeps_its_headers_and_tells_why():
    def program(x, y):
        return x.deduplicate(10).dropped()

    ((number, *why),) = results(program, [("l", 1, 0), ("l", 1, 1)])
    assert number == 1
    assert len(why) == 2


def test_a_row_that_expires_has_none():
    def program(x, y):
        return x.to_table(Materialized(name="t", ttl=10, caching=False))

    assert results(program, [("l", 1, 0), ("l", 2, 100)]) == [0, None, 1]
