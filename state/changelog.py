"""The topics that hold state: names and settings of changelogs and commits topics, and trimming by stream time.

State never expires by the broker's clock or by event time (`retention.ms=-1`); records that windows no longer need are
trimmed by stream time. The broker's check on future timestamps is off, so that no record's timestamp can make a
step impossible to commit. An existing topic is checked before use, because a wrong setting loses state silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from state.errors import ChangelogMismatchError, RestoreError
from state.kafka.topics import TopicPartition
from state.stores.spec import StoreKind, StoreSpec

if TYPE_CHECKING:
    from state.kafka.topics import TopicAdmin


INTERNAL_ENDINGS = ("-changelog", "-commits", "-repartition")
"""The suffixes of an application's internal topics; their prefix is the application id."""

DAY_MS = 24 * 60 * 60 * 1000
DELETE_RETENTION_MS = 7 * DAY_MS
"""How long a compacted topic keeps tombstones. A store that was away longer may miss deletions and is restored from the start."""
CONTROL_RETENTION_MS = 10 * 60 * 1000
"""How long a commits topic keeps control records. Nothing in it is ever deleted, so there are no tombstones."""

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
# Settings that may exceed the minimum. A step whose timestamps are refused can never be committed, a history from which
# compaction has taken versions is incomplete, and a commit that only one broker has may be lost with that broker.
_AT_LEAST = ("message.timestamp.after.max.ms", "min.compaction.lag.ms", "min.insync.replicas")


def changelog_topic(application_id: str, store: str) -> str:
    """`<app>-<store>-changelog`, as in Kafka Streams; partition = task."""
    return f"{application_id}-{store}-changelog"


def commits_topic(application_id: str, sub_topology: str) -> str:
    """`<app>-<sub-topology>-commits`: the commit markers, partition = task."""
    return f"{application_id}-{sub_topology}-commits"


def pauses_topic(application_id: str) -> str:
    """`<app>-__pauses-commits`: the pauses of an application. No sub-topology has that name, which begins like Kafka's own."""
    return commits_topic(application_id, "__pauses")


def endpoints_topic(application_id: str) -> str:
    """`<app>-__endpoints`: the processes that serve the stores of an application, and which stores each of them has."""
    return f"{application_id}-__endpoints"


def rescale_topic(application_id: str, sub_topology: str) -> str:
    """`<app>-<sub-topology>-rescale`: the notes of a rescale, which exist until it is finished."""
    return f"{application_id}-{sub_topology}-rescale"


def staging_topic(application_id: str, store: str) -> str:
    """`<app>-<store>-changelog-rescale`: during a rescale, a store's changelog for the new tasks."""
    return f"{changelog_topic(application_id, store)}-rescale"


def cleanup_policy(spec: StoreSpec) -> str:
    """How the changelog of a store discards records.

    `compact` for tables. `compact,delete` for windows and sessions, because Kafka refuses DeleteRecords on a topic that is
    only compacted. `delete` if duplicates must survive (Kafka Streams: `StreamJoinedStoreFactory`).
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
            # Compaction must not touch versions that the history still needs (KIP-889). Brokers count from the newest timestamp in
            # a segment, which is a commit's, unless they begin a new segment with the commit because its records are much older.
            config["min.compaction.lag.ms"] = str((spec.retention_ms or 0) + DAY_MS)
            config["segment.ms"] = str(2**63 - 1)
        else:
            config["max.compaction.lag.ms"] = str(DAY_MS)
    return {**config, **_durability(replication), **spec.changelog_config}


def _small_config(replication: int) -> dict[str, str]:
    """Settings of a compacted topic that stays small."""
    small = {"segment.bytes": str(1024 * 1024), "max.compaction.lag.ms": str(DAY_MS)}
    return {**_COMMON, **_COMPACTED, **small, "cleanup.policy": "compact", **_durability(replication)}


def commits_config(replication: int = -1) -> dict[str, str]:
    """Settings of a commits topic. Each partition has a single key, so the topic stays small.

    A live task commits ten times a second, and compaction keeps the control record of each transaction for `delete.retention.ms`,
    for readers that are in the middle of it. No reader takes ten minutes for a few megabytes.
    """
    return {**_small_config(replication), "delete.retention.ms": str(CONTROL_RETENTION_MS)}


def endpoints_config(replication: int = -1) -> dict[str, str]:
    """Settings of the topic of the processes that serve. An entry that was not renewed for a day is deleted."""
    day = {"retention.ms": str(DAY_MS), "max.compaction.lag.ms": str(DAY_MS), "segment.bytes": str(1024 * 1024)}
    return {**_COMMON, **_COMPACTED, **day, "cleanup.policy": "compact,delete", **_durability(replication)}


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
    """Creates or checks the commits topic of a sub-topology, as `ensure_changelogs` does for changelogs.

    The setting of an older version, which kept control records for a week, is corrected.
    """
    name, config = commits_topic(application_id, sub_topology), commits_config(replication)
    made = _ensure(admin, {name: config}, tasks, replication)
    if not made and admin.topic_config(name).get("delete.retention.ms") == str(DELETE_RETENTION_MS):
        admin.alter_topic(name, {"delete.retention.ms": config["delete.retention.ms"]})
    return made


def ensure_pauses(admin: TopicAdmin, application_id: str, replication: int = -1) -> list[str]:
    """Creates or checks the topic of pauses, as `ensure_changelogs` does for changelogs."""
    return _ensure(admin, {pauses_topic(application_id): _small_config(replication)}, 1, replication)


def ensure_endpoints(admin: TopicAdmin, application_id: str, replication: int = -1) -> list[str]:
    """Creates or checks the topic of the processes that serve, as for changelogs. They write a record every few seconds."""
    config = endpoints_config(replication)
    return _ensure(admin, {endpoints_topic(application_id): config}, 1, replication)


def ensure_replays(admin: TopicAdmin, name: str, replication: int = -1) -> list[str]:
    """Creates or checks a topic that remembers which dead letters have been replayed, as for changelogs."""
    return _ensure(admin, {name: _small_config(replication)}, 1, replication)


def ensure_repartition(admin: TopicAdmin, name: str, partitions: int, replication: int = -1) -> list[str]:
    """Creates or checks a repartition topic, as for changelogs. Its records stay until they are consumed and are then trimmed."""
    return _ensure(admin, {name: repartition_config(replication)}, partitions, replication)


def _ensure(admin: TopicAdmin, wanted: Mapping[str, dict[str, str]], tasks: int, replication: int) -> list[str]:
    # Imported here, so that computing a topic's name loads no Kafka client.
    from state.kafka.topics import TopicSpec

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
    if partitions != tasks:
        raise ChangelogMismatchError(
            name,
            f"it has {partitions} partitions, but the application runs with {tasks} tasks, and each task needs its own",
            f"run with tasks={partitions}, or change the number with `streams rescale`; if the topic is left over from something "
            f"else, delete it: kafka-topics.sh --delete --topic {name}",
        )
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
        # Lists need brackets on that command line, because a comma would end the setting.
        fix = ",".join(f"{key}=[{needs}]" if "," in needs else f"{key}={needs}" for key, (_, needs) in wrong.items())
        raise ChangelogMismatchError(
            name,
            said,
            f"records of state may be lost like this; correct it with kafka-configs.sh --alter --entity-type topics "
            f"--entity-name {name} --add-config '{fix}'",
        )


def _normal(key: str, value: str) -> str:
    return ",".join(sorted(value.replace(" ", "").split(","))) if key == "cleanup.policy" else value.strip()


NO_CHANGELOG = (
    "Restore the topic from a backup, with the offsets that it had, and take it over with `streams adopt`; keep the state_dir of "
    "every host until then. If there is no backup, rebuild the state from the inputs (`streams reset`)."
)


def check_end(store: str, end: int, version: int, promised: int) -> None:
    """Checks that a changelog still has everything that a step wrote.

    Raises:
        RestoreError: It ends before the offset in the step's commit marker.
    """
    if end < promised:
        raise RestoreError(
            f"the changelog of store {store!r} ends at offset {end}, but the commit marker of step {version} says "
            f"{promised}: the topic was truncated, or deleted and created again. {NO_CHANGELOG}"
        )


# --- Trimming changelogs by stream time.
#
# Nothing expires by the broker's clock, so the engine itself deletes the records that windows no longer need. For each
# windowed store and segment, `state.stores.segments` records the first changelog offset that wrote to the segment. Once a
# segment has expired, everything below the smallest offset of the live segments can be deleted. Tables are compacted, never
# trimmed. Invariant: a trim is requested only after Spark has confirmed the step whose state no longer needs the records.
#
# The trim is delayed: a single record with a wrong timestamp may expire whole windows, and deleted records cannot be recovered.
# Records therefore stay for `trim_delay_ms` after they are no longer needed, which gives an operator time to intervene. Each commit
# marker notes what was needed when, so neither a restart nor a move to another host restarts the delay. Example, with a delay of a
# day: the notes (0 h, offset 100) and (3 h, offset 250) let records below 100 be deleted after 24 h, and below 250 after 27 h.

Noted = Mapping[str, Sequence[tuple[int, int]]]
"""Store -> (time, first changelog offset needed then), the oldest first."""
_NAME = "needed"
_NOTES = 8
"""Notes are this fraction (1/8) of the delay apart: records stay up to 1/8 longer, and a marker has at most ten notes a store."""


def trim_notes(operator_state: Mapping[str, Any]) -> Noted:
    """The notes of needed offsets in the state of a commit marker."""
    notes: Noted = operator_state.get("task", {}).get(_NAME, {})
    return notes


def note_needed(
    operator_state: dict[str, Any], before: Mapping[str, Any], needed: Mapping[str, int], now_ms: int, delay_ms: int
) -> None:
    """Adds the offsets needed now to the state for the next commit marker, after the notes of the last marker."""
    if needed and delay_ms:
        operator_state.setdefault("task", {})[_NAME] = noted(trim_notes(before), needed, now_ms, delay_ms)


def noted(before: Noted, needed: Mapping[str, int], now_ms: int, delay_ms: int) -> dict[str, list[tuple[int, int]]]:
    """The notes for the next marker."""
    notes: dict[str, list[tuple[int, int]]] = {}
    for store, offset in needed.items():
        of_store = [(int(at), int(first)) for at, first in before.get(store, ())]
        if not of_store or (offset > of_store[-1][1] and now_ms - of_store[-1][0] >= delay_ms // _NOTES):
            of_store.append((now_ms, offset))
        # Of the notes that are due, the newest one covers the others.
        due = sum(at + delay_ms <= now_ms for at, _ in of_store)
        notes[store] = of_store[max(0, due - 1) :]
    return notes


def due(notes: Noted, needed: Mapping[str, int], now_ms: int, delay_ms: int) -> dict[str, int]:
    """Store -> the offset below which records may be deleted: none is needed now, and none was within the delay."""
    if not delay_ms:
        return dict(needed)
    cuts = {}
    for store, offset in needed.items():
        old = [first for at, first in notes.get(store, ()) if at + delay_ms <= now_ms]
        if old:
            cuts[store] = min(offset, old[-1])
    return cuts


def trim_targets(
    specs: Iterable[StoreSpec],
    needed: Mapping[str, int],
    application_id: str,
    task: int,
    trimmed: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """The offsets to which the changelogs of one task may be trimmed."""
    before = trimmed or {}
    targets: dict[TopicPartition, int] = {}
    for spec in specs:
        if not spec.logged or spec.name not in needed or "delete" not in cleanup_policy(spec):
            continue
        place = (changelog_topic(application_id, spec.name), task)
        if needed[spec.name] > before.get(place, 0):
            targets[place] = needed[spec.name]
    return targets
