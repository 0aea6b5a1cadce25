"""Latency: what an input record waits for until a result that contains it has arrived; and the load that is sent when it is due."""

from unittest import mock

import numpy as np
import orjson
import pytest
from confluent_kafka import Producer

from benchmarks.generators.paced import Paced
from benchmarks.generators.records import Columns
from benchmarks.harness import latency, reader
from benchmarks.harness.latency import PacedRun, sleep_until
from benchmarks.harness.monitor import TooSlowError
from benchmarks.harness.reader import ArrivalReader, latencies
from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicSpec
from streams.broker import EmbeddedBroker


def columns(**parts: list[float]) -> Columns:
    return Columns({name: np.array(part) for name, part in parts.items()})


def test_a_record_waits_for_the_first_result_that_contains_it() -> None:
    inputs = columns(key=[1, 1, 1, 2], timestamp=[1_000, 1_500, 2_100, 1_000])
    results = columns(
        key=[1, 1, 1, 2],
        start=[1_000, 1_000, 2_000, 1_000],
        t=[1_000, 1_500, 2_100, 1_000],
        at=[1_200.0, 1_800.0, 2_150.0, 1_900.0],
    )
    assert latencies(inputs, results, 1_000).tolist() == [200, 300, 50, 900]


def test_a_result_with_later_records_contains_the_earlier_ones_of_its_window_only() -> None:
    inputs = columns(key=[1, 1, 1], timestamp=[1_100, 1_200, 2_000])
    results = columns(key=[1], start=[1_000], t=[1_900], at=[2_000.0])
    found = latencies(inputs, results, 1_000)
    assert found[:2].tolist() == [900, 800]
    assert np.isnan(found[2])


def test_a_paced_reading_says_when_it_was_due_and_has_160_bytes() -> None:
    load = Paced(start_ms=1_800_000_000_000, rate=2_000)
    batch = load.batch("events", 3_999, 4_002)
    value = batch.values[1].as_py()
    assert len(value) == 160
    reading = orjson.loads(value)
    assert reading["t"] == batch.timestamps[1] == 1_800_000_002_000
    assert reading["d"].encode() == batch.keys[1].as_py()
    assert round(reading["v"][0] * 1_000) == load.columns(4_000, 4_001)["milli"][0]


def test_every_device_has_the_same_share_of_a_paced_load() -> None:
    keys = Paced(start_ms=0, rate=2_000).columns(5_000, 7_000)["key"]
    assert np.bincount(keys).tolist() == [2] * 1_000


def paced(sent: list[int]) -> PacedRun:
    """A run whose readings are all due, and whose generator has sent so many each time that it is asked."""
    pacer = mock.Mock()
    type(pacer).sent = mock.PropertyMock(side_effect=sent)
    return mock.Mock(pacer=pacer, load=Paced(start_ms=0, rate=2_000))


def test_readings_are_measured_once_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were due in the moment of the end, and not sent yet, once counted as readings without a result."""
    monkeypatch.setattr(latency, "LATE_S", float("inf"))
    run = paced([3_998, 3_998, 4_000, 4_002])
    sleep_until(run, 4_000)
    assert run.pacer.sent == 4_002


def test_a_generator_that_is_too_late_is_an_error() -> None:
    with pytest.raises(TooSlowError, match=r"the generator has sent 3,998 readings, and 4,000 were due 60\.0 s ago"):
        sleep_until(paced([3_998, 3_998]), 4_000)


def client(broker: EmbeddedBroker) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def results(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    """A topic with a thousand committed results in three partitions, and as many aborted ones behind them."""
    topic = f"arrivals.{request.node.name}"
    with KafkaAdmin(client(broker)) as admin:
        admin.create_topics([TopicSpec(topic, 3, {}, 1)])
    producer = Producer({**client(broker), "transactional.id": topic})
    producer.init_transactions(60)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for n in range(1_000):
            producer.produce(topic, orjson.dumps({"t": n}), b"k-%07d|0" % n, partition=n % 3)
        producer.flush(60)
        end(60)
    return topic


@pytest.mark.kafka
def test_all_that_is_committed_is_read(broker: EmbeddedBroker, results: str) -> None:
    with ArrivalReader(client(broker), results, 3) as arrivals:
        arrivals.read_to_end()
        assert sorted(arrivals.arrivals()["key"]) == list(range(1_000))


@pytest.mark.kafka
def test_results_that_are_not_read_are_an_error(
    broker: EmbeddedBroker, results: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "TO_END_S", 3.0)
    monkeypatch.setattr(ArrivalReader, "_note", lambda *_: None)
    expected = pytest.raises(TooSlowError, match="results of partition 0 were not read up to their end, ")
    with ArrivalReader(client(broker), results, 3) as arrivals, expected:
        arrivals.read_to_end()
