"""`join_all`: what comes out and when, what is dropped, both modes, restarts, and streams that are given twice."""

import random

import pytest

from streams import Grouped, JoinWindows, Materialized, StreamJoined, StreamsBuilder
from streams.operators.join.join_all import combinations
from streams.testing import TopologyTestDriver
from tests.properties import join_all_model
from tests.properties.model import Entry

TEN = JoinWindows.of_time_difference_with_no_grace(10)
TOPICS = {"order": "o", "payment": "p", "shipment": "s"}


def joined(builder, windows=TEN, joiner=lambda values: "".join(values.values()), **how):
    streams = {name: builder.stream(topic) for name, topic in TOPICS.items()}
    this = streams.pop("order")
    return this.join_all(streams, joiner, windows, StreamJoined(name="j", **how), this="order")


def topology(windows=TEN, **how):
    builder = StreamsBuilder()
    stream = joined(builder, windows, **how)
    stream.to("out")
    stream.dropped().to("side")
    return builder.build()


class Run:
    """A driver, and the reading ends of its topics: `out`, and `side` from its beginning."""

    def __init__(self, topology, **settings):
        self.driver = TopologyTestDriver(topology, **settings)
        self.out = self.driver.create_output_topic("out")

    @property
    def side(self):
        return self.driver.create_output_topic("side")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.close()

    def pipe(self, *records):
        """(topic, key, value, time) and perhaps headers, one by one; what comes out of all of them."""
        for topic, *record in records:
            self.driver.create_input_topic(topic).pipe_input(*record)
        return [(r.key, r.value, r.timestamp) for r in self.out.read_records_to_list()]


def test_a_result_comes_with_the_last_of_its_records():
    with Run(topology()) as run:
        assert run.pipe(("p", "a", "p", 12), ("s", "a", "s", 15), ("s", "b", "s", 15)) == []
        assert run.pipe(("o", "a", "o", 10)) == [("a", "ops", 15)]
        assert run.pipe(("p", "b", "p", 15)) == []
        assert run.pipe(("o", "b", "o", 25)) == [("b", "ops", 25)]


def test_all_pairs_must_be_near_each_other():
    """Each is within 10 of the payment, but the order is 20 away from the shipment."""
    with Run(topology(JoinWindows.of_time_difference_and_grace(10, 100))) as run:
        assert run.pipe(("o", "a", "o", 10), ("s", "a", "s", 30), ("p", "a", "p", 20)) == []
        assert run.pipe(("s", "a", "t", 20)) == [("a", "opt", 20)]
        assert run.pipe(("o", "a", "q", 20)) == [("a", "qpt", 20), ("a", "qps", 30)]


def test_results_of_one_record_come_by_the_first_streams_time_then_the_seconds():
    with Run(topology()) as run:
        early = [("o", "a", "2", 9), ("o", "a", "1", 8), ("o", "a", "3", 9), ("p", "a", "y", 10), ("p", "a", "x", 9)]
        assert run.pipe(*early) == []
        assert run.pipe(("s", "a", "-", 9)) == [
            ("a", f"{order}{payment}-", 10 if payment == "y" else 9) for order in "123" for payment in "xy"
        ]


def test_equal_records_each_count():
    with Run(topology()) as run:
        run.pipe(("o", "a", "o", 5), ("o", "a", "o", 5), ("p", "a", "p", 5), ("p", "a", "p", 5))
        run.driver.restart()
        assert run.pipe(("s", "a", "s", 5)) == [("a", "ops", 5)] * 4


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_dropped_and_why(restarts):
    with Run(topology(JoinWindows.of_time_difference_and_grace(10, 5))) as run:
        taken = [
            ("o", "a", "o", 5),
            ("s", "a", "s", 5),
            ("p", None, "x", 20),  # a null key moves time on, too
            ("p", "a", None, 20),
            ("p", "a", "p", 5),  # 20 - 10 - 5: not late
        ]
        for record in taken:
            run.driver.create_input_topic(record[0]).pipe_input(*record[1:])
            if restarts:
                run.driver.restart()
        assert run.pipe() == [("a", "ops", 5)]
        found = run.side.read_records_to_list()
        assert [(r.key, r.value, dict(r.headers)["__streams.dropped.reason"]) for r in found] == [
            (None, "x", b"null_key"),
            ("a", None, b"null_value"),
        ]
        run.driver.create_input_topic("p").pipe_input("a", "q", 4, headers=(("h", b"x"),))
        (late,) = run.side.read_records_to_list()
        assert (late.value, late.timestamp) == ("q", 4)
        assert late.headers == (
            ("h", b"x"),
            ("__streams.dropped.reason", b"late"),
            ("__streams.dropped.node", b"j-payment-join"),
        )
        assert [run.driver.dropped(reason) for reason in ("null_key", "null_value", "late")] == [1, 1, 1]
        # And a record that was in time is not met when it has ceased to be open.
        assert run.pipe(("o", "b", "o", 21), ("p", "a", "p", 11)) == []


def test_time_and_headers_are_those_of_the_newest_and_of_the_last_to_come():
    with Run(topology()) as run:
        for number, (topic, time) in enumerate((("o", 5), ("s", 9), ("p", 7))):
            run.driver.create_input_topic(topic).pipe_input("a", topic, time, headers=(("n", b"%d" % number),))
        (found,) = run.out.read_records_to_list()
        assert (found.timestamp, found.headers) == (9, (("n", b"2"),))


def test_the_joiner_may_take_the_key_and_gets_the_streams_in_order():
    def joiner(key, values):
        return [key, list(values), list(values.values())]

    with Run(topology(joiner=joiner)) as run:
        records = [("s", "a", 3, 5), ("o", "a", 1, 5), ("p", "a", 2, 5)]
        assert run.pipe(*records) == [("a", ["a", ["order", "payment", "shipment"], [1, 2, 3]], 5)]


def test_a_stream_given_twice_meets_itself():
    builder = StreamsBuilder()
    orders, payments = builder.stream("o"), builder.stream("p")
    orders.join_all({"again": orders, "payment": payments}, lambda values: "".join(values.values()), TEN).to("out")
    with Run(builder.build()) as run:
        assert run.pipe(("p", "a", "p", 0), ("o", "a", "1", 5)) == [("a", "11p", 5)]
        run.driver.restart()
        assert run.pipe(("o", "a", "2", 8)) == [("a", "21p", 8), ("a", "12p", 8), ("a", "22p", 8)]
        assert run.pipe(("o", "a", "3", 12)) == []


def test_three_times_the_same_stream():
    builder = StreamsBuilder()
    stream = builder.stream("o")
    stream.join_all({"b": stream, "c": stream}, lambda values: "".join(values.values()), TEN).to("out")
    with Run(builder.build()) as run:
        assert run.pipe(("o", "a", "1", 5)) == [("a", "111", 5)]
        found = run.pipe(("o", "a", "2", 6))
        assert sorted(value for _, value, _ in found) == ["112", "121", "122", "211", "212", "221", "222"]


def test_a_rekeyed_input_behind_state_crosses_a_repartition_topic():
    builder = StreamsBuilder()
    counts = builder.stream("o").group_by_key(Grouped(name="g")).count(materialized=Materialized(name="c"))
    by_count = counts.to_stream().select_key(lambda key, value: f"n{value}")
    streams = {"payment": builder.stream("p"), "shipment": builder.stream("s")}
    by_count.join_all(streams, lambda values: list(values.values()), TEN, StreamJoined(name="j"), this="n").to("out")
    topology = builder.build()
    assert "j-n-repartition" in topology.describe()
    partitions = {"o": 3, "p": 2, "s": 1}
    with Run(topology, partitions=partitions) as run:
        records = [("o", "a", "x", 1), ("p", "n2", "p", 2), ("s", "n2", "s", 2), ("o", "a", "x", 3)]
        assert run.pipe(*records) == [("n2", [2, "p", "s"], 3)]


@pytest.mark.slow
@pytest.mark.parametrize("rocksdb", [False, True])
def test_stores_keep_what_can_matter_and_no_more(rocksdb):
    hour = 3_600_000
    with Run(topology(JoinWindows.of_time_difference_and_grace(hour, hour)), rocksdb=rocksdb) as run:
        run.pipe(("o", "a", "o", 0), ("p", "a", "p", hour))
        run.driver.restart(wipe_state=False)
        assert run.pipe(("o", "b", "o", 2 * hour), ("s", "a", "s", hour // 2)) == [("a", "ops", hour)]
        run.pipe(*(("o", "b", "o", hours * hour) for hours in range(3, 40)))
        for name, most in (("order", 5), ("payment", 0), ("shipment", 0)):
            store = run.driver.get_window_store(f"j-{name}-join-store")
            assert len([*store.fetch_range("a", 0, 99 * hour), *store.fetch_range("b", 0, 99 * hour)]) <= most


@pytest.mark.slow
@pytest.mark.parametrize(("difference", "grace"), [(0, 0), (0, 5), (3, 0), (8, 0), (8, 5)])
def test_compat_mode_over_an_order(difference, grace):
    """It knows no late record, but forgets by each store's own time, as Kafka Streams' join of two does."""
    rng, log = random.Random(7), []
    for number in range(80):
        now = 2 * number
        log.append(Entry(rng.choice("ops"), 0, rng.choice("ab"), {"v": number}, max(0, now - rng.randrange(24))))
    windows = JoinWindows.of_time_difference_and_grace(difference, grace)
    made = topology(windows, joiner=lambda values: [value["v"] for value in values.values()])
    with Run(made, mode="compat") as run:
        for entry in log:
            run.driver.create_input_topic(entry.topic).pipe_input(entry.key, entry.value, entry.time)
            if rng.random() < 0.2:
                run.driver.restart()
        wanted, late = join_all_model.with_late(log, TOPICS, difference, grace, compat=True)
        assert run.pipe() == wanted
        assert run.driver.dropped("late") == late == 0
        assert wanted or difference == 0


def test_compat_mode_takes_a_late_record_of_a_slow_store():
    with Run(topology(), mode="compat") as run:
        assert run.pipe(("o", "a", "o", 5), ("p", "a", "p", 5), ("o", "b", "x", 15)) == []
        assert run.pipe(("s", "c", "y", 1000), ("s", "a", "s", 5)) == [("a", "ops", 5)]
        assert run.driver.dropped("late") == 0


def test_idle_time_makes_records_late():
    with Run(topology(), idle_timeout_ms=100) as run:
        assert run.pipe(("o", "a", "o", 5), ("p", "a", "p", 5)) == []
        run.driver.advance_wall_clock_time(100)
        run.driver.restart()
        assert run.pipe(("s", "a", "s", 5)) == []
        assert run.driver.dropped("late") == 1


def test_a_failing_joiner_takes_its_record_along_and_nothing_else():
    def joiner(values):
        if values["shipment"] == "bad":
            raise ValueError("bad")
        return "".join(values.values())

    with Run(topology(joiner=joiner), processing="skip") as run:
        found = run.pipe(("o", "a", "o", 5), ("p", "a", "p", 5), ("s", "a", "bad", 5), ("s", "a", "s", 5))
        assert found == [("a", "ops", 5)]
        assert run.pipe(("o", "a", "q", 5)) == [("a", "qps", 5)]


def test_combinations():
    def times(lists, span, at):
        rows = [[(time, None) for time in one] for one in lists]
        return [tuple(time for time, _ in choice) for choice in combinations(rows, span, at, at)]

    assert times([], 5, 0) == [()]
    assert times([[1, 2], []], 5, 0) == []
    assert times([[0, 6, 10], [3, 9, 15]], 5, 5) == [(0, 3), (6, 3), (6, 9), (10, 9)]
    assert times([[5, 5], [5], [5, 5]], 0, 5) == [(5, 5, 5)] * 4
