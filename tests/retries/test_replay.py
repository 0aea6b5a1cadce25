"""Replays of dead letters: each once, whatever is chosen, repeated or killed."""

import signal
import subprocess
import sys

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from state.changelog import ensure_replays
from state.commit.live import LiveKafka
from state.errors import FencedError, OffsetsLostError
from state.headers import decode_headers, encode_headers
from state.kafka.admin import KafkaAdmin
from state.kafka.producer import TransactionalProducer
from streams import EmitStrategy, Processor, Retry, StreamsBuilder, StringSerde, TimeWindows
from streams.application.dead_letters import (
    Choice,
    Until,
    letter_as_dict,
    letters_of,
    plan_purge,
    plan_replay,
    purge,
    read_replayed,
    replay,
    replays_topic,
)
from streams.engine.graph.handlers import OUTSIDE, error_headers
from streams.errors import ConfigError
from streams.testing import TopologyTestDriver
from streams.testing.simulation import Crash, Fate, SimulatedKafka
from tests.budget import up_to


class CrashAt:
    """Kills the process at its n-th event with Kafka."""

    def __init__(self, number=None):
        self.number = number
        self.events = 0

    def before(self, event):
        self.after(event)
        return Fate.NOW

    def after(self, event):
        self.events += 1
        if self.events == self.number:
            raise Crash(str(event))


def cluster(letters=6, hook=None):
    """A cluster with dead letters of the topic `orders` in two partitions."""
    kafka = SimulatedKafka({"orders": 2, "dlq": 2, "dlq-replays": 1})
    for number in range(letters):
        error = KeyError("customer") if number % 3 == 0 else ValueError(f"bad {number}")
        headers = (("trace", b"7"), *error_headers("processing", ("orders", 1, number), 1_000 + number, error))
        kafka.append("dlq", b"k%d" % number, b"v%d" % number, 50_000 + number, encode_headers(headers), number % 2)
    kafka.hook = hook or CrashAt()
    return kafka


def run(kafka, choice=None, to=None, together=2):
    plan = plan_replay(kafka, "dlq", choice or Choice(), to)
    return replay(kafka, plan, lambda: 99_000, to, together)


def sent(kafka, topic="orders"):
    """Committed records of a topic."""
    found = []
    for partition in range(kafka.partition_count(topic)):
        for columns in kafka.read(topic, partition, 0, kafka.log(topic, partition).stable_end):
            headers = [None] * len(columns) if columns.headers is None else columns.headers.to_pylist()
            rows = zip(
                columns.keys.to_pylist(), columns.values.to_pylist(), columns.timestamps.tolist(), headers, strict=True
            )
            found += [(key, value, time, tuple(decode_headers(cell))) for key, value, time, cell in rows]
    return sorted(found)


def test_a_record_goes_back_as_it_was():
    kafka = cluster(1)
    assert run(kafka) == 1
    assert sent(kafka) == [(b"k0", b"v0", 1_000, (("trace", b"7"),))]


def test_a_record_goes_back_to_its_partition_whoever_has_chosen_that():
    """A live task reads its own partition only, and the producer of the topic may put keys anywhere."""
    kafka = cluster()
    assert run(kafka) == 6
    assert [kafka.end_offsets([("orders", partition)])["orders", partition] > 0 for partition in range(2)] == [
        False,
        True,
    ]
    kafka = cluster()
    kafka.create_topic("narrow", 1)
    assert run(kafka, to="narrow") == 6
    assert len(sent(kafka, "narrow")) == 6


def test_a_second_replay_sends_nothing_and_new_letters_are_sent_later():
    kafka = cluster()
    assert run(kafka) == 6
    assert run(kafka) == 0
    headers = error_headers("processing", ("orders", 0, 9), 1, ValueError())
    kafka.append("dlq", b"k9", b"v9", 60_000, encode_headers(headers), 0)
    assert run(kafka) == 1
    assert len(sent(kafka)) == 7


def test_choices_pass_over_letters_that_a_later_replay_sends():
    kafka = cluster()
    assert run(kafka, Choice(error="KeyError")) == 2
    assert run(kafka, Choice(error="bad 4")) == 1
    assert run(kafka, Choice(key="k5", since_ms=50_005, until_ms=50_006, origin="orders")) == 1
    assert run(kafka, Choice(positions=frozenset({(1, 0)}))) == 1
    assert [key for key, *_ in sent(kafka)] == [b"k0", b"k1", b"k3", b"k4", b"k5"]
    assert run(kafka) == 1
    assert len(sent(kafka)) == 6


def test_a_replay_that_is_killed_anywhere_sends_nothing_twice_when_it_is_repeated():
    quiet = CrashAt()
    kafka = cluster(hook=quiet)
    run(kafka)
    events = quiet.events
    expected = sent(kafka)
    for number in range(1, events + 1):
        kafka = cluster(hook=CrashAt(number))
        with pytest.raises(Crash):
            run(kafka)
        kafka.hook = CrashAt()
        run(kafka)
        assert sent(kafka) == expected, number
        assert run(kafka) == 0


def test_a_plan_that_another_replay_has_overtaken_sends_only_what_is_left():
    kafka = cluster()
    plan = plan_replay(kafka, "dlq", Choice())
    run(kafka, Choice(error="KeyError"))
    assert replay(kafka, plan, lambda: 99_000) == 4
    assert len(sent(kafka)) == 6


def add_letter(kafka, number, partition=0):
    headers = error_headers("processing", ("orders", 0, number), 1, ValueError())
    kafka.append("dlq", b"n%d" % number, b"n", 60_000, encode_headers(headers), partition)


def test_a_plan_remembers_letters_that_another_replay_has_sent_since():
    kafka = cluster()
    plan = plan_replay(kafka, "dlq", Choice())
    add_letter(kafka, 9)
    assert run(kafka, Choice(key="n9")) == 1
    assert replay(kafka, plan, lambda: 99_000) == 6
    assert run(kafka) == 0
    assert len(sent(kafka)) == 7


class At:
    """Does something at the n-th event with Kafka: kills the process, or lets another one act in between."""

    def __init__(self, number, action):
        self.left, self.action = number, action

    def before(self, event):
        self.after(event)
        return Fate.NOW

    def after(self, event):
        self.left -= 1
        if self.left == 0:
            self.action()


class Replays(RuleBasedStateMachine):
    """Replays that are planned, answered late, killed, and interrupted by each other, by new letters and by purges."""

    def __init__(self):
        super().__init__()
        self.kafka, self.plans, self.letters, self.purged = cluster(0), [], 0, set()

    @rule()
    def fail(self):
        add_letter(self.kafka, self.letters)
        self.letters += 1

    def choice(self, newest):
        return Choice(key=f"n{self.letters - 1}") if newest else Choice()

    @rule(newest=st.booleans())
    def plan(self, newest):
        self.plans.append(plan_replay(self.kafka, "dlq", self.choice(newest)))

    @precondition(lambda self: self.plans)
    @rule(event=st.integers(0, 30), what=st.sampled_from(["kill", "fail", "purge", "replay"]))
    def send(self, event, what):
        plan = self.plans.pop(0)
        actions = {"kill": self._kill, "fail": self.fail, "purge": self.purge, "replay": self.replay}
        self.kafka.hook = At(event, actions[what])
        try:
            replay(self.kafka, plan, lambda: 99_000, together=2)
        except Crash:
            assert what == "kill"
        except FencedError:
            assert what == "replay"
        self.kafka.hook = CrashAt()

    @rule(offset=st.integers(0, 5))
    def purge(self, offset=2):
        plan = plan_purge(self.kafka, "dlq", Until(offsets={0: offset}))
        for letter in letters_of(self.kafka, ("dlq", 0)):
            if letter.offset < plan.before.get(("dlq", 0), 0):
                self.purged.add(letter.key)
        purge(plan, self.kafka.delete_records)

    @invariant()
    def each_letter_is_sent_once(self):
        keys = [key for key, *_ in sent(self.kafka)]
        assert len(keys) == len(set(keys)), keys

    @rule(newest=st.booleans())
    def replay(self, newest=False):
        run(self.kafka, self.choice(newest))

    def teardown(self):
        run(self.kafka)
        self.each_letter_is_sent_once()
        assert {key for key, *_ in sent(self.kafka)} | self.purged == {b"n%d" % one for one in range(self.letters)}
        assert run(self.kafka) == 0

    def _kill(self):
        raise Crash


Replays.TestCase.settings = up_to(60, stateful_step_count=12)
TestReplays = Replays.TestCase


class Waits:
    """A cluster where whoever asks for the end of a log while a transaction is open waits too long."""

    def __init__(self, kafka):
        self._kafka = kafka

    def __getattr__(self, name):
        return getattr(self._kafka, name)

    def log_ends(self, places):
        found = self._kafka.log_ends(places)
        assert all(stable == end for stable, end in found.values()), found
        return found


def test_no_command_waits_for_the_transaction_of_a_replay_that_was_killed():
    quiet = CrashAt()
    run(cluster(hook=quiet))
    in_transaction = 0
    for number in range(1, quiet.events + 1):
        kafka = cluster(hook=CrashAt(number))
        with pytest.raises(Crash):
            run(kafka)
        kafka.hook = CrashAt()
        (ends,) = kafka.log_ends([("dlq-replays", 0)]).values()
        in_transaction += ends[0] < ends[1]
        assert plan_replay(Waits(kafka), "dlq", Choice()).letters <= 6
        plan_purge(Waits(kafka), "dlq", Until(replayed=True))
        assert run(Waits(kafka)) <= 6
        assert len(sent(kafka)) == 6
    assert in_transaction > 2


def create_again(kafka):
    kafka.delete_topic("dlq")
    kafka.create_topic("dlq", 2)
    for number in range(9):
        add_letter(kafka, number, number % 2)


def test_of_a_topic_that_is_created_again_while_the_command_asks_nothing_is_sent():
    kafka = cluster()
    plan = plan_replay(kafka, "dlq", Choice())
    create_again(kafka)
    with pytest.raises(ConfigError, match="'dlq' was deleted and created again"):
        replay(kafka, plan, lambda: 99_000)
    assert sent(kafka) == []
    assert run(kafka) == 9


def test_of_a_topic_that_is_created_again_during_a_replay_nothing_is_sent():
    quiet = CrashAt()
    run(cluster(hook=quiet))
    refused = 0
    for number in range(1, quiet.events + 1):
        kafka = cluster()
        plan = plan_replay(kafka, "dlq", Choice())
        kafka.hook = At(number, lambda kafka=kafka: create_again(kafka))
        try:
            replay(kafka, plan, lambda: 99_000, together=2)
        except (ConfigError, OffsetsLostError):
            refused += 1
        assert not [key for key, *_ in sent(kafka) if key.startswith(b"n")]
    assert refused > 9


def test_a_purge_during_a_replay_takes_away_letters_and_the_replay_sends_the_others():
    quiet = CrashAt()
    run(cluster(hook=quiet))
    counts = set()
    for number in range(1, quiet.events + 1):
        kafka = cluster()
        plan = plan_replay(kafka, "dlq", Choice())
        kafka.hook = At(number, lambda kafka=kafka: kafka.delete_records({("dlq", 0): 2, ("dlq", 1): 1}))
        replay(kafka, plan, lambda: 99_000, together=2)
        counts.add(len(sent(kafka)))
        assert {b"k3", b"k4", b"k5"} <= {key for key, *_ in sent(kafka)}
    assert counts >= {3, 5}


def test_letters_of_a_topic_that_was_created_again_are_new_ones():
    kafka = cluster()
    run(kafka)
    kafka.delete_topic("dlq")
    kafka.create_topic("dlq", 2)
    headers = error_headers("processing", ("orders", 0, 9), 1, ValueError())
    kafka.append("dlq", b"k", b"v", 1, encode_headers(headers), 0)
    assert run(kafka) == 1


def test_letters_that_are_not_whole_or_came_of_no_record_stay():
    kafka = cluster(0)
    whole = error_headers("processing", ("orders", 0, 9), 1, ValueError())
    kafka.append("dlq", b"a", b"v", 1, encode_headers((*whole, ("__streams.errors.cut", b"value of 9 bytes"))), 0)
    kafka.append("dlq", b"b", b"v", 1, encode_headers((*whole, ("__streams.errors.cut", b"stacktrace of 9 bytes"))), 0)
    kafka.append("dlq", b"c", None, 1, encode_headers(error_headers("processing", (None, -1, -1), 1, ValueError())), 0)
    row = error_headers("production", (None, OUTSIDE, -1), 1, ValueError())
    kafka.append("dlq", b"d", b'{"v": 1}', 1, encode_headers(row), 0)
    plan = plan_replay(kafka, "dlq", Choice())
    cut, none, outside = plan.left_out
    assert (plan.letters, set(plan.left_out.values())) == (1, {1})
    assert cut == "parts of the record were cut off"
    assert none == "it did not come from a single record: it is a result, and its records are in the state already"
    assert outside.startswith("a row from outside Kafka that never became a record")
    assert [letter.origin for letter in letters_of(kafka, ("dlq", 0))][2:] == ["", "a row from outside Kafka"]
    assert plan_replay(kafka, "dlq", Choice(), to="orders").targets == {"orders": 2}


def test_a_record_that_would_be_counted_twice_stays():
    kafka = cluster(0)
    kafka.create_topic("repaired", 1)
    whole = error_headers("processing", ("orders", 0, 9), 1, ValueError())
    kafka.append("dlq", b"a", b"v", 1, encode_headers((*whole, ("__streams.errors.counted.by", b"sales, once"))), 0)
    kafka.append("dlq", b"b", b"v", 1, encode_headers(whole), 0)
    plan = plan_replay(kafka, "dlq", Choice())
    (why,) = plan.left_out
    assert (plan.targets, why.partition(":")[0]) == (
        {"orders": 1},
        "sent again, it would be counted twice by sales and by once",
    )
    assert plan_replay(kafka, "dlq", Choice(), to="orders").targets == {"orders": 1}
    assert plan_replay(kafka, "dlq", Choice(), to="repaired").targets == {"repaired": 2}
    assert plan_replay(kafka, "dlq", Choice(), again=True).targets == {"orders": 2}
    shown = [letter_as_dict(letter, False, bytes.decode) for letter in letters_of(kafka, ("dlq", 0))]
    assert [(one["counted_by"], bool(one["left_out"])) for one in shown] == [(["sales", "once"], True), ([], False)]


def test_the_result_of_a_window_says_which_one_it_is():
    builder = StreamsBuilder(default_key_serde=StringSerde())
    windowed = builder.stream("orders").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    closed = windowed.emit_strategy(EmitStrategy.on_window_close()).count()
    closed.to_stream().map_values(lambda value: 1 // 0, named="shown").map(lambda key, value: (key.key, value)).to(
        "out"
    )
    kafka = cluster(0)
    with TopologyTestDriver(builder.build(), processing="dlq", dead_letter_topic="dlq") as driver:
        for key, time in (("a", 1), ("b", 33)):
            driver.create_input_topic("orders").pipe_input(key, 1, time)
        (record,) = driver.create_output_topic("dlq").read_records_to_list()
    kafka.append("dlq", record.key, record.value, 1, encode_headers(record.headers), 0)
    (letter,) = letters_of(kafka, ("dlq", 0))
    shown = letter_as_dict(letter, False, bytes.decode)
    assert (shown["key"], shown["value"], shown["window"], shown["node"]) == ("a", None, [0, 10], "shown")
    for to in (None, "orders"):
        (why,) = plan_replay(kafka, "dlq", Choice(), to).left_out
        assert why.startswith("it did not come from a single record: it is a result")


def test_headers_of_a_record_decide_neither_where_its_letter_goes_nor_whether():
    own = {"__streams.retry.topic": b"app-orders-commits", "__streams.errors.cut": b"value of 9 bytes", "trace": b"7"}
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    builder.stream("orders").map_values(int).to("out")
    with TopologyTestDriver(builder.build(), processing="dlq", dead_letter_topic="dlq") as driver:
        driver.create_input_topic("orders").pipe_input("k", "no number", 5, headers=own)
        kafka = driver._kafka
        kafka.create_topic("dlq-replays")
        kafka.create_topic("app-orders-commits")
        plan = plan_replay(kafka, "dlq", Choice())
        assert (dict(plan.targets), plan.letters) == ({"orders": 1}, 1)
        replay(kafka, plan, lambda: 9)
        assert sent(kafka)[-1] == (b"k", b"no number", 5, tuple(own.items()))


def test_a_letter_that_names_an_internal_topic_is_refused():
    kafka = cluster(0)
    kafka.create_topic("app-orders-commits")
    error = error_headers("processing", ("orders", 0, 9), 1, ValueError())
    headers = (*error, ("__streams.retry.topic", b"app-orders-commits"))
    kafka.append("dlq", b"k", b"v", 1, encode_headers(headers), 0)
    with pytest.raises(ConfigError, match="internal topic"):
        run(kafka)


def test_targets_that_cannot_be_are_refused_before_anything_is_sent():
    kafka = cluster()
    kafka.delete_topic("orders")
    with pytest.raises(ConfigError, match="does not exist"):
        run(kafka)
    with pytest.raises(ConfigError, match="that topic itself"):
        run(kafka, to="dlq")
    assert read_replayed(kafka, "dlq").ranges == {}


def test_a_purge_deletes_up_to_the_first_letter_that_stays():
    kafka = cluster()
    run(kafka, Choice(positions=frozenset({(0, 0), (0, 2), (1, 0)})))

    def left():
        return [letter.key for place in (("dlq", 0), ("dlq", 1)) for letter in letters_of(kafka, place)]

    plan = plan_purge(kafka, "dlq", Until(replayed=True))
    assert (plan.letters, plan.not_replayed, plan.before) == (2, 0, {("dlq", 0): 1, ("dlq", 1): 1})
    purge(plan, kafka.delete_records)
    assert left() == [b"k2", b"k4", b"k3", b"k5"]
    purge(plan_purge(kafka, "dlq", Until(time_ms=50_004)), kafka.delete_records)
    assert left() == [b"k4", b"k5"]
    assert run(kafka) == 1, "k4 was replayed before"
    purge(plan_purge(kafka, "dlq", Until(offsets={1: 3})), kafka.delete_records)
    assert left() == [b"k4"]
    purge(plan_purge(kafka, "dlq", Until()), kafka.delete_records)
    assert left() == []


def test_records_that_an_application_needs_are_not_purged():
    with pytest.raises(ConfigError, match="internal topic"):
        plan_purge(cluster(), "app-ship-retry-1-repartition", Until())


def test_a_letter_of_an_operator_with_retries_comes_back_to_that_operator():
    broken = [True]

    class Ship(Processor):
        def process(self, record):
            if broken:
                raise ValueError("no truck")
            self.ctx.forward(record)

    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    orders = builder.stream("orders").map_values(str.upper)
    orders.process_values(Ship, named="ship", on_error=Retry([10], "dlq", keep_order=True)).to("out")
    with TopologyTestDriver(builder.build(), start_ms=1_000) as driver:
        driver.create_input_topic("orders").pipe_input("k", "a", 5, headers={"trace": b"7"})
        driver.advance_wall_clock_time(10)
        broken.clear()
        kafka = driver._kafka
        kafka.create_topic("dlq-replays")
        plan = plan_replay(kafka, "dlq", Choice())
        assert dict(plan.targets) == {"test-ship-retry-1-repartition": 1}
        # Whoever replays has a clock that is a day ahead.
        replay(kafka, plan, lambda: driver.now_ms + 86_400_000)
        driver.advance_wall_clock_time(10)
        (record,) = driver.create_output_topic("out").read_records_to_list()
        assert (record.key, record.value, record.timestamp, record.headers) == ("k", "A", 5, (("trace", b"7"),))


DYING = """
import os, signal, sys
from state.commit.live import LiveKafka
from state.kafka.producer import TransactionalProducer
from streams.application.dead_letters import Choice
from streams.application.dead_letters import plan_replay, replay

servers, dead, moment = sys.argv[1:]
commit, calls = TransactionalProducer.commit, []

def dying(producer):
    calls.append(producer)
    if len(calls) == 2 and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    commit(producer)
    if len(calls) == 2 and moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)

TransactionalProducer.commit = dying
kafka = LiveKafka({"bootstrap.servers": servers}, 5_000)
replay(kafka, plan_replay(kafka, dead, Choice()), lambda: 9, together=2)
"""


@pytest.mark.kafka
def test_on_a_broker_replays_that_are_killed_and_two_at_once_send_each_letter_once(broker, topic):
    client = {"bootstrap.servers": broker.bootstrap_servers}
    orders, dead = topic(name="orders"), topic(name="dead")
    with KafkaAdmin(client) as admin:
        ensure_replays(admin, replays_topic(dead), 1)
    kafka = LiveKafka(client, 60_000)
    with TransactionalProducer(client, f"letters-of-{dead}") as producer:
        producer.init_transactions()
        producer.begin()
        for number in range(16):
            headers = error_headers("processing", (orders, 0, number), 1, ValueError())
            producer.send(dead, 0, b"%d" % number, b"v", 1, headers)
        producer.flush()
        producer.commit()

    def start(moment):
        return subprocess.Popen([sys.executable, "-c", DYING, broker.bootstrap_servers, dead, moment])

    for moment in ("before", "after"):
        assert start(moment).wait() == -signal.SIGKILL, "the replay was killed at its second transaction"
    both = [start("never") for _ in range(2)]
    assert 0 in [one.wait() for one in both], "the later one ends the earlier one"
    replay(kafka, plan_replay(kafka, dead, Choice()), lambda: 9)
    assert sorted(int(one.key) for one in letters_of(kafka, (orders, 0))) == list(range(16))
