"""Names and settings of the internal topics that hold state: changelogs and commits.

State never expires by the broker's clock or by event time (`retention.ms=-1`); records that windows no longer need are
trimmed by stream time (`trim`). The broker's check on future timestamps is off, so that no record's timestamp can make a
step impossible to commit. An existing topic is checked before use, because a wrong setting loses state silently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from state.errors import ChangelogMismatchError
from state.stores.spec import StoreKind, StoreSpec

if TYPE_CHECKING:
    from state.kafka.topics import TopicInfo, TopicSpec

INTERNAL_ENDINGS = ("-changelog", "-commits", "-repartition")
"""The suffixes of an application's internal topics; their prefix is the application id."""

DAY_MS = 24 * 60 * 60 * 1000
DELETE_RETENTION_MS = 7 * DAY_MS
"""How long a compacted topic keeps tombstones. A store that was away longer may miss deletions and is restored from the start."""

_COMMON = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "segment.bytes": str(64 * 1024 * 1024),
}
_COMPACTED = {
    "delete.retention.ms": str(DELETE_RETENTION_MS),
    "min.cleanable.dirty.ratio": "0.2",
}
# Settings that state depends on. The others only affect cost and may differ, or are read when they matter
# (delete.retention.ms: `state.restore.plan`).
_CHECKED = ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type")
# Settings that may exceed the minimum. A step whose timestamps are refused can never be committed, a history touched by
# compaction is incomplete, and a commit that only one broker holds may be lost with that broker.
_AT_LEAST = ("message.timestamp.after.max.ms", "min.compaction.lag.ms", "min.insync.replicas")


class TopicAdmin(Protocol):
    """The part of `state.kafka.admin.KafkaAdmin` that this module needs."""

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, TopicInfo]:
        """Existing topics of these names."""

    def create_topics(self, topics: Sequence[TopicSpec]) -> object:
        """Creates topics and waits until they can be used."""

    def topic_config(self, name: str) -> Mapping[str, str]:
        """All settings of a topic, defaults included."""


def changelog_topic(application_id: str, store: str) -> str:
    """`<app>-<store>-changelog`, as in Kafka Streams; partition = task."""
    return f"{application_id}-{store}-changelog"


def commits_topic(application_id: str, sub_topology: str) -> str:
    """`<app>-<sub-topology>-commits`: the commit markers, partition = task."""
    return f"{application_id}-{sub_topology}-commits"


def pauses_topic(application_id: str) -> str:
    """`<app>-__pauses-commits`: what is paused of an application. No sub-topology has that name: Kafka's own topics begin so."""
    return commits_topic(application_id, "__pauses")


def rescale_topic(application_id: str, sub_topology: str) -> str:
    """`<app>-<sub-topology>-rescale`: the notes of a rescale, which exist until it has come to its end."""
    return f"{application_id}-{sub_topology}-rescale"


def staging_topic(application_id: str, store: str) -> str:
    """`<app>-<store>-changelog-rescale`: during a rescale, a store's changelog for the new tasks."""
    return f"{changelog_topic(application_id, store)}-rescale"


def cleanup_policy(spec: StoreSpec) -> str:
    """How the changelog of a store discards records.

    `compact` for tables. `compact,delete` for windows and sessions, because Kafka refuses DeleteRecords on a topic that is
    only compacted. `delete` where duplicates must survive (Kafka Streams: `StreamJoinedStoreFactory`).
    """
    if spec.retain_duplicates:
        return "delete"
    return "compact,delete" if spec.kind.segmented else "compact"


def changelog_config(spec: StoreSpec, replication: int = -1) -> dict[str, str]:
    """Settings of a store's changelog; `spec.changelog_config` overrides the defaults."""
    policy = cleanup_policy(spec)
    config = {**_COMMON, "cleanup.policy": policy}
    if "compact" in policy:
        config |= _COMPACTED
        if spec.kind is StoreKind.VERSIONED:
            # Compaction must not touch versions that the history still needs (KIP-889).
            config["min.compaction.lag.ms"] = str((spec.retention_ms or 0) + DAY_MS)
        else:
            config["max.compaction.lag.ms"] = str(DAY_MS)
    return {**config, **_durability(replication), **spec.changelog_config}


def commits_config(replication: int = -1) -> dict[str, str]:
    """Settings of a commits topic. Each partition has a single key, so the topic stays tiny."""
    small = {"segment.bytes": str(1024 * 1024), "max.compaction.lag.ms": str(DAY_MS)}
    return {**_COMMON, **_COMPACTED, **small, "cleanup.policy": "compact", **_durability(replication)}


def repartition_config(replication: int = -1) -> dict[str, str]:
    """Settings of a repartition topic."""
    return {**_COMMON, "cleanup.policy": "delete", **_durability(replication)}


def _durability(replication: int) -> dict[str, str]:
    return {"min.insync.replicas": "2"} if replication >= 3 else {}


def ensure_changelogs(
    admin: TopicAdmin, specs: Sequence[StoreSpec], application_id: str, tasks: int, replication: int = -1
) -> list[str]:
    """Creates missing changelogs and checks existing ones.

    Raises:
        ChangelogMismatchError: An existing topic would lose or mix up state.
    """
    wanted = {
        changelog_topic(application_id, spec.name): changelog_config(spec, replication) for spec in specs if spec.logged
    }
    return _ensure(admin, wanted, tasks, replication)


def ensure_commits(
    admin: TopicAdmin, application_id: str, sub_topology: str, tasks: int, replication: int = -1
) -> list[str]:
    """As `ensure_changelogs`, for the commits topic of a sub-topology."""
    return _ensure(
        admin, {commits_topic(application_id, sub_topology): commits_config(replication)}, tasks, replication
    )


def ensure_pauses(admin: TopicAdmin, application_id: str, replication: int = -1) -> list[str]:
    """As `ensure_changelogs`, for the topic of pauses."""
    return _ensure(admin, {pauses_topic(application_id): commits_config(replication)}, 1, replication)


def ensure_replays(admin: TopicAdmin, name: str, replication: int = -1) -> list[str]:
    """As `ensure_changelogs`, for a topic that remembers which dead letters have been replayed."""
    return _ensure(admin, {name: commits_config(replication)}, 1, replication)


def ensure_repartition(admin: TopicAdmin, name: str, partitions: int, replication: int = -1) -> list[str]:
    """As `ensure_changelogs`, for a repartition topic, whose records stay until they are consumed and are then trimmed."""
    return _ensure(admin, {name: repartition_config(replication)}, partitions, replication)


def _ensure(admin: TopicAdmin, wanted: Mapping[str, dict[str, str]], tasks: int, replication: int) -> list[str]:
    # A local import, so that computing a topic's name loads no Kafka client.
    from state.kafka.admin import TopicSpec

    if not wanted:
        return []
    found = admin.describe_topics(list(wanted))
    for name, info in found.items():
        check_topic(name, info.partitions, tasks, admin.topic_config(name), wanted[name])
    missing = [
        TopicSpec(name=name, partitions=tasks, config=config, replication=replication)
        for name, config in wanted.items()
        if name not in found
    ]
    if missing:
        admin.create_topics(missing)
    return [spec.name for spec in missing]


def check_topic(name: str, partitions: int, tasks: int, found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Checks that an existing internal topic can hold what the application writes there.

    Raises:
        ChangelogMismatchError: The topic would lose or mix up state.
    """
    _check_partitions(name, partitions, tasks)
    _check_config(name, wanted, found)


def _check_partitions(name: str, found: int, tasks: int) -> None:
    if found != tasks:
        raise ChangelogMismatchError(
            name,
            f"it has {found} partitions, but the application runs with {tasks} tasks, and each task needs its own",
            f"run with tasks={found}, or change the number with `streams rescale`; if the topic is left over from something else, "
            f"delete it: kafka-topics.sh --delete --topic {name}",
        )


def _check_config(name: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    wrong = {
        key: (found[key], wanted[key])
        for key in _CHECKED
        if key in found and _normal(key, found[key]) != _normal(key, wanted[key])
    }
    wrong |= {
        key: (found[key], wanted[key])
        for key in _AT_LEAST
        if key in found and key in wanted and int(found[key]) < int(wanted[key])
    }
    if wrong:
        said = ", ".join(f"{key} is {has!r} where {needs!r} is needed" for key, (has, needs) in wrong.items())
        # Lists need brackets on that command line, their commas would end the setting.
        fix = ",".join(f"{key}=[{needs}]" if "," in needs else f"{key}={needs}" for key, (_, needs) in wrong.items())
        raise ChangelogMismatchError(
            name,
            said,
            f"records of state may be lost like this; correct it with kafka-configs.sh --alter --entity-type topics "
            f"--entity-name {name} --add-config '{fix}'",
        )


def _normal(key: str, value: str) -> str:
    return ",".join(sorted(value.replace(" ", "").split(","))) if key == "cleanup.policy" else value.strip()
