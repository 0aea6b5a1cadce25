"""Names, settings and checks of the internal topics, on a real broker; and where changelogs may be cut."""

import pytest

from state.changelog import (
    changelog_config,
    changelog_topic,
    cleanup_policy,
    commits_topic,
    ensure_changelogs,
    ensure_commits,
    trim_targets,
)
from state.errors import ChangelogMismatchError
from state.kafka.admin import KafkaAdmin, TopicInfo, TopicSpec
from state.stores.spec import StoreKind, StoreSpec
from tests.restore.logs import SPECS

JOIN = StoreSpec("join", StoreKind.WINDOW, retention_ms=10, retain_duplicates=True)
WINDOWS = StoreSpec("windows", StoreKind.TIMESTAMPED_WINDOW, retention_ms=10)
TABLE = StoreSpec("table", StoreKind.KEY_VALUE)
UNLOGGED = StoreSpec("unlogged", StoreKind.WINDOW, retention_ms=10, logged=False)


@pytest.fixture
def admin(broker):
    with KafkaAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        yield admin


def test_names_are_kafka_streams():
    assert changelog_topic("app", "store") == "app-store-changelog"
    assert commits_topic("app", "orders") == "app-orders-commits"


def test_policies():
    assert [cleanup_policy(spec) for spec in SPECS] == [
        "compact",
        "compact",
        "compact,delete",
        "delete",
        "compact,delete",
        "compact",
    ]
    versioned = changelog_config(StoreSpec("v", StoreKind.VERSIONED, retention_ms=1000))
    assert versioned["min.compaction.lag.ms"] == str(1000 + 24 * 3600 * 1000)
    assert changelog_config(TABLE, replication=3)["min.insync.replicas"] == "2"
    assert (
        changelog_config(StoreSpec("s", StoreKind.KEY_VALUE, changelog_config={"segment.bytes": "5"}))["segment.bytes"]
        == "5"
    )


def test_creates_what_is_missing_and_accepts_what_it_made(admin):
    specs = [*SPECS, UNLOGGED]
    names = [changelog_topic("ensure", spec.name) for spec in SPECS]
    assert sorted(ensure_changelogs(admin, specs, "ensure", tasks=2)) == sorted(names)
    assert ensure_changelogs(admin, specs, "ensure", tasks=2) == []
    assert {info.partitions for info in admin.describe_topics(names).values()} == {2}
    config = admin.topic_config(changelog_topic("ensure", "windows"))
    assert config["cleanup.policy"] == "compact,delete"
    assert config["retention.ms"] == "-1"
    assert config["message.timestamp.after.max.ms"] == str(2**63 - 1)
    assert ensure_commits(admin, "ensure", "sub", tasks=2) == ["ensure-sub-commits"]
    assert ensure_commits(admin, "ensure", "sub", tasks=2) == []


def test_another_number_of_partitions_is_refused(admin):
    ensure_changelogs(admin, [TABLE], "parts", tasks=3)
    with pytest.raises(ChangelogMismatchError, match=r"3 partitions.*4 tasks.*tasks=3"):
        ensure_changelogs(admin, [TABLE], "parts", tasks=4)


def test_settings_that_lose_state_are_refused_with_the_command_that_corrects_them(admin):
    name = changelog_topic("bad", "windows")
    admin.create_topics([TopicSpec(name, 1, {"cleanup.policy": "delete", "retention.ms": "1000"})])
    with pytest.raises(ChangelogMismatchError) as caught:
        ensure_changelogs(admin, [WINDOWS], "bad", tasks=1)
    message = str(caught.value)
    assert "cleanup.policy is 'delete' where 'compact,delete' is needed" in message
    assert f"--entity-name {name} --add-config 'cleanup.policy=[compact,delete],retention.ms=-1'" in message
    # A user's own setting is what is needed then.
    own = StoreSpec(
        "windows",
        StoreKind.WINDOW,
        retention_ms=10,
        changelog_config={"cleanup.policy": "delete", "retention.ms": "1000"},
    )
    assert ensure_changelogs(admin, [own], "bad", tasks=1) == []


class StubAdmin:
    """A broker on which every topic exists, with these settings."""

    def __init__(self, config):
        self.config = config

    def describe_topics(self, names):
        return {name: TopicInfo("id", 1) for name in names}

    def topic_config(self, name):
        return self.config


@pytest.mark.parametrize(
    ("spec", "setting", "less"),
    [
        (TABLE, "message.timestamp.after.max.ms", 3_600_000),
        (StoreSpec("v", StoreKind.VERSIONED, retention_ms=1000), "min.compaction.lag.ms", 0),
        (TABLE, "min.insync.replicas", 1),
    ],
)
def test_a_topic_may_keep_more_than_is_needed_but_not_less(spec, setting, less):
    wanted = changelog_config(spec, replication=3)
    ensure_changelogs(StubAdmin(wanted), [spec], "app", tasks=1, replication=3)
    ensure_changelogs(StubAdmin({**wanted, setting: str(int(wanted[setting]) + 1)}), [spec], "app", 1, 3)
    with pytest.raises(
        ChangelogMismatchError, match=rf"{setting} is '{less}'.*--add-config '{setting}={wanted[setting]}'"
    ):
        ensure_changelogs(StubAdmin({**wanted, setting: str(less)}), [spec], "app", tasks=1, replication=3)


def test_trim_targets():
    needed = {"join": 50, "windows": 7, "table": 99, "unlogged": 5}
    specs = [JOIN, WINDOWS, TABLE, UNLOGGED]
    join, windows = ("app-join-changelog", 3), ("app-windows-changelog", 3)
    assert trim_targets(specs, needed, "app", 3) == {join: 50, windows: 7}
    assert trim_targets(specs, needed, "app", 3, trimmed={join: 50, windows: 6}) == {windows: 7}
    assert trim_targets(specs, {"join": 0}, "app", 3) == {}
