"""Processors of users: stores by name, schedules, headers, named children, keys, over restarts."""

import pytest

from streams import (
    Consumed,
    Int64Serde,
    JsonSerde,
    Materialized,
    Processor,
    Produced,
    Record,
    StreamsBuilder,
    StringSerde,
    TopologyBuilder,
    TopologyError,
)
from streams.dsl.stores import Stores
from streams.testing import TopologyTestDriver


class CountSeen(Processor):
    """Counts records per key; every 10 ms of stream time, and every 100 ms of the clock, it forwards all counts."""

    def init(self, ctx):
        super().init(ctx)
        self.counts = ctx.store("counts")
        ctx.schedule(10, "stream_time", lambda time: self.forward_all("stream", time))
        ctx.schedule(100, "wall_clock", lambda time: self.forward_all("clock", time))

    def process(self, record):
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1, record.timestamp)
        self.ctx.state["records"] = self.ctx.state.get("records", 0) + 1

    def forward_all(self, why, time):
        for key, count in self.counts.all():
            self.ctx.forward(Record(key, [why, count, self.ctx.state["records"]], time))


def counting_topology():
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("counts", StringSerde(), Int64Serde()))
    builder.stream("in").process(CountSeen, ["counts"], "count-seen").to("out")
    return builder.build()


@pytest.mark.parametrize("restarts", [False, True])
def test_schedules_and_state_survive_restarts(restarts):
    with TopologyTestDriver(counting_topology(), start_ms=1000) as driver:
        topic, out = driver.create_input_topic("in"), driver.create_output_topic("out")

        def then(restarting=restarts):
            if restarting:
                driver.restart(wipe_state=True)
            return [(r.key, *r.value, r.timestamp) for r in out.read_records_to_list()]

        topic.pipe_input("a", 1, 5)
        assert then() == [("a", "stream", 1, 1, 5)]  # first due at 0, after the record was processed
        topic.pipe_input("b", 1, 9)
        assert then() == []
        topic.pipe_input("a", 1, 37)
        assert then() == [("a", "stream", 2, 3, 37), ("b", "stream", 1, 3, 37)]  # one call for all that was missed
        topic.pipe_input("a", 1, 39)
        driver.advance_wall_clock_time(99)
        assert then() == []
        driver.advance_wall_clock_time(1)
        assert then() == [("a", "clock", 3, 4, 1100), ("b", "clock", 1, 4, 1100)]
        assert driver.get_store("counts").get("a") == 3


def test_the_clock_counts_from_the_start():
    with TopologyTestDriver(counting_topology()) as driver:
        driver.advance_wall_clock_time(60)
        driver.create_input_topic("in").pipe_input("a", 1, 5)
        driver.advance_wall_clock_time(40)
        rows = driver.create_output_topic("out").read_values_to_list()
        assert [row[0] for row in rows] == ["stream", "clock"]


class Route(Processor):
    """Sends big values to one child, with a header, and everything to all children."""

    def process(self, record):
        if record.value > 10:
            self.ctx.forward(
                Record(record.key, record.value, record.timestamp, (*record.headers, ("big", b"1"))), "big"
            )
        self.ctx.forward(record.with_key("all"))


def test_named_children_headers_and_new_keys():
    builder = StreamsBuilder()
    routed = builder.stream("in").process(Route)
    routed.filter(lambda value: True, "big").to("big")
    routed.group_by_key().count(materialized=Materialized(caching=False)).to_stream().to("counts")
    topology = builder.build()
    assert "KSTREAM-REPARTITION" in topology.describe()  # behind a processor keys may lie in the wrong task
    with TopologyTestDriver(topology, partitions={"in": 3}) as driver:
        for key, value in (("a", 5), ("b", 50)):
            driver.create_input_topic("in").pipe_input(key, value, 1, headers=(("h", b"x"),))
        big = driver.create_output_topic("big").read_records_to_list()
        assert [(r.key, r.value, r.headers) for r in big if r.key == "b"] == [
            ("b", 50, (("h", b"x"), ("big", b"1"))),
        ]
        assert [r.value for r in big if r.key == "all"] == [5, 50]
        assert driver.create_output_topic("counts").read_key_values_to_list() == [("all", 1), ("all", 2)]


class Enrich(Processor):
    """Adds how often the key was seen; changes the key of the value 13."""

    def init(self, ctx):
        super().init(ctx)
        self.seen = ctx.store("seen")

    def process(self, record):
        held = self.seen.get(record.key)
        self.seen.put(record.key, (0 if held is None else held.value) + 1, record.timestamp)
        key = "other" if record.value == 13 else record.key
        self.ctx.forward(Record(key, [record.value, self.seen.get(record.key).value], record.timestamp))


def test_process_values_leaves_the_key():
    builder = StreamsBuilder()
    builder.add_state_store(Stores.timestamped_key_value_store("seen", StringSerde(), Int64Serde()))
    values = builder.stream("in").process_values(Enrich, ["seen"])
    values.group_by_key().count().to_stream().to("out")
    topology = builder.build()
    assert "repartition" not in topology.describe()
    with TopologyTestDriver(topology) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", 1, 1)
        with pytest.raises(TopologyError, match="process_values cannot change keys"):
            topic.pipe_input("a", 13, 2)


def test_two_processors_share_a_store():
    builder = StreamsBuilder()
    builder.add_state_store(Stores.timestamped_key_value_store("seen", StringSerde(), Int64Serde()))
    for name in ("left", "right"):
        builder.stream(name).process(Enrich, ["seen"], f"enrich-{name}").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for name in ("left", "right", "left"):
            driver.create_input_topic(name).pipe_input("a", 1, 1)
        assert driver.create_output_topic("out").read_values_to_list() == [[1, 1], [1, 2], [1, 3]]


class AsOf(Processor):
    """Keeps versions; tells the value that held 10 ms before each record."""

    def process(self, record):
        store = self.ctx.store("versions")
        store.put(record.key, record.value, record.timestamp)
        found = store.get(record.key, record.timestamp - 10)
        self.ctx.forward(record.with_value(None if found is None else [found.value, found.timestamp]))


def test_a_versioned_store():
    builder = StreamsBuilder()
    builder.add_state_store(
        Stores.versioned_key_value_store("versions", StringSerde(), Int64Serde(), history_retention=100)
    )
    builder.stream("in", Consumed(value_serde=Int64Serde())).process(AsOf, ["versions"]).to(
        "out", Produced(value_serde=JsonSerde())
    )
    with TopologyTestDriver(builder.build()) as driver:
        for value, time in ((1, 5), (2, 20), (3, 12), (4, 30)):
            driver.create_input_topic("in").pipe_input("a", value, time)
            driver.restart()
        assert driver.create_output_topic("out").read_values_to_list() == [None, [1, 5], None, [2, 20]]


def test_window_and_session_stores():
    class Keep(Processor):
        def process(self, record):
            windows, sessions = self.ctx.store("windows"), self.ctx.store("sessions")
            windows.put(record.key, record.value, record.timestamp)
            sessions.put(record.key, record.timestamp, record.timestamp + 5, record.value)
            at = [[*row] for row in windows.fetch_range(record.key, 0, 100)]
            found = [at, [[[*session], value] for session, value in sessions.find_sessions(record.key, 0, 100)]]
            self.ctx.forward(record.with_value(found))

    builder = StreamsBuilder()
    serdes = StringSerde(), Int64Serde()
    builder.add_state_store(Stores.window_store("windows", *serdes, retention=1000))
    builder.add_state_store(Stores.kept(Stores.session_store("sessions", *serdes, retention=1000), persistent=False))
    builder.stream("in").process(Keep, ["windows", "sessions"]).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for timestamp in (3, 40):
            driver.create_input_topic("in").pipe_input("a", timestamp, timestamp)
        driver.create_input_topic("in").pipe_input("b", 1, 50)
        first, second, other = driver.create_output_topic("out").read_values_to_list()
    assert first == [[[3, 3]], [[[3, 8], 3]]]
    assert second == [[[3, 3], [40, 40]], [[[3, 8], 3], [[40, 45], 40]]]
    assert other == [[[50, 1]], [[[50, 55], 1]]]


def test_process_needs_a_supplier_of_processors() -> None:
    with pytest.raises(TopologyError, match="a supplier of processors"):
        StreamsBuilder().stream("in").process(Route())


def test_process_needs_an_existing_store() -> None:
    with pytest.raises(TopologyError, match="store 'missing', which does not exist"):
        StreamsBuilder().stream("in").process(Route, ["missing"])


def test_two_processors_of_one_name_are_refused() -> None:
    stream = StreamsBuilder().stream("in")
    stream.process(Route)
    with pytest.raises(TopologyError, match="Two nodes are called"):
        stream.process(Route)


def test_two_stores_of_one_name_are_refused() -> None:
    store = Stores.key_value_store("s", StringSerde(), Int64Serde())
    with pytest.raises(TopologyError, match="Two stores are called 's'"):
        StreamsBuilder().add_state_store(store).add_state_store(store)


class Astray(Processor):
    def process(self, record):
        if record.value == "store":
            self.ctx.store("nowhere")
        self.ctx.forward(record, "nobody")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("store", r"'astray' asks for the store 'nowhere', which is not connected to it.* It has: none"),
        ("child", r"'astray' forwards to 'nobody', which is not a child of it. It has: out"),
    ],
)
def test_a_name_that_is_unknown_is_no_records_fault(value, told):
    builder = TopologyBuilder().add_source("in", "in").add_processor("astray", Astray, ["in"])
    # The task has the store, but the order of its nodes depends on who uses it.
    builder.add_processor("other", Astray, ["in"])
    builder.add_state_store(Stores.key_value_store("nowhere", StringSerde(), Int64Serde()), "other")
    topology = builder.add_sink("out", "out", ["astray"]).build()
    with TopologyTestDriver(topology, processing="skip") as driver, pytest.raises(TopologyError, match=told):
        driver.create_input_topic("in").pipe_input("a", value, 1)


class Ticking(Processor):
    """Forwards each record with stream time, and a tick for each ten milliseconds of it."""

    def init(self, ctx):
        super().init(ctx)
        ctx.schedule(10, "stream_time", lambda time: ctx.forward(Record("tick", time, time)))

    def process(self, record):
        self.ctx.forward(record.with_value(self.ctx.stream_time))


@pytest.mark.parametrize("counted", [False, True])
def test_stream_time_goes_on_record_by_record_beside_an_aggregation(counted):
    """Whatever reads the same records, in one step: each is processed by all, then time is told."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    grouped = stream.group_by_key()
    _ = grouped.count() if counted else grouped.reduce(lambda a, b: b)
    stream.process(Ticking).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        with driver.batch():
            for time in (5, 15, 27):
                driver.create_input_topic("in").pipe_input("a", 1, time)
        rows = driver.create_output_topic("out").read_key_values_to_list()
    assert rows == [("a", 5), ("tick", 5), ("a", 15), ("tick", 15), ("a", 27), ("tick", 27)]


class SchedulingLate(Processor):
    """Schedules when a record comes, as Kafka Streams allows: this object is gone after the step."""

    def process(self, record):
        self.ctx.schedule(10, "wall_clock", lambda time: None)


def test_a_schedule_that_would_be_forgotten_is_refused():
    builder = StreamsBuilder()
    builder.stream("in").process(SchedulingLate).to("out")
    with (
        TopologyTestDriver(builder.build(), processing="skip") as driver,
        pytest.raises(TopologyError, match="in init"),
    ):
        driver.create_input_topic("in").pipe_input("a", 1, 1)
