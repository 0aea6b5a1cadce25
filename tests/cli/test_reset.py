"""`streams reset` deletes what an application has made, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from state.commit.marker import MARKER_KEY
from state.kafka.admin import KafkaAdmin
from state.kafka.producer import TransactionalProducer
from state.kafka.topics import TopicSpec
from streams import Grouped, Materialized, StreamsBuilder
from streams.application.owned_topics import write_manifest
from streams.broker import EmbeddedBroker
from streams.topology.plan import Plan, build_plan
from tests.application.cluster import marker
from tests.kafka_client.rows import eventually

KEPT = (
    "app-resets.input",
    "app-resets-changelog-of-somebody",
    "app-resets-users-changelog",
    "app-resetsother-s-changelog",
    "app-resets-eu-s-changelog",
    "app-resets-eu-sub-commits",
)
DELETED = (
    "app-resets-s-changelog",
    "app-resets-sub-commits",
    "app-resets-by-word-repartition",
    "app-resets-by-word-repartition-commits",
    "app-resets-old-changelog",
    "app-resets-gone-commits",
)


def plan() -> Plan:
    builder = StreamsBuilder()
    words = builder.stream("sub").group_by_key().count(materialized=Materialized(name="s")).to_stream()
    words.group_by(lambda v: v, Grouped(name="by-word")).count(materialized=Materialized(name="t", logging=False))
    return build_plan(builder.build(), "app-resets")


@pytest.fixture
def application(broker: EmbeddedBroker, tmp_path: Path) -> dict[str, str]:
    """Topics, markers, committed offsets, local state and a checkpoint."""
    client = {"bootstrap.servers": broker.bootstrap_servers}
    with KafkaAdmin(client) as admin:
        admin.create_topics(TopicSpec(name, 1) for name in (*KEPT, *DELETED))
        with TransactionalProducer(client, "resets") as producer:
            producer.init_transactions()
            producer.begin()
            for topic, store in (("app-resets-gone-commits", "old"), ("app-resets-eu-sub-commits", "s")):
                owner = topic.rsplit("-", 2)[0]
                producer.send(topic, 0, MARKER_KEY, marker(owner, [store]).to_bytes(), 1)
            producer.send_offsets({(KEPT[0], 0): 5}, "app-resets")
            producer.commit()
        # They show a moment after the commit.
        eventually(lambda: admin.group_offsets("app-resets"), {(KEPT[0], 0): 5})
        places = [("app-resets-gone-commits", 0), ("app-resets-eu-sub-commits", 0)]
        eventually(lambda: admin.end_offsets(places), dict.fromkeys(places, 2))
    for folder in (
        "state/app-resets/sub/0/db",
        "state/other/sub/0/db",
        "checkpoint/app-resets/sub",
        "checkpoint/other",
    ):
        (tmp_path / "var" / folder).mkdir(parents=True)
        (tmp_path / "var" / folder / "file").touch()
    write_manifest(plan(), str(tmp_path / "var/checkpoint/app-resets"))
    return client


def test_reset(streams, application: dict[str, str], tmp_path: Path) -> None:
    servers = application["bootstrap.servers"]
    with KafkaAdmin(application) as admin:
        for asked in (
            streams("reset", "app-resets", "-b", servers, answer="n\n"),
            streams("reset", "app-resets", "-b", servers, "--dry-run", "--yes"),
        ):
            assert asked.exit_code == (0 if "nothing was deleted" in asked.output else 1)
            assert all(f"  {name}: up to " in asked.output for name in DELETED)
            assert "not app-resets-eu-s-changelog: it belongs to the application app-resets-eu" in asked.output
            assert "not app-resets-users-changelog: nothing proves" in asked.output
            assert "warning: the last commit is" in asked.output
            assert admin.group_offsets("app-resets") == {(KEPT[0], 0): 5}
            assert set(admin.describe_topics(DELETED)) == set(DELETED)

        found = json.loads(streams("reset", "-a", "app-resets", "-b", servers, "--dry-run", "--json").output)
        assert (found["deleted"], sorted(found["topics"])) == (False, sorted(DELETED))
        assert "cannot ask" in streams("reset", "app-resets", "-b", servers, "--json").output
        assert set(admin.describe_topics(DELETED)) == set(DELETED)

        done = streams("reset", "app-resets", "-b", servers, "--yes")
        assert done.exit_code == 0, done.output
        assert "deleted consumer group app-resets" in done.output
        assert "deleted local state of 1 task" in done.output
        assert admin.describe_topics(DELETED) == {}
        assert set(admin.describe_topics(KEPT)) == set(KEPT)
        assert admin.group_offsets("app-resets") == {}
        assert [path.name for path in sorted((tmp_path / "var").glob("*/*"))] == ["other", "other"]

        again = streams("reset", "app-resets", "-b", servers, "--yes", "--topics", "app-resets-users-changelog")
        assert again.exit_code == 0, again.output
        assert "topics: 1" in again.output
        assert set(admin.describe_topics(KEPT)) == {*KEPT} - {"app-resets-users-changelog"}
        assert "topics: none" in streams("reset", "app-resets", "-b", servers, "--yes").output
        admin.delete_topics(KEPT)


@pytest.mark.parametrize("name", [".", ".."])
def test_folders_are_no_applications(streams, name: str, tmp_path: Path) -> None:
    (tmp_path / "var/state/app/sub/0").mkdir(parents=True)
    result = streams("reset", name, "-b", "nowhere:1", "--yes")
    assert (result.exit_code, "dots alone mean other folders" in result.output) == (1, True), result.output
    assert (tmp_path / "var/state/app/sub/0").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("one", "-a", "two"), "Two applications are named, 'one' and 'two'"), ((), "application_id: it must be given")],
)
def test_one_application_is_reset_at_a_time(streams, arguments: tuple[str, ...], said: str) -> None:
    result = streams("reset", *arguments, "-b", "nowhere:1", "--yes")
    assert (result.exit_code, said in result.output) == (1, True), result.output


@pytest.mark.parametrize("target", ["app.py", "shop.app:build"])
def test_a_topology_in_the_place_of_the_id_is_refused(streams, target: str) -> None:
    result = streams("reset", target, "-b", "nowhere:1", "--dry-run")
    assert (result.exit_code, f"'{target}' is a topology, and a reset takes the application's id" in result.output) == (
        1,
        True,
    ), result.output
