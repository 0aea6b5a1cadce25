"""What a processor's stores can do: all methods of Kafka Streams' stores, and nothing of the engine's own."""

from datetime import datetime, timedelta, timezone

import pytest

from streams import (
    Int64Serde,
    Processor,
    Record,
    Stores,
    StreamsBuilder,
    StringSerde,
    TopologyError,
    ValueAndTimestamp,
    Window,
    Windowed,
)
from streams.testing import TopologyTestDriver

SERDES = StringSerde(), Int64Serde()
STORES = {
    "plain": Stores.key_value_store("plain", *SERDES),
    "table": Stores.timestamped_key_value_store("table", *SERDES),
    "windows": Stores.window_store("windows", *SERDES, retention=1000),
    "duplicates": Stores.window_store("duplicates", *SERDES, retention=1000, retain_duplicates=True),
    "windowed table": Stores.timestamped_window_store("windowed_table", *SERDES, retention=1000),
    "sessions": Stores.session_store("sessions", *SERDES, retention=1000),
    "versions": Stores.versioned_key_value_store("versions", *SERDES, history_retention=1000),
}


def found_by(store, action, before=(), timestamp=7):
    """What `action(store)` gives in `process` of a record at `timestamp`, each action before it in a micro-batch of its own."""
    given, actions = [], [*before, action]

    class Doing(Processor):
        def process(self, record):
            result = actions[record.value](self.ctx.store(store.name))
            given.append(list(result) if hasattr(result, "__next__") else result)

    builder = StreamsBuilder().add_state_store(store)
    builder.stream("in").process(Doing, [store.name]).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for number in range(len(actions)):
            driver.create_input_topic("in").pipe_input("a", number, timestamp)
    return given[-1]


def filled(store):
    store.put_all({"a": 1, "b": 2})
    store.put_all([("ba", 3), ("c", 4)])


ALL = [("a", 1), ("b", 2), ("ba", 3), ("c", 4)]


@pytest.mark.parametrize(
    ("action", "found"),
    [
        (lambda s: s.get("b"), 2),
        (lambda s: s.get("x"), None),
        (lambda s: s.all(), ALL),
        (lambda s: s.reverse_all(), ALL[::-1]),
        (lambda s: s.all(reverse=True), ALL[::-1]),
        (lambda s: s.range("b", "ba"), ALL[1:3]),
        (lambda s: s.range("b", None), ALL[1:]),
        (lambda s: s.range(upper="b"), ALL[:2]),
        (lambda s: s.reverse_range("b", "ba"), ALL[2:0:-1]),
        (lambda s: s.prefix_scan("b"), ALL[1:3]),
        (lambda s: s.prefix_scan(b"b"), ALL[1:3]),
        (lambda s: s.prefix_scan("b", StringSerde()), ALL[1:3]),
        (lambda s: s.prefix(b"ba"), ALL[2:3]),
        (lambda s: s.approximate_num_entries(), 4),
        (lambda s: (s.put_if_absent("b", 9), s.get("b")), (2, 2)),
        (lambda s: (s.put_if_absent("x", 9), s.get("x")), (None, 9)),
        (lambda s: (s.delete("b"), s.get("b"), s.delete("b")), (2, None, None)),
        (lambda s: [s.delete(key) for key, _ in s.all()] + [s.approximate_num_entries()], [1, 2, 3, 4, 0]),
        (lambda s: (s.put("b", None), list(s.all())), (None, [ALL[0], *ALL[2:]])),
    ],
)
def test_a_key_value_store(action, found):
    assert found_by(STORES["plain"], action, [filled]) == found


AT_7 = [(key, ValueAndTimestamp(value, 7)) for key, value in ALL]


@pytest.mark.parametrize(
    ("action", "found"),
    [
        (lambda s: s.get("b"), ValueAndTimestamp(2, 7)),
        (lambda s: s.all(), AT_7),
        (lambda s: s.reverse_range("b", "c"), AT_7[:0:-1]),
        (lambda s: s.prefix_scan("b"), AT_7[1:3]),
        (lambda s: s.approximate_num_entries(), 4),
        (lambda s: (s.put("b", ValueAndTimestamp(5, 3)), s.get("b")), (None, ValueAndTimestamp(5, 3))),
        (lambda s: (s.put("b", 5, 4), s.get("b")), (None, ValueAndTimestamp(5, 4))),
        (lambda s: (s.put("b", 5), s.get("b")), (None, ValueAndTimestamp(5, 7))),
        (lambda s: (s.put_if_absent("x", ValueAndTimestamp(5, 3)), s.get("x")), (None, ValueAndTimestamp(5, 3))),
        (lambda s: (s.put_if_absent("b", 9), s.get("b")), (ValueAndTimestamp(2, 7), ValueAndTimestamp(2, 7))),
        (lambda s: (s.delete("b"), s.get("b")), (ValueAndTimestamp(2, 7), None)),
    ],
)
def test_a_timestamped_key_value_store(action, found):
    assert found_by(STORES["table"], action, [filled]) == found


def windows_filled(store):
    for key, value, start in (("a", 1, 10), ("b", 2, 10), ("a", 3, 20), ("a", 4, 90_010)):
        store.put(key, value, start)


@pytest.mark.parametrize(
    ("action", "found"),
    [
        (lambda s: s.fetch("a", 20), 3),
        (lambda s: s.fetch("a", 15), None),
        (lambda s: s.fetch("a", timedelta(milliseconds=20)), 3),
        (lambda s: s.fetch("a", 10, 20), [(10, 1), (20, 3)]),
        (lambda s: s.fetch_range("a", 10, 19), [(10, 1)]),
        (lambda s: s.backward_fetch("a", 0, 100_000), [(90_010, 4), (20, 3), (10, 1)]),
        (lambda s: s.fetch_all(10, 20), [("a", 10, 1), ("b", 10, 2), ("a", 20, 3)]),
        (lambda s: s.backward_fetch_all(10, 20), [("a", 20, 3), ("b", 10, 2), ("a", 10, 1)]),
        (lambda s: s.all(), [("a", 10, 1), ("b", 10, 2), ("a", 20, 3), ("a", 90_010, 4)]),
        (lambda s: s.backward_all(), [("a", 90_010, 4), ("a", 20, 3), ("b", 10, 2), ("a", 10, 1)]),
        (lambda s: (s.put("a", None, 20), s.fetch("a", 20)), (None, None)),
        (lambda s: (s.put("x", 5), s.fetch("x", 7)), (None, 5)),
        (lambda s: (s.put("x", 5, datetime(1970, 1, 1, 0, 1, tzinfo=timezone.utc)), s.fetch("x", 60_000)), (None, 5)),
    ],
)
def test_a_window_store(action, found):
    store = Stores.window_store("windows", *SERDES, retention=100_000)
    assert found_by(store, action, [windows_filled]) == found


@pytest.mark.parametrize(
    ("action", "found"),
    [
        (lambda s: s.fetch("a", 10), 1),
        (lambda s: s.fetch("a", 0, 50), [(10, 1), (10, 2), (20, 3)]),
        (lambda s: s.backward_fetch("a", 0, 50), [(20, 3), (10, 2), (10, 1)]),
        (lambda s: s.all(), [("a", 10, 1), ("a", 10, 2), ("a", 20, 3)]),
    ],
)
def test_a_window_store_with_duplicates(action, found):
    def fill(store):
        for value, start in ((1, 10), (2, 10), (3, 20)):
            store.put("a", value, start)

    assert found_by(STORES["duplicates"], action, [fill]) == found


@pytest.mark.parametrize(
    ("put", "found"),
    [
        (lambda s: s.put("a", 1, 10), ValueAndTimestamp(1, 7)),
        (lambda s: s.put("a", 1, 10, 12), ValueAndTimestamp(1, 12)),
        (lambda s: s.put("a", ValueAndTimestamp(1, 13), 10), ValueAndTimestamp(1, 13)),
        (lambda s: s.put("a", None, 10), None),
    ],
)
@pytest.mark.parametrize("read", [lambda s: s.fetch("a", 10), lambda s: dict(s.fetch("a", 0, 99)).get(10)])
def test_a_timestamped_window_store(put, found, read):
    assert found_by(STORES["windowed table"], read, [put]) == found


def sessions_filled(store):
    store.put(Windowed("a", Window(0, 10)), 1)
    store.put("a", 20, 30, 2)
    store.put(Windowed("b", Window(5, 25)), 3)


FIRST, SECOND = (Window(0, 10), 1), (Window(20, 30), 2)
EVERY = [(Windowed("a", FIRST[0]), 1), (Windowed("b", Window(5, 25)), 3), (Windowed("a", SECOND[0]), 2)]


@pytest.mark.parametrize(
    ("action", "found"),
    [
        (lambda s: s.fetch("a"), [FIRST, SECOND]),
        (lambda s: s.backward_fetch("a"), [SECOND, FIRST]),
        (lambda s: s.fetch("a", 20, 30), 2),
        (lambda s: s.fetch_session("a", 20, 30), 2),
        (lambda s: s.fetch_session("a", 20, 31), None),
        (lambda s: s.find_sessions("a", 11, 20), [SECOND]),
        (lambda s: s.find_sessions("a", timedelta(0), 19), [FIRST]),
        (lambda s: s.backward_find_sessions("a", 10, 20), [SECOND, FIRST]),
        (lambda s: s.all(), EVERY),
        (lambda s: s.backward_all(), EVERY[::-1]),
        (lambda s: s.fetch_all(11, 25), EVERY[1:2]),
        (lambda s: (s.remove(Windowed("a", Window(0, 10))), list(s.fetch("a"))), (None, [SECOND])),
        (lambda s: (s.put(Windowed("a", Window(0, 10)), None), list(s.fetch("a"))), (None, [SECOND])),
    ],
)
def test_a_session_store(action, found):
    assert found_by(STORES["sessions"], action, [sessions_filled]) == found


def versions_filled(store):
    store.put("a", 1, 10)
    store.put("a", 2, 20)


@pytest.mark.parametrize(
    ("action", "found"),
    [
        (lambda s: s.get("a"), ValueAndTimestamp(2, 20)),
        (lambda s: s.get("a", 15), ValueAndTimestamp(1, 10)),
        (lambda s: s.get("a", datetime.fromtimestamp(0.015, timezone.utc)), ValueAndTimestamp(1, 10)),
        (lambda s: s.get("a", 9), None),
        (lambda s: (s.put("a", 0), s.get("a", 9)), (10, ValueAndTimestamp(0, 7))),
        (
            lambda s: (s.delete("a", 15), s.get("a", 16), s.get("a")),
            (ValueAndTimestamp(1, 10), None, ValueAndTimestamp(2, 20)),
        ),
        (lambda s: (s.delete("a", 30), s.get("a")), (ValueAndTimestamp(2, 20), None)),
    ],
)
def test_a_versioned_store(action, found):
    assert found_by(STORES["versions"], action, [versions_filled]) == found


@pytest.mark.parametrize("name", STORES)
def test_a_store_shows_nothing_of_the_engine(name):
    shown = {name for name in found_by(STORES[name], dir) if not name.startswith("_")}
    engine = {
        "codec",
        "entries",
        "entry",
        "forwarded",
        "pending",
        "updates",
        "use_cache",
        "write",
        "hold_update",
        "take_updates",
    }
    assert shown & engine == set()


def test_a_store_says_what_it_is():
    assert found_by(STORES["plain"], repr) == "KeyValueStore('plain')"


@pytest.mark.parametrize(
    ("store", "action", "said"),
    [
        (
            "plain",
            lambda s: s.prefix_scan(5),
            r"prefix_scan of the store 'plain' takes bytes or text, not 5.*Int64Serde\(\)",
        ),
        (
            "windows",
            lambda s: s.put("a", 5, "value"),
            r"'windows' takes put\(key, value, window_start\), and 'value' is not a time",
        ),
        ("windows", lambda s: s.put("a", 5, -1), r"'windows' takes no window that starts before 1970: -1 ms"),
        ("sessions", lambda s: s.put("a", 5), r"takes a session as Windowed\(key, Window\(start, end\)\), not 'a'"),
        ("sessions", lambda s: s.put("a", 9, 5, 1), r"'sessions' takes no session from 9 to 5 ms"),
    ],
)
def test_a_call_that_cannot_be_is_refused(store, action, said):
    with pytest.raises(TopologyError, match=said):
        found_by(STORES[store], action)


def test_a_punctuation_writes_with_its_own_time():
    class Writing(Processor):
        def init(self, ctx):
            super().init(ctx)
            ctx.schedule(timedelta(milliseconds=10), "STREAM_TIME", lambda time: ctx.store("table").put("tick", 1))

        def process(self, record):
            found = self.ctx.store("table").get("tick")
            self.ctx.forward(record.with_value(found and found.timestamp))

    builder = StreamsBuilder().add_state_store(STORES["table"])
    builder.stream("in").process(Writing, ["table"]).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for time in (5, 6, 37, 38):
            driver.create_input_topic("in").pipe_input("a", 1, time)
        assert driver.create_output_topic("out").read_values_to_list() == [None, 5, 5, 37]


def test_what_is_written_outside_of_process_needs_a_time():
    class Early(Processor):
        def init(self, ctx):
            super().init(ctx)
            ctx.store("plain").put("a", 1)

        def process(self, record):
            pass

    builder = StreamsBuilder().add_state_store(STORES["plain"])
    builder.stream("in").process(Early, ["plain"]).to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(TopologyError, match=r"outside of process .* put\(key, value, timestamp=ctx.stream_time\)"),
    ):
        driver.create_input_topic("in").pipe_input("a", 1, 1)


@pytest.mark.parametrize("kind", ["windows", "sessions"])
def test_a_store_lets_go_of_what_is_older_than_its_retention(kind):
    """Both keep a minute at least: a segment goes as a whole."""
    minute, store = 60_000, STORES[kind]

    def put(number):
        start = number * minute
        if kind == "windows":
            return lambda s: s.put("a", number, start)
        return lambda s: s.put(Windowed("a", Window(start, start)), number)

    left = found_by(store, lambda s: [row[-1] for row in s.all()], [put(number) for number in range(5)])
    assert left == [3, 4]


def test_a_record_takes_what_people_write_for_times_and_headers():
    class Making(Processor):
        def process(self, record):
            self.ctx.forward(Record("a", 1, datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc), {"h": "x"}))
            self.ctx.forward(record.with_timestamp(timedelta(seconds=2)).with_headers([("h", None)]))
            self.ctx.forward(record)

    builder = StreamsBuilder()
    builder.stream("in").process(Making).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("a", 2, 5, headers=(("g", b"y"),))
        rows = driver.create_output_topic("out").read_records_to_list()
    assert [(row.value, row.timestamp, row.headers) for row in rows] == [
        (1, 1000, (("h", b"x"),)),
        (2, 2000, (("h", None),)),
        (2, 5, (("g", b"y"),)),
    ]
