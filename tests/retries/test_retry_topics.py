"""Retries through topics: when records come back, with what, and what the others do meanwhile."""

import random
from datetime import timedelta
from typing import ClassVar

import pytest

from streams import JsonSerde, Processor, Retry, StreamsBuilder, StringSerde, TopologyError
from streams.testing import TopologyTestDriver
from streams.topology.diff import compare
from streams.topology.manifest import manifest
from streams.topology.plan import plan_alone

FIRST, SECOND = "test-ship-retry-1-repartition", "test-ship-retry-2-repartition"


class Ship(Processor):
    """Fails on values of which the class says so, at most so many times."""

    failures: ClassVar[dict[str, int]] = {}
    seen: ClassVar[list[str]] = []

    def process(self, record):
        Ship.seen.append(record.value)
        left = Ship.failures.get(record.value, 0)
        if left:
            Ship.failures[record.value] = left - 1
            raise ValueError(f"no truck for {record.value}")
        self.ctx.forward(record.with_value(record.value.upper()))


def shipping(keep_order=False, delays=(1_000, 10_000)):
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    retry = Retry(delays, dead_letters="orders.dlq", keep_order=keep_order)
    shipped = builder.stream("orders").process_values(Ship, named="ship", on_error=retry)
    shipped.to("shipped")
    return builder.build()


@pytest.fixture
def start():
    """Starts a driver over the topology; the records that fail are given."""
    drivers = []

    def starting(failures, **options):
        Ship.failures, Ship.seen = dict(failures), []
        driver = TopologyTestDriver(shipping(**options), partitions={"orders": 2}, start_ms=100_000)
        drivers.append(driver)
        return driver, driver.create_input_topic("orders"), driver.create_output_topic("shipped")

    yield starting
    for driver in drivers:
        driver.close()


def letters(driver):
    return driver.create_output_topic("orders.dlq", StringSerde(), StringSerde()).read_records_to_list()


def test_a_record_comes_back_after_each_delay_with_its_own_key_time_and_headers(start):
    driver, orders, shipped = start({"a": 2})
    orders.pipe_input("k", "a", 5_000, headers={"trace": b"7"})
    orders.pipe_input("k", "b", 6_000)
    assert shipped.read_values_to_list() == ["B"]
    driver.advance_wall_clock_time(999)
    assert Ship.seen == ["a", "b"]
    driver.advance_wall_clock_time(1)
    assert Ship.seen == ["a", "b", "a"]
    driver.advance_wall_clock_time(timedelta(seconds=9))
    assert Ship.seen == ["a", "b", "a"]
    driver.advance_wall_clock_time(timedelta(seconds=1))
    (record,) = shipped.read_records_to_list()
    assert (record.key, record.value, record.timestamp, record.headers) == ("k", "A", 5_000, (("trace", b"7"),))
    assert letters(driver) == []
    assert driver.counts()["retried:ship"] == 2


def test_a_record_that_fails_in_all_attempts_becomes_a_dead_letter_that_says_where_it_came_from(start):
    driver, orders, shipped = start({"a": 9})
    orders.pipe_input("k", "a", 5_000, headers={"trace": b"7"})
    driver.advance_wall_clock_time(1_000)
    driver.advance_wall_clock_time(10_000)
    driver.advance_wall_clock_time(100_000)
    assert Ship.seen == ["a"] * 3
    (letter,) = letters(driver)
    headers = dict(letter.headers)
    assert (letter.key, letter.value, letter.timestamp) == ("k", "a", 111_000)
    assert headers["trace"] == b"7"
    assert headers["__streams.errors.exception"] == b"ValueError"
    assert headers["__streams.errors.message"] == b"no truck for a"
    assert b"raise ValueError" in headers["__streams.errors.stacktrace"]
    assert headers["__streams.errors.topic"] == b"orders"
    assert headers["__streams.errors.offset"] == b"0"
    assert headers["__streams.errors.timestamp"] == headers["__streams.retry.timestamp"] == b"5000"
    assert headers["__streams.retry.attempt"] == b"3"
    assert headers["__streams.retry.topic"] == FIRST.encode()
    assert shipped.is_empty


def test_a_waiting_record_says_when_it_is_due_and_how_often_it_has_failed(start):
    driver, orders, _ = start({"a": 9})
    orders.pipe_input("k", "a", 5_000)
    (waiting,) = driver.create_output_topic(FIRST).read_records_to_list()
    headers = dict(waiting.headers)
    assert waiting.timestamp == 100_000
    assert headers["__streams.retry.not_before"] == b"101000"
    assert headers["__streams.retry.attempt"] == b"1"
    assert "__streams.errors.stacktrace" not in headers
    driver.advance_wall_clock_time(1_000)
    (waiting,) = driver.create_output_topic(SECOND).read_records_to_list()
    assert dict(waiting.headers)["__streams.retry.not_before"] == b"111000"


def test_a_long_message_keeps_no_record_from_waiting(start):
    driver, orders, _ = start({"a" * 900_000: 1})
    orders.pipe_input("k", "a" * 900_000, 5_000)
    (waiting,) = driver.create_output_topic(FIRST).read_records_to_list()
    assert len(dict(waiting.headers)["__streams.errors.message"]) == 1_000


def test_a_policy_that_keeps_order_makes_later_records_of_the_key_wait(start):
    driver, orders, shipped = start({"a": 1}, keep_order=True)
    for key, value in (("k", "a"), ("k", "b"), ("other", "c"), ("k", "d"), (None, "e")):
        orders.pipe_input(key, value, 5_000)
    assert shipped.read_values_to_list() == ["C", "E"]
    driver.advance_wall_clock_time(1_000)
    assert shipped.read_values_to_list() == ["A", "B", "D"]
    assert Ship.seen == ["a", "c", "e", "a", "b", "d"]
    assert driver.counts()["followed:ship"] == 2
    orders.pipe_input("k", "f", 6_000)
    assert shipped.read_values_to_list() == ["F"]
    assert driver.get_key_value_store("ship-waiting").get("k") is None


def test_later_records_follow_the_first_one_through_all_topics_until_it_is_a_dead_letter(start):
    driver, orders, shipped = start({"a": 9, "c": 1}, keep_order=True)
    for value in "abc":
        orders.pipe_input("k", value, 5_000)
    driver.advance_wall_clock_time(1_000)
    orders.pipe_input("k", "d", 5_000)
    driver.advance_wall_clock_time(1_000)
    assert shipped.is_empty
    driver.advance_wall_clock_time(9_000)
    assert [letter.value for letter in letters(driver)] == ["a"]
    # `c` fails for the first time and waits in the first topic again, and `d` behind it, without a chance to overtake.
    assert shipped.read_values_to_list() == ["B"]
    for _ in range(30):
        driver.advance_wall_clock_time(1_000)
    assert shipped.read_values_to_list() == ["C", "D"]


def test_a_record_that_fails_after_it_has_followed_another_says_where_it_was_read_first(start):
    driver, orders, _ = start({"a": 1, "b": 9}, keep_order=True)
    for value in "ab":
        orders.pipe_input("k", value, 5_000)
    for _ in range(30):
        driver.advance_wall_clock_time(1_000)
    (letter,) = letters(driver)
    headers = dict(letter.headers)
    place = [headers[f"__streams.errors.{name}"] for name in ("topic", "offset", "timestamp")]
    assert (letter.value, place) == ("b", [b"orders", b"1", b"5000"])


@pytest.mark.parametrize("keep_order", [False, True])
def test_a_record_that_is_too_large_to_wait_becomes_a_dead_letter_and_holds_up_nobody(keep_order):
    large = "x" * 850
    Ship.failures, Ship.seen = {large: 9}, []
    with TopologyTestDriver(shipping(keep_order), start_ms=100_000, max_record_bytes=1_000) as driver:
        orders, shipped = driver.create_input_topic("orders"), driver.create_output_topic("shipped")
        for value in (large, "b"):
            orders.pipe_input("k", value, 5_000)
        for _ in range(30):
            driver.advance_wall_clock_time(1_000)
        (letter,) = letters(driver)
        headers = dict(letter.headers)
        assert (letter.value, headers["__streams.errors.exception"]) == (large, b"ValueError")
        assert headers["__streams.retry.topic"] == FIRST.encode()
        assert shipped.read_values_to_list() == ["B"]


class Forgetful(StringSerde):
    """Cannot read some values in retry topics."""

    def deserialize(self, topic, data, headers=()):
        if "-retry-" in topic and data.endswith(b"~"):
            raise ValueError(data)
        return super().deserialize(topic, data, headers)


@pytest.mark.parametrize("seed", range(8))
def test_no_key_waits_for_ever_for_records_that_are_gone(seed):
    """Any records that wait may vanish; all others are processed once and in order, and no record goes round for ever."""
    drawn = random.Random(seed)
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=Forgetful())
    retry = Retry([1_000, 10_000, 3_000], dead_letters="orders.dlq", keep_order=True)
    builder.stream("orders").process_values(Ship, named="ship", on_error=retry).to("shipped")
    given = [f"{number}{drawn.choice(['', '', '~', '~'])}" for number in range(12)]
    Ship.failures = {value: drawn.choice([0, 1, 2, 9]) for value in given}
    Ship.seen = []
    with TopologyTestDriver(builder.build(), start_ms=100_000, deserialization="skip") as driver:
        orders, shipped = driver.create_input_topic("orders"), driver.create_output_topic("shipped")
        for value in given:
            orders.pipe_input("k", value, 5_000)
            driver.advance_wall_clock_time(drawn.choice([0, 500, 1_000, 4_000]))
        for _ in range(150):
            driver.advance_wall_clock_time(1_000)
        before = driver.counts()
        assert before["dropped:ship-retry-source:deserialization"], "some are gone"
        found = [(letter.timestamp, letter.value) for letter in letters(driver)]
        done = [*shipped.read_values_to_list(), *(value for _, value in found)]
        first = list(dict.fromkeys(value for value in Ship.seen if not value.endswith("~")))
        assert set(done) >= {value for value in given if not value.endswith("~")}
        assert len(set(done)) == len(done)
        assert first == [value for value in given if not value.endswith("~")], "in order"
        driver.advance_wall_clock_time(100_000)
        assert driver.counts() == before, "nobody waits"


def test_headers_that_are_the_records_own_stay_through_all_attempts(start):
    own = {"__streams.errors.exception": b"of another", "__streams.retry.topic": b"other", "__streams.own.x": b"1"}
    driver, orders, shipped = start({"a": 2}, keep_order=True)
    for value in ("a", "b"):
        orders.pipe_input("k", value, 5_000, headers=own)
    for _ in range(12):
        driver.advance_wall_clock_time(1_000)
    assert [record.headers for record in shipped.read_records_to_list()] == [tuple(own.items())] * 2


def counting(**option):
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=JsonSerde())
    stream = builder.stream("orders").process_values(Ship, named="a", **option)
    stream.group_by_key().count("n").to_stream().to("out")
    return builder.build()


def test_retries_change_neither_the_name_nor_the_hash_of_a_sub_topology():
    (without,) = plan_alone(counting()).sub_topologies
    (retried,) = plan_alone(counting(on_error=Retry([10], dead_letters="orders.dlq"))).sub_topologies
    assert (without.name, without.topology_hash) == (retried.name, retried.topology_hash)
    assert not retried.reads_internal
    assert retried.delays == {"application-a-retry-1-repartition": 10}


def test_a_running_application_may_begin_and_cease_to_retry():
    without, retried = counting(), counting(on_error=Retry([10], dead_letters="orders.dlq"))
    for old, new in ((without, retried), (retried, without)):
        # One that depends is refused only as long as records wait in a topic that is gone.
        assert not [change for change in compare(manifest(old), new) if change.refused and not change.depends]


def test_a_topology_with_retries_can_be_shown():
    topology = shipping(keep_order=True)
    assert "ship-retry-1-repartition" in topology.describe()
    assert "ship-retry-1-repartition" in topology.mermaid()
    assert "orders.dlq" in topology._repr_mimebundle_()["text/html"]
    assert "ship" in topology.explain()


def test_enrich_retries_the_records_whose_calls_fail():
    down = {"b"}

    async def country(ip):
        if ip in down:
            raise ConnectionError("no route")
        return ip.upper()

    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    calls = builder.stream("ips").enrich(country, named="geo", on_error=Retry([1_000], dead_letters="geo.dlq"))
    calls.to("out")
    with TopologyTestDriver(builder.build(), start_ms=100_000) as driver:
        ips, out = driver.create_input_topic("ips"), driver.create_output_topic("out")
        with driver.batch():
            for ip in "abc":
                ips.pipe_input(ip, ip, 5_000)
        assert out.read_values_to_list() == ["A", "C"]
        down.clear()
        driver.advance_wall_clock_time(1_000)
        (record,) = out.read_records_to_list()
        assert (record.value, record.timestamp, record.headers) == ("B", 5_000, ())
        assert driver.counts()["retried:geo"] == 1


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Retry([], "dlq"), "a list with the delay"),
        (lambda: Retry([-1], "dlq"), "must not be negative"),
        (lambda: Retry([1], ""), "name of the topic"),
        (lambda: StreamsBuilder().stream("a").process(Ship, on_error=Retry([1], "dlq")), "needs a name"),
        (lambda: StreamsBuilder().stream("a").process(Ship, on_error="drop"), "'fail' or a Retry"),
        (
            lambda: StreamsBuilder().stream("a").enrich(len, batch_size=1, on_error=Retry([1], "dlq", keep_order=True)),
            "at the same time",
        ),
    ],
)
def test_mistakes_are_refused(build, says):
    with pytest.raises(TopologyError, match=says):
        build()
