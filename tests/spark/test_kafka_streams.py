"""`KafkaStreams` on real Spark and Kafka: an application that runs while the program goes on."""

from __future__ import annotations

import threading

from streams import BytesSerde, KafkaStreams, StreamsBuilder
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
