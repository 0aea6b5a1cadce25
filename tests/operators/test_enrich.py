"""`enrich`: calls for many records, in order, within bounds; what becomes of records whose calls fail."""

import asyncio
import inspect
import threading
import time
from functools import partial
from typing import ClassVar

import pytest

from streams import EnrichError, StreamsBuilder, TopologyError
from streams.errors import RecordFailedError
from streams.testing import TopologyTestDriver


def rows(driver, topic="out"):
    return [(r.key, r.value, r.timestamp) for r in driver.create_output_topic(topic).read_records_to_list()]


def pipe(driver, values, topic="in", partition=None):
    with driver.batch():
        for at, value in enumerate(values):
            driver.create_input_topic(topic).pipe_input(f"k{value}", value, at, partition=partition)


def topology(function, **how):
    builder = StreamsBuilder()
    builder.stream("in").enrich(function, **how).to("out")
    return builder.build()


class Failing:
    """A batch function that remembers its calls, and fails for some values, or some number of times."""

    def __init__(self, bad=(), times=0):
        self.bad, self.times = set(bad), times
        self.calls = []

    def __call__(self, values):
        self.calls.append(list(values))
        if self.times or self.bad & set(values):
            self.times -= bool(self.times)
            raise ConnectionError("refused")
        return [value * 10 for value in values]


class InFlight:
    """An async function that counts how many of its calls are under way, and lets them end in another order."""

    def __init__(self):
        self.now = self.most = 0

    async def __call__(self, value):
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(7 - value % 7):
            await asyncio.sleep(0)
        self.now -= 1
        return value * 10


def test_key_time_and_headers_stay_and_nulls_are_values():
    def looked_up(keys, values):
        return [None if value == 1 else [key, value] for key, value in zip(keys, values, strict=True)]

    with TopologyTestDriver(topology(looked_up, batch_size=2)) as driver:
        topic = driver.create_input_topic("in")
        with driver.batch():
            topic.pipe_input("a", None, 5, headers=(("h", b"x"),))
            topic.pipe_input(None, 2, 4)
            topic.pipe_input("c", 1, 6)
        found = driver.create_output_topic("out").read_records_to_list()
    assert [(r.key, r.value, r.timestamp) for r in found] == [
        ("a", ["a", None], 5),
        (None, [None, 2], 4),
        ("c", None, 6),
    ]
    assert found[0].headers == (("h", b"x"),)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 100])
def test_calls_are_for_no_more_than_the_batch_size(batch_size):
    function = Failing()
    with TopologyTestDriver(topology(function, batch_size=batch_size)) as driver:
        pipe(driver, range(20))
        assert [value for _, value, _ in rows(driver)] == [value * 10 for value in range(20)]
    assert [len(call) for call in function.calls[:-1]] == [batch_size] * (len(function.calls) - 1)
    assert [value for call in function.calls for value in call] == list(range(20))


def test_async_calls_overlap_up_to_the_concurrency_and_keep_the_order():
    function = InFlight()
    with TopologyTestDriver(topology(function, concurrency=5)) as driver:
        pipe(driver, range(100))
        assert rows(driver) == [(f"k{value}", value * 10, value) for value in range(100)]
    assert function.most == 5


def test_async_batches():
    sizes, now, most = [], 0, 0

    async def function(keys, values):
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0.001 * (values[0] % 3))
        sizes.append(len(values))
        now -= 1
        return tuple(f"{key}={value}" for key, value in zip(keys, values, strict=True))

    with TopologyTestDriver(topology(function, batch_size=4, concurrency=3)) as driver:
        pipe(driver, range(50))
        assert [value for _, value, _ in rows(driver)] == [f"k{value}={value}" for value in range(50)]
    assert (max(sizes), sum(sizes), most) == (4, 50, 3)


def test_what_the_function_gives_must_be_one_result_for_each_value():
    for gives, told in (
        (lambda values: values[1:], "gave 2 results"),
        (lambda values: "abc", "gave a str"),
        (lambda values: InFlight()(1), "something to await: write it as `async def`"),
    ):
        how = {"processing": "skip"}  # it is no record's fault
        with TopologyTestDriver(topology(gives, batch_size=3), **how) as driver:
            with pytest.raises(EnrichError, match=told) as raised:
                pipe(driver, range(7))
            assert "3 values (in-0, offsets 0 to 2)" in str(raised.value)
            assert "KSTREAM-ENRICH-in" in str(raised.value)


def test_retries_with_a_longer_wait_each_time(monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    function = Failing(times=3)
    with TopologyTestDriver(topology(function, batch_size=5, retries=3, backoff=50)) as driver:
        pipe(driver, range(5))
        assert len(rows(driver)) == 5
        counters = driver.counts()
    assert waits == [0.05, 0.1, 0.2]
    assert len(function.calls) == 4
    node = "KSTREAM-ENRICH-in"
    assert {name: counters[f"{name}:{node}"] for name in ("calls", "retries", "failures", "in", "out")} == {
        "calls": 4,
        "retries": 3,
        "failures": 3,
        "in": 5,
        "out": 5,
    }


def test_the_record_that_fails_is_named_and_the_step_can_be_repeated():
    function = Failing(bad=[5])
    with TopologyTestDriver(topology(function, batch_size=4, retries=1, backoff=0)) as driver:
        with pytest.raises(RecordFailedError) as raised:
            pipe(driver, range(10))
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("in", 0, 5)
        assert (raised.value.key, raised.value.node) == (b"k5", "KSTREAM-ENRICH-in")
        assert "ConnectionError: refused" in str(raised.value)
        assert isinstance(raised.value.__cause__.__cause__, ConnectionError)
        assert rows(driver) == []
        function.bad.clear()
        driver.advance_wall_clock_time(1)
        assert [value for _, value, _ in rows(driver)] == [value * 10 for value in range(10)]


def test_policies_take_single_records():
    function = Failing(bad=[2, 5])
    settings = {"processing": "dlq", "dead_letter_topic": "letters"}
    with TopologyTestDriver(topology(function, batch_size=4), **settings) as driver:
        pipe(driver, range(8))
        assert [value for _, value, _ in rows(driver)] == [0, 10, 30, 40, 60, 70]
        letters = driver.create_output_topic("letters").read_records_to_list()
        assert [(letter.key, letter.value) for letter in letters] == [(b"k2", b"2"), (b"k5", b"5")]
        assert dict(letters[0].headers)["__streams.errors.offset"] == b"2"
    # What the bad record was found in is called for again without it: together, not one by one.
    assert function.calls[-1] == [6, 7]


def test_dropped_records_are_counted_and_have_a_side_stream():
    async def function(value):
        if value == 3:
            await asyncio.sleep(60)
        if value % 4 == 1:
            raise ValueError(value)
        return value * 10

    builder = StreamsBuilder()
    enriched = builder.stream("in").enrich(function, timeout=20, on_error="drop", named="lookup")
    enriched.to("out")
    enriched.dropped().map_values(lambda value: ["dropped", value]).to("side")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, range(8))
        assert [value for _, value, _ in rows(driver)] == [0, 20, 40, 60, 70]
        side = driver.create_output_topic("side").read_records_to_list()
        assert [(r.key, r.value, r.timestamp, dict(r.headers)["__streams.dropped.reason"].decode()) for r in side] == [
            ("k1", ["dropped", 1], 1, "call_failed"),
            ("k3", ["dropped", 3], 3, "timeout"),
            ("k5", ["dropped", 5], 5, "call_failed"),
        ]
        assert dict(side[0].headers)["__streams.dropped.node"] == b"lookup"
        assert (driver.dropped("call_failed"), driver.dropped("timeout")) == (2, 1)


def test_a_function_may_say_what_becomes_of_a_failure():
    function = Failing(bad=[2])
    how = {"batch_size": 3, "on_error": lambda key, value, error: [key, value, type(error).__name__]}
    with TopologyTestDriver(topology(function, **how)) as driver:
        pipe(driver, range(4))
        assert [value for _, value, _ in rows(driver)] == [0, 10, ["k2", 2, "ConnectionError"], 30]


def test_a_timeout_is_named():
    async def function(value):
        await asyncio.sleep(60)

    with (
        TopologyTestDriver(topology(function, timeout=10, retries=1, backoff=0)) as driver,
        pytest.raises(RecordFailedError, match="no answer within 10 ms") as raised,
    ):
        pipe(driver, [7])
    assert raised.value.key == b"k7"


class Client:
    """Made once, in the event loop of its calls, and closed."""

    made: ClassVar = []

    def __init__(self, factor=10):
        self.factor, self.loop, self.closed = factor, asyncio.get_running_loop(), False
        self.made.append(self)

    async def __call__(self, key, value):
        assert asyncio.get_running_loop() is self.loop
        await asyncio.to_thread(time.sleep, 0)
        return value * self.factor

    async def close(self):
        assert asyncio.get_running_loop() is self.loop
        self.closed = True


@pytest.mark.parametrize("function", [Client, partial(Client, factor=10)])
def test_a_class_is_made_once_and_closed(function):
    Client.made.clear()
    threads = set(threading.enumerate())
    with TopologyTestDriver(topology(function)) as driver:
        assert Client.made == []
        pipe(driver, range(5))
        pipe(driver, range(5))
        assert [value for _, value, _ in rows(driver)] == [0, 10, 20, 30, 40] * 2
        assert len(Client.made) == 1
        driver.restart()
        assert Client.made[0].closed
        pipe(driver, [1])
        assert len(Client.made) == 2
    assert Client.made[1].closed
    assert Client.made[1].loop.is_closed()
    assert set(threading.enumerate()) <= threads


def test_a_plain_class_and_one_that_cannot_be_made():
    class Plain:
        closed: ClassVar = []

        def __call__(self, values):
            return [asyncio.run(InFlight()(value)) for value in values]

        def close(self):
            self.closed.append(True)

    class Refused:
        def __init__(self):
            raise ConnectionError("no such host")

        async def __call__(self, value):
            return value

    with TopologyTestDriver(topology(Plain, batch_size=2)) as driver:
        pipe(driver, range(3))
        assert [value for _, value, _ in rows(driver)] == [0, 10, 20]
    assert Plain.closed == [True]
    with (
        TopologyTestDriver(topology(Refused)) as driver,
        pytest.raises(EnrichError, match=r"Refused\(\) cannot be created .* no such host"),
    ):
        pipe(driver, [1])


def test_within_a_running_event_loop():
    async def notebook():
        with TopologyTestDriver(topology(Client)) as driver:
            pipe(driver, range(3))
            return [value for _, value, _ in rows(driver)]

    threads = set(threading.enumerate())
    assert asyncio.run(notebook()) == [0, 10, 20]
    assert set(threading.enumerate()) <= threads


def test_no_call_goes_on_after_a_failure():
    begun, ended = [], []

    async def function(value):
        if value == 2:
            raise EnrichError("not a record's fault")
        begun.append(value)
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(value)

    with (
        TopologyTestDriver(topology(function, concurrency=4, retries=5)) as driver,
        pytest.raises(EnrichError, match="not a record's fault"),
    ):
        pipe(driver, range(4))
    assert sorted(ended) == sorted(begun) != []


def test_what_cannot_be_called_is_refused():
    async def one(value):
        return value

    def many(values):
        return values

    class NoCall:
        pass

    stream = StreamsBuilder().stream("in")
    for function, how, told in (
        (many, {}, "must be `async def`"),
        (many, {"batch_size": 0}, "batch_size"),
        (many, {"batch_size": True}, "batch_size"),
        (many, {"batch_size": 5, "concurrency": 2}, "for `async def` functions"),
        (many, {"batch_size": 5, "timeout": 100}, "for `async def` functions"),
        (one, {"concurrency": 0}, "concurrency"),
        (one, {"timeout": 0}, "timeout"),
        (one, {"timeout": 1.5}, "timedelta or whole milliseconds"),
        (one, {"retries": -1}, "retries"),
        (one, {"backoff": -1}, "backoff"),
        (one, {"on_error": "keep"}, "on_error"),
        (one, {"on_error": lambda value: value}, "on_error"),
        (NoCall, {}, "__call__"),
        (lambda a, b, c: None, {"batch_size": 3}, "(keys, values)"),
        ("name", {}, "takes a function"),
    ):
        with pytest.raises(TopologyError) as raised:
            stream.enrich(function, **how)
        assert told in str(raised.value)
    with pytest.raises(TopologyError, match="drops nothing"):
        stream.enrich(one).dropped()
    assert inspect.iscoroutinefunction(one)
