"""`streams adopt` says what it would do, asks, and leaves alone what fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from state.changelog import commits_topic, ensure_commits
from state.commit.last_marker import read_last_marker
from state.commit.live import LiveKafka
from state.commit.marker import MARKER_KEY
from state.kafka.admin import KafkaAdmin, wait_until_decided
from state.kafka.producer import TransactionalProducer
from state.kafka.topics import TopicSpec
from streams import StreamsBuilder
from streams.broker import EmbeddedBroker
from streams.topology.plan import build_plan
from streams.topology.topology import Topology
from tests.checkpoint.made import made_marker

APP, INPUT = "app-adopts", "app-adopts.input"
TARGET = f"{__name__}:build"


def build() -> Topology:
    """Copies records."""
    builder = StreamsBuilder()
    builder.stream(INPUT).to("app-adopts.output")
    return builder.build()


@pytest.fixture
def client(broker: EmbeddedBroker) -> dict[str, str]:
    """An application of two tasks on two partitions with 5 records each; task 0 has committed one micro-batch more."""
    client = {"bootstrap.servers": broker.bootstrap_servers}
    (sub,) = build_plan(build(), APP).sub_topologies
    with KafkaAdmin(client) as admin:
        admin.create_topics([TopicSpec(INPUT, 2)])
        ensure_commits(admin, APP, sub.name, 2)
        topic_id = admin.describe_topics([INPUT])[INPUT].topic_id
        for task, (batch, start, end) in enumerate([(7, 2, 5), (6, 0, 3)]):
            marker = made_marker(
                task,
                topology_hash=sub.topology_hash,
                batch_id=batch,
                ranges={INPUT: {str(task): (start, end)}},
                topic_ids={INPUT: topic_id},
            )
            with TransactionalProducer(client, f"{APP}-{task}") as producer:
                producer.init_transactions()
                producer.begin()
                for _ in range(5):
                    producer.send(INPUT, task, b"k", b"v", 1)
                producer.send(commits_topic(APP, sub.name), task, MARKER_KEY, marker.to_bytes(), 1)
                producer.send_offsets({(INPUT, task): end}, APP)
                producer.commit()
        wait_until_decided(admin, [(commits_topic(APP, sub.name), task) for task in range(2)], 60)
    return client


def test_adopt(streams, client: dict[str, str], tmp_path: Path) -> None:
    (sub,) = build_plan(build(), APP).sub_topologies
    command = ["adopt", TARGET, "-a", APP, "-b", client["bootstrap.servers"]]
    checkpoint = tmp_path / "var" / "checkpoint" / APP

    for more, answer, code in ((["--dry-run"], "", 0), ([], "n\n", 1)):
        asked = streams(*command, *more, answer=answer)
        assert asked.exit_code == code, asked.output
        assert "there is no checkpoint, but 2 of 2 tasks have committed" in asked.output
        assert "have committed the last micro-batch: tasks 0" in asked.output
        assert "have not, and run it again: tasks 1" in asked.output
        assert f"{INPUT}-0: 5, {INPUT}-1: 3" in asked.output
        assert not checkpoint.exists()

    done = streams(*command, "--yes")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (checkpoint / sub.name).iterdir()) == ["first-batch.json", "metadata"]
    kafka = LiveKafka(client, 60_000)
    for task, batch in enumerate([0, -1]):
        found = read_last_marker(kafka, (commits_topic(APP, sub.name), task))
        assert found is not None
        assert (found.marker.batch_id, found.marker.version, found.marker.adopted) == (batch, 3, 3)

    again = streams(*command)
    assert again.exit_code == 0
    assert "fits: there is nothing to do" in again.output

    wrong = streams(*command, "--position", "input")
    assert wrong.exit_code == 1
    assert "TOPIC:PARTITION=OFFSET" in wrong.output
