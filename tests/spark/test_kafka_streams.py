"""`KafkaStreams` on real Spark and Kafka: an application that runs while the program goes on."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import pytest

from state.kafka.admin import KafkaAdmin, LateAdmin
from streams import BytesSerde, KafkaStreams, StreamsBuilder
from streams.spark import reports
from tests.spark.harness import Harness, Sent

WAIT_S = 120.0


def test_an_application_runs_in_the_background_until_it_is_stopped(harness: Harness) -> None:
    source, target = harness.topic("in"), harness.topic("out")
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream(source).to(target)
    changes: list[str] = []
    running = threading.Event()

    def listener(new: str, old: str) -> None:
        changes.append(new)
        if new is KafkaStreams.State.RUNNING:
            running.set()

    streams = KafkaStreams(builder.build(), harness.config(available_now=False))
    streams.set_state_listener(listener)
    events: list[str] = []
    streams.set_event_listener(lambda event: events.append(event.name))
    with streams.start(harness.spark):
        assert running.wait(WAIT_S)
        harness.send(source, [Sent(b"a", b"1", 5)])
        while not harness.read(target):
            assert not streams.await_termination(timeout=0.2)
    assert changes == ["STARTING", "RUNNING", "STOPPING", "STOPPED"]
    assert list(dict.fromkeys(events)) == ["starting", "topics_created", "running", "stopping", "stopped"]
    assert [(record.key, record.value) for record in harness.read(target)] == [(b"a", b"1")]
    # The session that was given goes on.
    assert harness.spark.range(1).count() == 1


def librdkafkas_threads() -> list[str]:
    """The names of the threads of clients that are open in this process."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        # A thread may end while it is looked at.
        with suppress(FileNotFoundError, ProcessLookupError):
            names.append(task.joinpath("comm").read_text().strip())
    return sorted(name for name in names if name.startswith("rdk:"))


def test_an_application_that_has_ended_leaves_no_client_and_no_thread(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = harness.topic("in"), harness.topic("out")
    harness.send(source, [Sent(b"a", b"1", 5)])
    monkeypatch.setattr(reports, "LOOK_S", 0.01)
    monkeypatch.setattr(reports, "_WATCH_S", 0.01)
    opened: list[KafkaAdmin] = []
    late = LateAdmin.__call__
    monkeypatch.setattr(LateAdmin, "__call__", lambda one: opened.append(late(one)) or opened[-1])
    ended: list[KafkaStreams] = []
    left = []
    for _ in range(3):
        builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
        builder.stream(source).to(target)
        # Still referred to afterwards, as in a notebook: nothing is left to the collection of garbage.
        ended.append(KafkaStreams(builder.build(), harness.config()).start(harness.spark))
        ended[-1].await_termination()
        for thread in threading.enumerate():
            if thread.name in ("broker-watch", "pause-events", "streams-instance", "restore-reports"):
                thread.join(WAIT_S)
        left.append(librdkafkas_threads())
    assert len(set(map(id, opened))) >= 6, "both watches have asked in each run"
    # What the first one leaves is shared by all of this process: one admin client for a cluster.
    assert left[1] == left[2] == left[0]
