"""Names, settings and checks of the internal topics, on a real broker; and where changelogs may be cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from state.changelog import (
    changelog_config,
    changelog_topic,
    cleanup_policy,
    commits_config,
    commits_topic,
    due,
    ensure_changelogs,
    ensure_commits,
    note_needed,
    noted,
    trim_notes,
    trim_targets,
)
from state.errors import ChangelogMismatchError
from state.kafka.admin import KafkaAdmin, TopicSpec
from state.kafka.topics import TopicInfo
from state.restore.task_stores import TaskStateManager, WorkerMemory
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from tests.restore.logs import APPLICATION, SPECS, MemoryLogs, commit, marker_of
from tests.restore.test_task_stores import IDENTITY

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
    assert "segment.ms" in versioned
    assert "segment.ms" not in changelog_config(TABLE)
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


def test_a_commits_topic_that_keeps_control_records_for_a_week_no_longer_does(admin):
    """A live task writes ten of them a second."""
    name, kept = commits_topic("week", "sub"), "delete.retention.ms"
    admin.create_topics([TopicSpec(name, 1, {**commits_config(1), kept: str(7 * 24 * 60 * 60 * 1000)}, 1)])
    for own in (None, "86400000"):
        if own is not None:
            admin.alter_topic(name, {kept: own})
        assert ensure_commits(admin, "week", "sub", tasks=1) == []
        found = admin.topic_config(name)
        assert found[kept] == (own or "600000"), "a user's own setting stays"
        assert found["segment.bytes"] == str(1024 * 1024)


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


# --- Changelog records that are not needed any more stay for a while, whoever runs the task meanwhile.

DAY = 24 * 3_600_000


def run(steps, delay):
    """Steps of (time, first offset needed): where each may cut, and what the marker holds at most."""
    notes, cuts, most = {}, [], 0
    for now, offset in steps:
        cuts.append(due(notes, {"s": offset}, now, delay).get("s", 0))
        state = {"nodes": {}}
        note_needed(state, {"task": {"needed": notes}}, {"s": offset}, now, delay)
        notes = trim_notes(state)
        most = max(most, *(len(of_store) for of_store in notes.values()), 0) if notes else most
    return cuts, most


def test_what_a_jump_of_time_has_expired_stays_a_day():
    steps = [(0, 10), (1_000, 10), (2_000, 5_000), (2_000 + DAY - 1, 5_000), (2_000 + DAY + 1_000, 5_000)]
    # The jump at 2000 comes within an eighth of a day of the last note: it is noted with the next step behind that.
    cuts, _ = run([*steps, (2_000 + 3 * DAY, 5_000)], DAY)
    assert cuts == [0, 0, 0, 10, 10, 5_000]


def test_notes_stay_few_and_the_changelog_bounded():
    minute = 60_000
    steps = [(n * minute, n) for n in range(3 * 24 * 60)]
    cuts, most = run(steps, DAY)
    assert most <= 10
    for (now, _), cut in list(zip(steps, cuts, strict=True))[24 * 60 * 5 // 4 :]:
        assert now - cut * minute >= DAY, "a day at least"
        assert now - cut * minute <= DAY + 2 * (DAY // 8) + minute, "and hardly more"


def test_without_a_delay_all_goes_at_once():
    cuts, most = run([(0, 10), (1, 20)], 0)
    assert (cuts, most) == ([10, 20], 0)


def test_what_is_needed_again_is_never_cut():
    # As after a restore, which may know less of what is expired.
    assert due({"s": [(0, 50)]}, {"s": 20}, 2 * DAY, DAY) == {"s": 20}


@pytest.mark.parametrize("notes", [{}, {"other": [(0, 5)]}])
def test_a_store_without_notes_waits(notes):
    assert due(notes, {"s": 20}, 2 * DAY, DAY) == {}
    assert noted(notes, {"s": 20}, 2 * DAY, DAY) == {"s": [(2 * DAY, 20)]}


def test_a_clock_that_goes_back_delays_only():
    assert noted({"s": [(DAY, 5)]}, {"s": 9}, 0, DAY) == {"s": [(DAY, 5)]}


class Deleting(MemoryLogs):
    """Notes the cuts that are asked for."""

    def __init__(self):
        super().__init__()
        self.cuts = []

    def delete_records(self, before):
        self.cuts.append(dict(before))

    def describe_topics(self, names):
        return {name: TopicInfo(topic_id, 1) for name, topic_id in self.topic_ids(names).items()}


def test_a_tasks_stores_cut_only_what_the_marker_says_is_due(tmp_path):
    logs = Deleting()
    store = TaskStore(MemoryTable(), SPECS)
    windows = next(spec.name for spec in SPECS if spec.kind is StoreKind.TIMESTAMPED_WINDOW)
    for version, start in ((1, 0), (2, 10_000_000)):
        store.store(windows).put(b"k", start, bytes(8) + b"v", start)
        store.expire(windows, start)
        target = commit(store, logs, version)
    # A store that is just made from the changelog judges nothing: the step before has made it.
    before = TaskStateManager(logs, IDENTITY, SPECS, tmp_path, memory=WorkerMemory())
    with before.open() as opened:
        before.restore_to(opened, marker_of(target))
    for trim_delay_ms, notes, cut in (
        (0, {}, 2),
        (DAY, {}, None),
        (DAY, {windows: [[5, 1]]}, None),
        (DAY, {windows: [[4, 1]]}, 1),
    ):
        stores = TaskStateManager(
            logs,
            IDENTITY,
            SPECS,
            tmp_path,
            clock_ms=lambda: DAY + 4,
            memory=WorkerMemory(),
            trim_delay_ms=trim_delay_ms,
        )
        marker = replace(marker_of(target), operator_state={"task": {"needed": notes}})
        logs.cuts.clear()
        with stores.open() as opened:
            stores.restore_to(opened, marker)
            stores.trim(opened, stores.to_trim(opened))
        place = (changelog_topic(APPLICATION, windows), 0)
        assert [one[place] for one in logs.cuts if place in one] == ([] if cut is None else [cut])
