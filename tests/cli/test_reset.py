"""`streams reset` deletes what an application has made, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from state.kafka.admin import KafkaAdmin
from state.kafka.producer import TransactionalProducer
from state.kafka.topics import TopicSpec
from streams.broker import EmbeddedBroker
from tests.kafka_client.rows import eventually

KEPT = ("app-resets.input", "app-resets-changelog-of-somebody", "app-resetsother-s-changelog")
DELETED = ("app-resets-s-changelog", "app-resets-sub-commits", "app-resets-by-word-repartition")


@pytest.fixture
def application(broker: EmbeddedBroker, tmp_path: Path) -> dict[str, str]:
    """Topics, committed offsets, local state and a checkpoint."""
    client = {"bootstrap.servers": broker.bootstrap_servers}
    with KafkaAdmin(client) as admin:
        admin.create_topics(TopicSpec(name, 1) for name in (*KEPT, *DELETED))
        with TransactionalProducer(client, "resets") as producer:
            producer.init_transactions()
            producer.begin()
            producer.send_offsets({(KEPT[0], 0): 5}, "app-resets")
            producer.commit()
        # They show a moment after the commit.
        eventually(lambda: admin.group_offsets("app-resets"), {(KEPT[0], 0): 5})
    for folder in (
        "state/app-resets/sub/0/db",
        "state/other/sub/0/db",
        "checkpoint/app-resets/sub",
        "checkpoint/other",
    ):
        (tmp_path / "var" / folder).mkdir(parents=True)
        (tmp_path / "var" / folder / "file").touch()
    return client


def test_reset(streams, application: dict[str, str], tmp_path: Path) -> None:
    servers = application["bootstrap.servers"]
    with KafkaAdmin(application) as admin:
        asked = streams("reset", "app-resets", "-b", servers, answer="n\n")
        assert asked.exit_code == 1
        assert all(name in asked.output for name in DELETED)
        assert admin.group_offsets("app-resets") == {(KEPT[0], 0): 5}

        done = streams("reset", "app-resets", "-b", servers, "--yes")
        assert done.exit_code == 0, done.output
        assert "deleted consumer group app-resets" in done.output
        assert "deleted local state of 1 tasks" in done.output
        assert admin.describe_topics(DELETED) == {}
        assert set(admin.describe_topics(KEPT)) == set(KEPT)
        assert admin.group_offsets("app-resets") == {}
        assert [path.name for path in sorted((tmp_path / "var").glob("*/*"))] == ["other", "other"]

        again = streams("reset", "app-resets", "-b", servers, "--yes")
        assert again.exit_code == 0, again.output
        assert "topics: none" in again.output
        admin.delete_topics(KEPT)
