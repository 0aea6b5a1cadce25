"""Retries through topics: when records come back, with what, and what the others do meanwhile."""

from __future__ import annotations

import random
from datetime import timedelta
from functools import cache
from typing import ClassVar

import pytest

from state.commit.crash_points import POINTS
from streams import JsonSerde, Processor, Retry, StreamsBuilder, StringSerde, TopologyError
from streams.application.dead_letters import check_dead_letter_topic
from streams.errors import ConfigError
from streams.testing import TopologyTestDriver
from streams.topology.diff import compare
from streams.topology.manifest import manifest
from streams.topology.plan import build_plan, plan_alone

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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_no_key_waits_for_ever_for_records_that_are_gone(seed):
    """Any records that wait may vanish; all others are processed once and in order, and no record goes round forever."""
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


# --- Where dead letters must not go: refused before the application starts.


class Admin:
    def topic_config(self, name):
        return {"cleanup.policy": "compact,delete" if name == "compacted" else "delete"}


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("dead", None),
        ("in", "read by this application"),
        ("an-output-that-is-read", "read by this application"),
        ("names", "read by this application"),
        ("app-in-commits", "internal"),
        ("compacted", "is compacted"),
        ("app-counts-changelog", "internal"),
        ("other-in-commits", "internal"),
        ("__consumer_offsets", "internal"),
    ],
)
def test_what_is_refused(topic, said):
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(named="counts").to_stream().to("an-output-that-is-read")
    builder.stream("an-output-that-is-read").to("out")
    builder.global_table("names")
    plan = build_plan(builder.build(), "app")
    if said is None:
        check_dead_letter_topic(topic, plan, Admin())
        return
    with pytest.raises(ConfigError, match=said):
        check_dead_letter_topic(topic, plan, Admin())


# --- A task that dies anywhere around a failing record: no retry is lost, none comes twice, and no record overtakes another.

RESTORING = tuple(point for point in POINTS if point.startswith("restore_"))


class Fragile(Processor):
    """Fails on records that end with `!`, and on those with `?` until they are healed, which depends on the clock alone."""

    healed: ClassVar[set[str]] = set()

    def process(self, record):
        if record.value.endswith("!") or (record.value.endswith("?") and record.value not in Fragile.healed):
            raise ValueError(record.value)
        self.ctx.forward(record)


def program(keep_order):
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    retry = Retry([10, 100], dead_letters="dead", keep_order=keep_order)
    builder.stream("in").process_values(Fragile, named="fragile", on_error=retry).to("out")
    return builder.build()


def records(seed, rounds=4):
    """Rounds of records: `?` fails until it is healed, `!` forever."""
    drawn = random.Random(seed)
    numbers = iter(range(1000))
    return [
        [
            (drawn.choice("ab"), f"{next(numbers)}{drawn.choice(['', '', '?', '!'])}")
            for _ in range(drawn.randrange(1, 4))
        ]
        for _ in range(rounds)
    ]


@cache
def play(keep_order, seed, point=None):
    """Results and dead letters by key, and how many of the two crashes there were."""
    drawn = random.Random(seed)
    Fragile.healed = set()
    with TopologyTestDriver(program(keep_order), tasks=2, start_ms=1_000) as driver:
        given = driver.create_input_topic("in")
        rounds = [*records(seed), *([[]] * 16)]
        for number, some in enumerate(rounds):
            if point is not None and number in (1, 3):
                driver.crash_at(point, wipe_state=number == 1)
            with driver.batch():
                for key, value in some:
                    given.pipe_input(key, value, number)
            driver.advance_wall_clock_time(drawn.choice([5, 10, 120]))
            Fragile.healed |= {value for before in rounds[: max(0, number - 2)] for _, value in before}
        found = {}
        for topic in ("out", "dead"):
            for record in driver.create_output_topic(topic, StringSerde(), StringSerde()).read_records_to_list():
                found.setdefault((topic, record.key), []).append(record.value)
        return found, driver.crashes


@pytest.mark.parametrize("seed", range(4))
def test_every_record_is_a_result_or_a_dead_letter_once(seed):
    given = sorted(value for some in records(seed) for _, value in some)
    for keep_order in (False, True):
        found, _ = play(keep_order, seed)
        assert sorted(value for values in found.values() for value in values) == given


@pytest.mark.parametrize("seed", range(4))
def test_results_of_a_key_are_in_order_where_that_is_asked_for(seed):
    found, _ = play(True, seed)
    for values in found.values():
        numbers = [int(value.rstrip("?!")) for value in values]
        assert numbers == sorted(numbers)


@pytest.mark.slow
@pytest.mark.parametrize("point", [point for point in POINTS if point not in RESTORING])
@pytest.mark.parametrize("keep_order", [False, True])
def test_a_crash_anywhere_changes_nothing(keep_order, point):
    expected, _ = play(keep_order, 1)
    found, crashes = play(keep_order, 1, point)
    # Without order there is no store, and so no changelog that a crash could leave half written.
    assert crashes == 2 or (point == "changelog_half_sent" and not keep_order)
    assert found == expected


def test_headers_of_another_applications_retry_topic_are_a_strangers():
    """A letter's headers say where a replay writes, and whoever writes to another one's topic has no say in that."""
    source = "other-ship-retry-1-repartition"
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    builder.stream(source).map_values(lambda value: 1 // 0).to("out")
    with TopologyTestDriver(builder.build(), processing="dlq", dead_letter_topic="orders.dlq") as driver:
        topic = driver.create_input_topic(source)
        topic.pipe_input("k", "bad", 5, headers={"__streams.retry.topic": b"payments"})
        (letter,) = driver.create_output_topic("orders.dlq").read_records_to_list()
        names = [name for name, _ in letter.headers]
        assert "__streams.retry.topic" not in names
        assert "__streams.own.retry.topic" in names
