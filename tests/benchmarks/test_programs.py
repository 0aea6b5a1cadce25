"""Every workload at a size that only shows that it still works, output verified: all in the driver, one of each sort on Spark."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import orjson
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks import staleness
from benchmarks.failover import failovers
from benchmarks.generators.events import Events
from benchmarks.generators.paced import Paced
from benchmarks.generators.records import Batch, Columns
from benchmarks.growth import SERIES, points
from benchmarks.harness import latency, peers, reader
from benchmarks.harness.cluster import Cluster
from benchmarks.harness.latency import PacedRun, sleep_until
from benchmarks.harness.monitor import TooSlowError
from benchmarks.harness.reader import ArrivalReader, latencies
from benchmarks.harness.run import Loaded, Options
from benchmarks.harness.system import SessionSystem
from benchmarks.look_ups import main
from benchmarks.nexmark.workloads import Nexmark
from benchmarks.reads import reads
from benchmarks.verify.output import CLOSING, Row
from benchmarks.workloads.base import PARTITIONS, Output, RunConfig, closing_key, session_key, windowed_key
from benchmarks.workloads.catalogue import WORKLOADS
from benchmarks.workloads.shuffle import rules_of
from state.kafka.admin import KafkaAdmin
from state.kafka.key_hash import partition_for_key
from state.kafka.topics import TopicSpec
from streams import BytesSerde
from streams.broker import EmbeddedBroker
from streams.config import Execution, StreamsConfig
from streams.driver.progress import Progress
from streams.driver.runner import StreamsApplication
from streams.testing import TopologyTestDriver
from tests.spark.live import running_in_thread
from topologies.records import create_topics

ON_SPARK = ("windows",)
LONG_ON_SPARK = ("devices", "enrich", "table-fill", "restore", "latency", "recovery")
"""One of each other procedure, one with probes, one with several output topics, and one with several sub-topologies."""
KEYED = [name for name, one in WORKLOADS.items() if not isinstance(one, Nexmark)]
"""Those of one topic of events without keys are compared with DuckDB by `test_nexmark`."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ON_SPARK, *(pytest.param(one, marks=pytest.mark.long) for one in LONG_ON_SPARK)])
def test_the_engine_computes_what_the_verifier_expects(
    name: str, cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    options = Options("smoke", make_system=lambda peer, config, folder: SessionSystem(config, spark))
    loaded = Loaded(cluster, WORKLOADS[name], options, tmp_path)
    loaded.load()
    run = loaded.run(peers.find(peers.OURS))
    assert run.outcome == "verified", run.why
    assert run.records > 0
    assert run.figures["internal_records"] > 0
    assert "without_result" not in run.figures
    loaded.delete()


@dataclass(frozen=True)
class DriverOutput(Output):
    """The output of a workload that `TopologyTestDriver` has run."""

    driver: TopologyTestDriver | None = None

    def last_values(self, role: str = "out") -> tuple[dict[bytes, Any], int]:
        records = self._records(role)
        return {key: orjson.loads(value) for key, value in dict(records).items() if value is not None}, len(records)

    def rows(
        self, read: Callable[[bytes, Any], Row], role: str = "out", parse: Callable[[bytes], Any] = orjson.loads
    ) -> list[Row]:
        return [read(key, parse(value)) for key, value in self._records(role)]

    def _records(self, role: str) -> list[tuple[bytes, bytes]]:
        assert self.driver is not None
        topic = self.driver.create_output_topic(self.config.topics[role], BytesSerde(), BytesSerde())
        found = [(record.key, record.value) for record in topic.read_records_to_list()]
        return [one for one in found if not one[0].startswith(CLOSING)]


def pipe(driver: TopologyTestDriver, batches: Iterable[Batch]) -> None:
    """Pipes the records in three micro-batches, which end at the same times in all topics, as those of a backlog do."""
    batches = list(batches)
    begin, end = min(one.timestamps.min() for one in batches), max(one.timestamps.max() for one in batches)
    steps = [(np.maximum.accumulate(one.timestamps) - begin) * 3 // (end + 1 - begin) for one in batches]
    for step in range(3):
        with driver.batch():
            for batch, of in zip(batches, steps, strict=True):
                topic = driver.create_input_topic(batch.role)
                for row in np.flatnonzero(of == step).tolist():
                    key = None if batch.keys is None else batch.keys[row].as_py()
                    partition = None if batch.partitions is None else int(batch.partitions[row])
                    topic.pipe_bytes(key, batch.values[row].as_py(), int(batch.timestamps[row]), partition=partition)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KEYED if name not in (*ON_SPARK, *LONG_ON_SPARK)])
def test_a_program_computes_what_the_verifier_expects(name: str) -> None:
    # The driver takes single records, so there are fewer than in a smoke run.
    workload = WORKLOADS[name].varied(sizes={"smoke": 5_000})
    roles = {role: role for role in (*workload.inputs, *workload.outputs)}
    parameters = workload.parameters_of("smoke")
    config = RunConfig(name, name, "", roles, PARTITIONS, 2, "exactly-once", "", parameters)
    partitions = dict.fromkeys(workload.inputs, PARTITIONS)
    with TopologyTestDriver(workload.topology(config), partitions=partitions) as driver:
        batches = list(workload.batches("smoke"))
        pipe(driver, batches)
        if probes := list(workload.probes("smoke")):
            pipe(driver, probes)
        if workload.closes:
            pipe(driver, workload.closing(1, max(int(one.timestamps.max()) for one in batches)))
        verdict = workload.verify("smoke", DriverOutput(config, driver=driver))
    assert verdict.accepted, verdict.differences
    assert verdict.output_records > 0


# The benchmark `failover` reads the whole changelog in the first way, and the tail alone in the others.


def test_only_the_changelog_way_reads_the_whole_changelog():
    found = {one.way: one.records for one in failovers(5_000, 100)}
    assert (found["changelog"], found["snapshot"], found["replica"]) == (5_000, 100, 100)


# The benchmark of look-ups, at a small size; it compares every value that it reads.


def test_look_ups_are_measured(capsys):
    main(rows=[2_000], steps=4, count=500)
    figures = [line.split("│") for line in capsys.readouterr().out.splitlines() if "2,000" in line]
    assert len(figures) == 1
    assert all(float(figure) > 0 for figure in figures[0][2:4])


# The parts of a small step, measured without Spark: in a process of its own, whose clients and databases end with it.


@pytest.mark.kafka
def test_each_part_of_a_step_is_measured() -> None:
    command = [sys.executable, "-m", "benchmarks.small_steps", "--steps", "16", "--records", "200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    parts = {line.split()[0]: [float(figure) for figure in line.split()[1:]] for line in done.stdout.splitlines()[1:]}
    assert {"fence", "decide", "restore", "process", "commit", "apply", "step"} <= set(parts)
    assert all(figure > 0 for figure in parts["step"])


# How far reads of a served store are behind, with an application in this process.


@pytest.mark.long
def test_how_far_reads_are_behind_is_measured(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    servers = cluster.client["bootstrap.servers"]
    create_topics({"bootstrap.servers": servers}, [staleness.INPUT, staleness.RESULTS], staleness.TASKS)
    settings = {"application_id": "staleness", "bootstrap_servers": servers, "base_dir": tmp_path / "application"}
    config = StreamsConfig(**settings, execution=Execution.LIVE)
    application = StreamsApplication(staleness.build(), config, Progress("staleness", Console(file=io.StringIO())))
    with running_in_thread(application, spark):
        behind, took_ms = staleness.measure(servers, "staleness", tmp_path / "serve", 200, 2.0)
    assert len(behind) >= len(staleness.READ)
    assert all(0 <= one < 60_000 for one in behind)
    assert len(took_ms) >= len(staleness.READ)
    assert 0 < sum(took_ms) / len(took_ms) < 2_000


def test_how_long_after_another_each_count_was_seen() -> None:
    first, last = staleness.Seen(), staleness.Seen()
    first._at["key-0"] = [(1.0, 5), (2.0, 6), (3.0, 8), (4.0, 9)]
    # 6 and 8 came together; 9 has not come yet.
    last._at["key-0"] = [(1.5, 5), (3.1, 8)]
    assert last.behind(first, after=1.5) == pytest.approx([1100.0, 100.0])


# The series of growth: each point is a workload that differs from its own in one thing.


@pytest.mark.parametrize("name", SERIES)
def test_a_point_changes_the_input_or_a_setting_but_not_the_workload(name: str) -> None:
    found = list(points(name, None))
    assert [point.value for point in found] == list(SERIES[name].values)
    for point in found:
        assert point.workload.name == SERIES[name].workload
        assert point.workload is not WORKLOADS[point.workload.name] or point.settings


def test_larger_values_can_be_left_out() -> None:
    assert [point.value for point in points("keys", 10_000)] == [1_000, 10_000]


def test_a_varied_workload_leaves_its_own_as_it_is() -> None:
    few = WORKLOADS["counts"].varied(keys=10, sizes={"smoke": 500})
    assert {len(batch) for batch in few.batches("smoke")} == {500}
    assert WORKLOADS["counts"].keys == 100_000  # type: ignore[attr-defined]


def test_a_skewed_key_is_more_frequent_than_the_others() -> None:
    skewed = WORKLOADS["counts"].varied(keys=1_000, skew=1.5, sizes={"smoke": 10_000})
    counts = skewed.events("smoke").columns()["key"]  # type: ignore[attr-defined]
    most = max((counts == key).sum() for key in set(counts.tolist()))
    assert most > 2_000


# Latency: what an input record waits for until a result that contains it has arrived; and the load that is sent when it is due.


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


# The generators: the same bytes for the same seed, in the formats that `benchmarks/README.md` promises.

JSON = [name for name in KEYED if name not in ("shuffle", "shufflebench")]


@pytest.mark.parametrize("name", [*KEYED, "nexmark-suite-q0", "nexmark-suite-q13"])
def test_the_input_is_the_same_each_time(name: str) -> None:
    """All queries of Nexmark have the same events, and q13 a table beside them."""
    first, again = (
        [
            (batch.role, batch.keys, batch.values, batch.timestamps.tolist())
            for batch in WORKLOADS[name].batches("smoke")
        ]
        for _ in range(2)
    )
    assert first == again


@pytest.mark.parametrize("name", JSON)
def test_values_are_json_objects_and_keys_are_texts(name: str) -> None:
    for batch in WORKLOADS[name].batches("smoke"):
        assert set(batch.role.split()) <= set(WORKLOADS[name].inputs)
        for row in (0, len(batch) - 1):
            assert isinstance(orjson.loads(batch.values[row].as_py()), dict)
            assert b"-" in batch.keys[row].as_py()


@given(st.integers(1, 60), st.lists(st.integers(0, 2**63 - 1), max_size=8))
def test_a_record_of_shufflebench_goes_to_the_consumers_whose_ranges_have_its_hash(
    count: int, others: list[int]
) -> None:
    rules = rules_of(count)
    edges = [(offset + more) % 2**63 for offset in rules.offsets for more in (-1, 0, rules.width - 1, rules.width)]
    hashes = np.array([*edges, *others, 0, 2**63 - 1], np.uint64)
    ranges = list(zip(rules.offsets, rules.consumers, strict=True))
    expected = [
        (at, consumer) for at in hashes.tolist() for offset, consumer in ranges if (at - offset) % 2**63 < rules.width
    ]
    found = [(at, one) for at in hashes.tolist() for one in rules.matching(at.to_bytes(8, "big"))]
    assert sorted(found) == sorted(zip(*map(np.ndarray.tolist, rules.pairs(hashes)), strict=True)) == sorted(expected)
    assert sorted(rules.consumers) == list(range(count))


def test_a_record_of_shufflebench_has_a_fifth_of_a_consumer() -> None:
    hashes = np.random.default_rng(1).integers(0, 2**63, 100_000, np.uint64)
    assert len(rules_of(1_000_000).pairs(hashes)[1]) == pytest.approx(20_000, rel=0.03)


def test_an_event_has_a_hundred_bytes_and_its_number() -> None:
    batch = next(Events(10, keys=5, rate=1_000).batches("events"))
    assert {len(value) for value in batch.values.to_pylist()} == {100}
    assert sorted(orjson.loads(value)["n"] for value in batch.values.to_pylist()) == list(range(10_000_000, 10_000_010))


def test_late_events_come_after_those_of_their_time_by_at_most_the_given_time() -> None:
    times = Events(20_000, keys=5, rate=10_000, late_share=0.01, late_ms=50).columns()["timestamp"]
    behind = np.maximum.accumulate(times) - times
    assert 100 < (behind > 0).sum() < 300
    assert behind.max() <= 50


def test_there_is_a_closing_key_for_each_partition() -> None:
    keys = [closing_key(partition, PARTITIONS) for partition in range(PARTITIONS)]
    assert [partition_for_key(key, PARTITIONS) for key in keys] == list(range(PARTITIONS))


def test_keys_of_windows_are_read_as_texts_and_as_kafka_streams_bytes() -> None:
    start, end = (1_700_000_000_000).to_bytes(8, "big"), (1_700_000_000_124).to_bytes(8, "big")
    assert windowed_key(b"k-0000017|1700000000000") == (17, 1_700_000_000_000)
    assert windowed_key(b"k-0000017" + start) == (17, 1_700_000_000_000)
    bar = int.from_bytes(start[:-2] + b"|5", "big")
    assert windowed_key(b"k-0000017" + start[:-2] + b"|5") == (17, bar)
    assert session_key(b"k-0000017|1700000000000|1700000000124") == (17, 1_700_000_000_000, 1_700_000_000_124)
    assert session_key(b"k-0000017" + end + start) == (17, 1_700_000_000_000, 1_700_000_000_124)


# The benchmark `reads` reads what it asks for in every way.


@pytest.mark.slow
def test_reads_find_their_rows() -> None:
    found = {one.way: one.rows for one in reads(3_000, 1_000)}
    ranges = {way: rows for way, rows in found.items() if way.startswith("a range")}
    assert len(ranges) == 3
    assert {way: rows for way, rows in found.items() if way not in ranges} == {
        "a key, from Python": 1_000,
        "1000 keys at once": 1_000,
        "a key, over HTTP": 1_000,
        "1000 keys, over HTTP": 1_000,
        "1000 keys, as Arrow": 1_000,
        "SQL, by key": 20,
        "StoreClient.get": 1_000,
    }
    assert 0 < ranges.pop("a range of 1000 rows") <= 1_000
    # Over HTTP only ranges that have 1000 rows are asked for.
    assert all(rows > 0 and rows % 1_000 == 0 for rows in ranges.values())
