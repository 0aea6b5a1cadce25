"""Queries that end, fail for good, or fail for a reason that passes: with queries, a clock and a broker of this test's own."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from state.errors import ClientFailure, KafkaClientError
from state.kafka.topics import TopicInfo
from streams import StreamsBuilder
from streams.application.prepare import Application, PreparedSub
from streams.broker import EmbeddedBroker, fetch_jars
from streams.config import StreamsConfig
from streams.driver import reports
from streams.driver.live import LiveGate
from streams.driver.progress import Progress, position_of, positions_of, sub_of
from streams.driver.queries import Supervisor
from streams.driver.reports import AGAIN_S, BrokerWatch
from streams.driver.runner import StreamsApplication
from streams.driver.stopping import StopGate
from streams.engine.source.offsets import SourceOffsets, TopicOffsets
from streams.errors import ApplicationFailedError, SinkUnavailableError
from streams.logs.events import BROKER_AWAY, BROKER_BACK, QUERY_RESTARTED, Event, Events
from streams.metrics.recorder import START
from streams.topology.plan import build_plan
from tests.spark.harness import Harness, Sent, last_per_key
from tests.spark.live import eventually, running_in_thread

AWAY = "state.errors.KafkaClientError: describing topic 'in' failed; check [b] brokers [_TRANSPORT (-195): refused]"
RIGHTS = "state.errors.KafkaClientError: reading in-0 failed [TOPIC_AUTHORIZATION_FAILED (29): not yours]"


@dataclass
class Query:
    """A query that lives for some looks, and ends well or with an error."""

    failure: str | None = None
    looks: int = 1
    lastProgress: Any = None
    name: str = "app/in"
    runId: str = "run"

    @property
    def isActive(self) -> bool:
        self.looks -= 1
        return self.looks >= 0

    def exception(self) -> Exception | None:
        return Exception(self.failure) if self.failure else None

    def stop(self) -> None:
        self.looks = 0


@dataclass
class World:
    """Runs of one query, one after the other; a broker, and a clock that goes on with each look at it."""

    runs: list[Query]
    broker_back_at: float = 0.0
    store_back_at: float = 0.0
    now: float = 0.0
    started: list[float] = field(default_factory=list)
    said: StringIO = field(default_factory=StringIO)
    stop: threading.Event = field(default_factory=threading.Event)
    after: Callable[[World], None] = lambda world: None
    events: list[Event] = field(default_factory=list)
    readiness: list[str] = field(default_factory=list)
    gate: StopGate = field(default_factory=StopGate)

    def clock(self) -> float:
        return self.now

    def probe(self) -> None:
        if self.now < self.broker_back_at:
            raise KafkaClientError("no answer", ClientFailure(-195, "_TRANSPORT", "refused"))

    def start(self) -> Any:
        self.started.append(self.now)
        if len(self.started) > 1 and self.now < self.store_back_at:
            raise SinkUnavailableError("app/db: the database does not answer")
        return self.runs[min(len(self.started), len(self.runs)) - 1]

    def run(self, wait_s: float = 600) -> None:
        progress = Progress("app", Console(file=self.said, width=1000))
        events = Events("app", progress.say, self.events.append)
        progress.metrics.obstacle(START, None)
        tell = partial(progress.metrics.obstacle, "broker")
        watch = BrokerWatch(self.probe, events, "host:9092", self.clock, tell)
        world = self

        class Stop(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                """Time goes on; meanwhile the brokers are looked at, as the watch's thread does."""
                world.now += 1
                if watch.due():
                    watch.look()
                world.after(world)
                if (why := progress.metrics.readiness().why) not in world.readiness[-1:]:
                    world.readiness.append(why)
                return self.is_set()

        self.stop = Stop()
        Supervisor(self.stop, {"run": self.gate}, progress, watch, wait_s, self.clock, events=events).run([self.start])


def test_a_query_that_failed_for_a_passing_reason_starts_again_once_the_broker_answers() -> None:
    world = World([Query(AWAY), Query()], broker_back_at=70)
    world.run()
    assert world.started[0] == 0
    assert 70 <= world.started[1] <= 72
    said = world.said.getvalue()
    sentence = "KafkaClientError: describing topic 'in' failed; check [b] brokers [_TRANSPORT (-195): refused]"
    assert said.count(f"app/in starts again by itself after: {sentence}") == 1
    assert said.count("waiting for the broker at host:9092 since ") == 1 + int(70 // AGAIN_S)
    assert "host:9092 answers again after" in said
    assert [event.kind for event in world.events] == [BROKER_AWAY, BROKER_AWAY, BROKER_BACK, QUERY_RESTARTED]
    restarted = world.events[-1]
    assert (restarted.sub_topology, restarted.fields) == ("in", {"attempt": 2, "reason": sentence})


def test_a_sink_whose_store_is_away_is_opened_again_until_it_answers() -> None:
    failure = "streams.errors.SinkUnavailableError: app/db: the database does not answer"
    world = World([Query(failure), Query()], store_back_at=90)
    world.run()
    assert len(world.started) > 3
    assert world.started[-1] >= 90
    assert [event.kind for event in world.events] == [QUERY_RESTARTED]
    gone = World([Query(failure)], store_back_at=900)
    with pytest.raises(ApplicationFailedError, match=r"does not answer.* failed like this for 120 s"):
        gone.run(wait_s=120)


def test_a_query_that_lost_an_executor_halfway_through_a_micro_batch_repeats_it() -> None:
    failure = (
        "SparkException: Job aborted due to stage failure: A shuffle map stage with indeterminate output was failed "
        "and retried. However, Spark cannot rollback the ResultStage 8 to re-process the input data, and has to fail this job."
    )
    world = World([Query(failure), Query()])
    world.run()
    assert len(world.started) == 2
    assert [event.kind for event in world.events] == [QUERY_RESTARTED]


def test_an_application_is_not_ready_while_its_query_or_its_broker_is_away() -> None:
    world = World([Query(AWAY), Query(looks=3, lastProgress=progress_of(1))], broker_back_at=10)
    world.run()
    query, broker = "app/in has failed and starts again", "the broker at host:9092 does not answer"
    assert world.readiness == [broker, f"{broker}; {query}", query, "app is running"]


def test_longer_and_longer_pauses_up_to_the_bound() -> None:
    world = World([Query(AWAY, looks=2)])
    world.runs = [Query(AWAY, looks=2) for _ in range(100)]
    with pytest.raises(ApplicationFailedError, match=r"failed like this for 120 s .*broker_wait_ms.* Nothing is lost"):
        world.run(wait_s=120)
    pauses = [later - earlier for earlier, later in pairwise(world.started)]
    assert pauses == sorted(pauses)
    assert 120 <= world.now <= 125
    assert 5 <= len(world.started) <= 12


def test_progress_begins_the_bound_anew() -> None:
    runs = [Query(AWAY, looks=2, lastProgress=progress_of(n)) for n in range(20)]
    world = World([*runs, Query()])
    world.run(wait_s=10)
    assert len(world.started) == 21
    assert world.now > 20


def test_a_live_query_makes_progress_by_the_reports_of_its_slots() -> None:
    """It has one micro-batch, which never ends, so Spark reports none."""
    driver: Any = SimpleNamespace(heard=0, stop=lambda: None)
    world = World([*(Query(AWAY, looks=2) for _ in range(20)), Query()], gate=LiveGate(driver))

    def report(_: World) -> None:
        driver.heard += 1

    world.after = report
    world.run(wait_s=10)
    assert len(world.started) == 21
    silent = World([Query(AWAY, looks=2)], gate=LiveGate(driver))
    with pytest.raises(ApplicationFailedError):
        silent.run(wait_s=10)


def test_no_broker_comes_back() -> None:
    world = World([Query(AWAY)], broker_back_at=1_000_000)
    with pytest.raises(ApplicationFailedError, match="KafkaClientError: describing topic 'in' failed"):
        world.run(wait_s=100)
    assert len(world.started) == 1
    assert 100 <= world.now <= 105


def test_what_does_not_pass_ends_at_once() -> None:
    world = World([Query(RIGHTS), Query()])
    with pytest.raises(ApplicationFailedError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        world.run()
    assert "broker_wait_ms" not in str(caught.value)
    assert world.started == [0]
    world = World([Query(AWAY), Query()])
    with pytest.raises(ApplicationFailedError, match="_TRANSPORT"):
        world.run(wait_s=0)


def test_a_stop_ends_the_waiting_at_once() -> None:
    def after(world: World) -> None:
        if world.now == 30:
            world.stop.set()

    world = World([Query(AWAY)], broker_back_at=1_000_000, after=after)
    world.run()
    assert world.now == 30


def test_silence_is_looked_into() -> None:
    world = World([Query(looks=100)], broker_back_at=50)
    world.run()
    assert "waiting for the broker at host:9092" in world.said.getvalue()
    assert world.started == [0]


def progress_of(n: int) -> dict[str, Any]:
    return {"name": "app/in", "batchId": n, "sources": [{"endOffset": None, "latestOffset": None}]}


# --- A broker that is killed under a running application, and comes back on the same data and port: nothing but time is lost.
#
# `BROKER_AWAY_S=75` keeps it away for so many seconds; without it, for as long as it takes the application to notice.

AWAY_S = float(os.environ.get("BROKER_AWAY_S", "0"))


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker of these tests' own."""
    fetch_jars()
    folder = tmp_path_factory.mktemp("mortal")
    with EmbeddedBroker(folder, die_with_parent=True, start_timeout_s=240) as broker:
        yield broker


@dataclass
class Counts:
    """An application that counts values; whoever comes to the value `held` waits until `gate` is there."""

    broker: EmbeddedBroker
    spark: SparkSession
    folder: Path
    shown: io.StringIO = field(default_factory=io.StringIO)

    def __post_init__(self) -> None:
        # A query that fails is one of micro-batches: a live task waits within its attempt.
        self.harness = Harness(
            self.broker.bootstrap_servers, self.spark, self.folder, "broker-away", micro_batches=True
        )
        self.source, self.target = self.harness.topic("source", 2), self.harness.topic("target", 2)
        gate, entered = self.folder / "gate", self.folder / "entered"

        def held(key: str, count: int) -> int:
            while key == "held" and not gate.exists():
                entered.touch()
                time.sleep(0.05)
            return count

        builder = StreamsBuilder()
        counts = builder.stream(self.source).group_by(lambda key, value: value).count()
        counts.to_stream().map_values(held).to(self.target)
        progress = Progress("away", Console(file=self.shown, width=1000))
        config = self.harness.config(available_now=False, transaction_timeout_ms=2_000)
        self.application = StreamsApplication(builder.build(), config, progress)
        self.gate, self.entered = gate, entered

    def send(self, *words: str) -> None:
        """Writes values."""
        records = [Sent(None, b'"%s"' % word.encode(), 1_000, n % 2) for n, word in enumerate(words)]
        self.harness.send(self.source, records)

    def counted(self, **expected: int) -> bool:
        """Whether these are the counts."""
        found = last_per_key(self.harness.read(self.target))
        return found == {word.encode(): b"%d" % count for word, count in expected.items()}

    def said(self, text: str, times: int = 1) -> bool:
        """Whether the user was told something so often."""
        return self.shown.getvalue().count(text) >= times

    def each_once(self) -> bool:
        """Whether no result was written twice."""
        found = [(record.key, record.value) for record in self.harness.read(self.target)]
        return len(set(found)) == len(found)


@pytest.fixture
def counts(
    mortal: EmbeddedBroker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Counts]:
    # Who is silent is asked about soon: that waiting is what takes the time of these tests.
    monkeypatch.setattr(reports, "QUIET_S", 2.0)
    monkeypatch.setattr(reports, "_REQUEST_S", 2.0)
    yield Counts(mortal, spark, tmp_path)
    mortal.start()


def test_a_broker_that_is_killed_within_a_step(counts: Counts) -> None:
    with running_in_thread(counts.application, counts.spark) as check:
        counts.send("a", "b", "a")
        eventually(lambda: check() or counts.counted(a=2, b=1), "the first counts")
        counts.send("a", "held")
        eventually(lambda: check() or counts.entered.exists(), "a task is in the middle of a step")
        # Not within a commit of the other task: Kafka 4.3 may leave such a transaction hanging (KAFKA-20734).
        time.sleep(1)
        counts.broker.kill()
        gone = time.monotonic()
        counts.gate.touch()
        # The task fails in each of its attempts, and the query with it.
        eventually(lambda: check() or counts.said("starts again by itself after: "), "the query has failed")
        while time.monotonic() - gone < AWAY_S:
            time.sleep(0.5)
            check()
        counts.broker.start()
        counts.send("b", "c")
        eventually(lambda: check() or counts.counted(a=3, b=2, c=1, held=1), "all counts")
    assert counts.said("waiting for the broker at ")
    assert counts.said(" answers again after ")
    assert counts.each_once()


@pytest.mark.long
def test_a_broker_that_is_killed_while_nothing_happens_and_a_stop_meanwhile(counts: Counts) -> None:
    with running_in_thread(counts.application, counts.spark) as check:
        counts.send("a", "b", "a")
        eventually(lambda: check() or counts.counted(a=2, b=1), "the first counts")
        counts.broker.kill()
        gone = time.monotonic()
        eventually(lambda: check() or counts.said("waiting for the broker at "), "it is said")
        while time.monotonic() - gone < AWAY_S:
            time.sleep(0.5)
            check()
        counts.broker.start()
        counts.send("b", "c")
        eventually(lambda: check() or counts.counted(a=2, b=2, c=1), "all counts")
        assert counts.each_once()
        eventually(lambda: check() or counts.said(" answers again after "), "it is said that it is over")
        counts.broker.kill()
        eventually(lambda: check() or counts.said("waiting for the broker at ", 2), "it is said again")
    # The application has ended, and the broker is still away.
    assert not counts.said(" answers again after ", 2)


# --- Whether a run over what is there has read all that its parts have written for each other; no Spark, no broker.


class Admin:
    """Internal topics of two partitions that end at 7 and 9; and a group in which a stranger has committed."""

    def __init__(self, strangers: int) -> None:
        self.strangers = strangers

    def describe_topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo("id", 2) for name in names}

    def end_offsets(self, places: list[tuple[str, int]], committed: bool = True) -> dict[tuple[str, int], int]:
        assert not committed
        return {place: (7, 9)[place[1]] for place in places}

    def group_offsets(self, group: str, places: Any) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, self.strangers)


def unfinished(tmp_path: Path, strangers: int, read: Mapping[str, tuple[int, ...]]) -> list[str]:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count().to_stream().repartition().to("out")
    plan = build_plan(builder.build(), "app")
    config = StreamsConfig(application_id="app", bootstrap_servers="host:1", base_dir=tmp_path)
    application = Application(plan, config, tuple(PreparedSub(sub, 2) for sub in plan.sub_topologies))
    (internal,) = plan.repartition_topics
    (second,) = [sub.name for sub in plan.sub_topologies if sub.reads_internal]
    assert len(plan.sub_topologies) == 2
    positions = {
        name: SourceOffsets({internal: TopicOffsets("id", at)})
        for name, at in zip([second], read.values(), strict=False)
    }
    found = application.unfinished(Admin(strangers), positions)  # type: ignore[arg-type]
    return ["second" if prepared.sub.name == second else prepared.sub.name for prepared in found]


def test_what_the_query_has_read_counts_and_not_what_anybody_has_committed(tmp_path: Path) -> None:
    for strangers in (0, 1_000):
        assert unfinished(tmp_path, strangers, {"second": (7, 9)}) == []
        assert unfinished(tmp_path, strangers, {"second": (7, 8)}) == ["second"]
        # Of a query that has told nothing, nobody knows: it runs once more, and a run without steps is the last one.
        assert unfinished(tmp_path, strangers, {}) == ["second"]


def test_the_position_of_a_query_as_spark_tells_it() -> None:
    at = SourceOffsets({"in": TopicOffsets("id", (3,))})
    progress = {"name": "app/in", "sources": [{"endOffset": at.to_json()}]}
    assert (sub_of(progress), position_of(progress)) == ("in", at)
    assert position_of({"name": "app/in", "sources": [{"endOffset": None}]}) is None
    assert position_of(None) is None
    # A query that reads no topics, such as a Delta table's, has offsets of another kind.
    delta = {"reservoirVersion": 3, "index": -1}
    assert position_of({"name": "app/orders", "sources": [{"endOffset": delta}]}) is None
    assert positions_of(delta, delta) == {}
