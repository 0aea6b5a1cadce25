"""Queries that end, fail for good, or fail for a reason that passes: with queries, a clock and a broker of this test's own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

from state.errors import ClientFailure, KafkaClientError
from streams.errors import ApplicationFailedError
from streams.logs.events import BROKER_AWAY, BROKER_BACK, QUERY_RESTARTED, Event, Events
from streams.metrics.recorder import START
from streams.spark.progress import Progress
from streams.spark.queries import Supervisor
from streams.spark.reports import AGAIN_S, BrokerWatch
from streams.spark.stopping import StopGate

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
    now: float = 0.0
    started: list[float] = field(default_factory=list)
    said: StringIO = field(default_factory=StringIO)
    stop: threading.Event = field(default_factory=threading.Event)
    after: Callable[[World], None] = lambda world: None
    events: list[Event] = field(default_factory=list)
    readiness: list[str] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def probe(self) -> None:
        if self.now < self.broker_back_at:
            raise KafkaClientError("no answer", ClientFailure(-195, "_TRANSPORT", "refused"))

    def start(self) -> Any:
        self.started.append(self.now)
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
        Supervisor(self.stop, {"run": StopGate()}, progress, watch, wait_s, self.clock, events=events).run([self.start])


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
