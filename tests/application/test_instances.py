"""A second instance learns that the first one runs, and the commands that change its state are refused meanwhile."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from state.errors import ClientFailure, KafkaClientError
from state.kafka.admin import KafkaAdmin
from state.kafka.consumers import GroupMember
from state.kafka.producer import TransactionalProducer
from streams.application.instances import (
    LOCK,
    Instance,
    check_group_is_free,
    check_not_running,
    only_instance,
    seen_as_running,
    shown_as_running,
    while_stopped,
)
from streams.application.start import check_places
from streams.broker import EmbeddedBroker
from streams.config import StreamsConfig
from streams.errors import AlreadyRunningError, ConfigError
from tests.application.cluster import Cluster
from tests.conftest import TopicFactory
from tests.kafka_client.rows import eventually

HOLDS = """
import sys
from pathlib import Path
from streams.application.instances import only_instance
from streams.config import StreamsConfig
with only_instance(StreamsConfig(application_id="app", bootstrap_servers="nowhere:1", base_dir=Path(sys.argv[1]))):
    print("holds it", flush=True)
    sys.stdin.read()
"""


def config_of(folder: Path, **settings: Any) -> StreamsConfig:
    return StreamsConfig(**{"application_id": "app", "bootstrap_servers": "nowhere:1", "base_dir": folder, **settings})


@pytest.mark.slow
def test_a_second_instance_in_one_folder_is_told_at_once_and_a_killed_one_is_in_nobodys_way(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "holds it\n"
        said = f"is running on the same checkpoint.*: process {first.pid} on "
        with pytest.raises(AlreadyRunningError, match=said), only_instance(config_of(tmp_path)):
            pass
        first.kill()
    with only_instance(config_of(tmp_path)):
        assert Instance.of((Path(config_of(tmp_path).checkpoint_dir) / LOCK).read_text()) is not None


@pytest.mark.slow
@pytest.mark.parametrize("looks", [1, 5])
def test_an_instance_that_was_killed_is_waited_for(tmp_path: Path, looks: int) -> None:
    seen: list[Instance | None] = [Instance("h", 7, "2026-01-01T00:00:00Z")] * looks + [None]
    check_not_running(config_of(tmp_path), Cluster(), [], lambda _: None, seen=lambda *_: seen.pop(0))  # type: ignore[arg-type]
    assert not seen


def test_an_instance_that_stays_is_named_with_the_age_of_its_last_commit(tmp_path: Path) -> None:
    one = Instance("h", 7, "2026-01-01T00:00:00Z")
    cluster = Cluster().put("app-in-commits", b"marker")
    said = (
        r"another instance of app is running: process 7 on h, since 2026-01-01T00:00:00Z; its last commit is \d+ s old"
    )
    with pytest.raises(AlreadyRunningError, match=said):
        check_not_running(
            config_of(tmp_path),
            cluster,  # type: ignore[arg-type]
            ["app-in-commits"],
            sleep=lambda _: None,
            seen=lambda *_: one,
        )


def test_the_group_has_a_member_while_an_instance_runs_and_tasks_commit_beside_it(
    broker: EmbeddedBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    commits, app = topic(), "instances"
    config = config_of(tmp_path, application_id=app, bootstrap_servers=broker.bootstrap_servers)
    admin = KafkaAdmin(config.client)
    with shown_as_running(config, [commits]):
        eventually(lambda: seen_as_running(app, config.client) is not None, True)
        producer = TransactionalProducer(config.client, f"{app}-0")
        producer.init_transactions()
        producer.begin()
        producer.send(commits, 0, b"k", b"v", 1)
        producer.send_offsets({(commits, 0): 1}, app)
        producer.flush()
        producer.commit()
        producer.close()
        # Offsets of lake sinks come from outside of any group's members.
        admin.commit_group_offsets(app, {(commits, 0): (2, "")})
        said = "process .*; its last commit is "
        with pytest.raises(AlreadyRunningError, match=said), while_stopped(config, admin, [commits]):
            pass
    assert seen_as_running(app, config.client) is None, "it has left"
    assert admin.group_offsets(app, [(commits, 0)]) == {(commits, 0): 2}


@pytest.mark.parametrize("there", ["file", "proc"])
def test_a_folder_that_cannot_be_written_is_named_with_its_setting(tmp_path: Path, there: str) -> None:
    (tmp_path / "file").touch()
    folder = {"file": tmp_path / "file", "proc": Path("/proc/nope")}[there]
    with pytest.raises(ConfigError, match=rf"base_dir \({folder}\): .* cannot be used"):
        check_places(config_of(folder))
    check_places(config_of(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_members_of_the_group_of_the_offsets_are_somebody_elses(tmp_path: Path) -> None:
    config, asked = config_of(tmp_path), list[str]()

    def members(group: str) -> list[str]:
        asked.append(group)
        return ["shop-StreamThread-1-consumer on 10.0.0.7"]

    said = r"group app \(shop-StreamThread-1-consumer on 10.0.0.7\).*Kafka Streams application"
    with pytest.raises(AlreadyRunningError, match=said):
        check_group_is_free(config, members)
    assert asked == ["app"]
    check_group_is_free(config, lambda group: [])


def test_a_coordinator_that_is_away_is_asked_again_and_a_refusal_is_told(tmp_path: Path) -> None:
    loading = KafkaClientError("loading", ClientFailure(14, "COORDINATOR_LOAD_IN_PROGRESS", "loading", retriable=True))
    refused = KafkaClientError("no right", ClientFailure(30, "GROUP_AUTHORIZATION_FAILED", "no right"))
    answers: list[KafkaClientError | None] = [loading, loading, None]
    waited: list[float] = []

    def members(group: str) -> list[str]:
        if (error := answers.pop(0)) is not None:
            raise error
        return []

    check_group_is_free(config_of(tmp_path), members, waited.append)
    assert len(waited) == 2
    answers += [refused]
    with pytest.raises(KafkaClientError, match="no right"):
        check_group_is_free(config_of(tmp_path), members, waited.append)
    answers += [loading] * 20
    with pytest.raises(KafkaClientError, match="loading"):
        check_group_is_free(config_of(tmp_path), members, lambda seconds: None)
    assert not answers


def test_a_start_is_refused_while_a_consumer_is_in_the_group(
    broker: EmbeddedBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    read = topic()
    config = config_of(tmp_path, application_id=f"app-{read}", bootstrap_servers=broker.bootstrap_servers)
    check_group_is_free(config)
    client = {**config.client, "client.id": "a-java-program"}
    with closing(GroupMember(client, config.application_id, [read])) as member:

        def refused() -> bool:
            member.poll(0.2)
            try:
                check_group_is_free(config)
            except AlreadyRunningError as error:
                return "a-java-program" in str(error)
            return False

        eventually(refused, True)
