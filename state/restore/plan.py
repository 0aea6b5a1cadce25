"""Plans the reads of a restore, from the local store's metadata and the range of the changelog. Pure functions.

Each store needs one of: nothing, the tail from the stored offset, or everything from the start after emptying the
store. A store is emptied when its own offset is not a valid starting point: the store comes from another query, its offset is
before the start of the log or ahead of the target, or it is so old that compaction may have dropped tombstones that it has not
seen (deleted keys would reappear).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from state.changelog import DAY_MS, DELETE_RETENTION_MS, NO_CHANGELOG, check_end, cleanup_policy
from state.columns import RecordColumns
from state.commit.digest import StepDigest
from state.errors import RestoreError
from state.stores.changelog_records import ChangelogBatch
from state.stores.position import StoreOrigin
from state.stores.spec import StoreKind, StoreSpec

CHUNK_RECORDS = 500_000
CHUNK_BYTES = 64 * 1024 * 1024
"""The most bytes that a restore holds in memory and writes at once."""


class Action(Enum):
    """The action for one store."""

    NOTHING = "nothing"
    TAIL = "tail"
    FROM_START = "from start"


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The committed step that a restore leads to.

    Attributes:
        query_id: Id of the Spark query that local state must come from (`CommitMarker.state_of`).
        version: Number of the step.
        changelog_ends: Store -> offset after its last changelog record.
        written_ms: Batch time of the step.
        expired_before: Segmented store -> time below which its rows never matter again, ms.
        changelog_records: How many changelog records the step wrote, None = unknown.
        changelog_hash: Digest of these records (`CommitMarker`), None = unknown.
        changelog_begins: Store -> where its changelog ended before the step.
        changelog_ids: Store -> Kafka's id of its changelog topic, where known.
    """

    query_id: str
    version: int
    changelog_ends: Mapping[str, int]
    written_ms: int = 0
    expired_before: Mapping[str, int] = field(default_factory=dict)
    changelog_records: int | None = None
    changelog_hash: str | None = None
    changelog_begins: Mapping[str, int] = field(default_factory=dict)
    changelog_ids: Mapping[str, str] = field(default_factory=dict)


CLOCKS_DIFFER_MS = 3_600_000
"""How far the clocks of two hosts may differ, or one clock may be set back, without causing a restore."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """The range of a changelog partition: [begin, end).

    Attributes:
        begin: Its first offset.
        end: Its last stable offset.
        topic_id: Kafka's id of the topic, "" = unknown.
        delete_retention_ms: How long the topic keeps tombstones.
    """

    begin: int
    end: int
    topic_id: str = ""
    delete_retention_ms: int = DELETE_RETENTION_MS

    @property
    def max_age_ms(self) -> int:
        """Maximum age of a local store: half the time for which tombstones stay, so that a slow restore is safe too."""
        return self.delete_retention_ms // 2

    def outlives(self, offset: int, as_of_ms: int, now_ms: int) -> bool:
        """Whether tombstones after an offset may be gone, for rows that were complete up to it at the time `as_of_ms`; 0: unknown.

        A time in the future shows no age, because one of the two clocks was wrong.
        """
        if offset >= self.end or as_of_ms <= 0:
            return False
        return not now_ms - self.max_age_ms <= as_of_ms <= now_ms + CLOCKS_DIFFER_MS


@dataclass(frozen=True, slots=True)
class StorePlan:
    """The range to read for one store: [start, end) of its changelog partition."""

    store: str
    action: Action
    start: int
    end: int
    reason: str


def plan_restore(
    specs: Iterable[StoreSpec],
    origins: Mapping[str, StoreOrigin],
    offsets: Mapping[str, int],
    target: RestoreTarget,
    logs: Mapping[str, LogRange],
    *,
    now_ms: int,
) -> list[StorePlan]:
    """One plan for each store. A store without a changelog is emptied if its content is foreign, and otherwise left alone.

    Raises:
        RestoreError: A changelog has lost records that the target needs.
    """
    plans = []
    for spec in specs:
        origin = origins.get(spec.name)
        if not spec.logged:
            if origin is not None and origin.query_id != target.query_id:
                plans.append(StorePlan(spec.name, Action.FROM_START, 0, 0, _of_another_query(origin, target)))
            continue
        log = logs[spec.name]
        check_changelog_id(spec.name, log.topic_id, target)
        end = target.changelog_ends.get(spec.name, log.end)
        check_end(spec.name, log.end, target.version, end)
        part = replace(log, begin=min(log.begin, end), end=end)
        why = distrust(spec, origin, offsets.get(spec.name), target, part, now_ms)
        if why is not None:
            plans.append(StorePlan(spec.name, Action.FROM_START, part.begin, end, why))
        elif offsets[spec.name] == end:
            plans.append(StorePlan(spec.name, Action.NOTHING, end, end, "up to date"))
        else:
            plans.append(StorePlan(spec.name, Action.TAIL, offsets[spec.name], end, "behind"))
    return plans


def check_changelog_id(store: str, found: str, target: RestoreTarget) -> None:
    """Checks that a changelog is the topic that the step wrote to."""
    promised = target.changelog_ids.get(store, "")
    if found and promised and found != promised:
        raise RestoreError(
            f"the changelog topic of store {store!r} was deleted and created again after step {target.version}: its id was "
            f"{promised}, now it is {found}, so its offsets mean other records. {NO_CHANGELOG}"
        )


def distrust(
    spec: StoreSpec, origin: StoreOrigin | None, offset: int | None, target: RestoreTarget, log: LogRange, now_ms: int
) -> str | None:
    """Why the local rows cannot be used; None if they can."""
    if offset is None or origin is None:
        return "no local state" if offset is None else "local state does not say where it comes from"
    if origin.query_id != target.query_id:
        return _of_another_query(origin, target)
    return cannot_continue(origin, offset, log, now_ms, "compact" in cleanup_policy(spec))


def cannot_continue(origin: StoreOrigin, offset: int, log: LogRange, now_ms: int, compacted: bool = True) -> str | None:
    """Why rows that hold a log up to an offset cannot be completed by reading the log from there on; None: they can.

    This is the one rule for all followers of logs: tasks, standbys, served copies and global tables. Example: rows at offset 700 of
    a compacted log [0, 900) that were last complete 13 hours ago, while the topic keeps tombstones for 24: they are read again,
    because a key that was deleted at 800 may have no tombstone any more by the time that the restore comes to it.
    """
    why = None
    if origin.topic_id and log.topic_id and origin.topic_id != log.topic_id:
        why = f"local state comes from a topic of the same name with id {origin.topic_id}, this one has {log.topic_id}"
    elif offset > log.end:
        why = f"local state is ahead: offset {offset}, the committed step ends at {log.end}"
    elif offset < log.begin:
        why = f"local state is at offset {offset}, the changelog starts at {log.begin}"
    elif compacted and log.outlives(offset, origin.as_of_ms, now_ms):
        seconds = (now_ms - origin.as_of_ms) // 1000
        age = f"{seconds} s old" if seconds >= 0 else f"{-seconds} s newer than the clock of this host"
        why = f"local state is {age}: tombstones may be gone"
    return why


def _of_another_query(origin: StoreOrigin, target: RestoreTarget) -> str:
    return f"local state comes from query {origin.query_id}, not from {target.query_id}"


class UnprovenError(Exception):
    """The records read are not the ones that the step wrote; the reason is not known yet."""


class StepProof:
    """Verifies that a restore saw exactly the changelog records that the target's step wrote.

    The marker records where the step's records begin in each changelog, their number and their digest. The proof therefore works
    for any restore that reads all of these records, wherever it starts. The proof is skipped if records may legitimately be
    missing: compaction removes tombstones after a time, and versions that have left a history.
    """

    def __init__(self, target: RestoreTarget) -> None:
        self._target = target
        self._digest = StepDigest()

    def add(self, store: str, columns: RecordColumns) -> None:
        """Adds the next records of a store's changelog; records of older steps are ignored."""
        begin = self._target.changelog_begins.get(store)
        if begin is None or not len(columns) or columns.offsets[-1] < begin:
            return
        own = int(columns.offsets.searchsorted(begin))
        self._digest.add(store, ChangelogBatch(columns.keys[own:], columns.values[own:], columns.timestamps[own:]))

    def check(self) -> None:
        """Compares the records read with the marker.

        Raises:
            UnprovenError: They differ.
        """
        check_step_digest(self._target, self._digest)


def check_step_digest(target: RestoreTarget, read: StepDigest) -> None:
    """Compares the records of a step with its marker."""
    promised, found = target.changelog_records, read.hexdigest()
    if promised is not None and read.records != promised:
        what = f"wrote {promised} changelog records, {read.records} were found"
    elif found != target.changelog_hash:
        what = f"wrote changelog records with the digest {target.changelog_hash}, the ones that were found have {found}"
    else:
        return
    raise UnprovenError(f"step {target.version} {what}")


def provable(
    plans: Sequence[StorePlan],
    specs: Mapping[str, StoreSpec],
    target: RestoreTarget,
    logs: Mapping[str, LogRange],
    now_ms: int,
) -> bool:
    """Whether all records of the target's step will be read, and none of them may legitimately be missing."""
    if not target.changelog_hash or not target.changelog_begins:
        return False
    if not target.changelog_begins.keys() <= {plan.store for plan in plans}:
        return False
    age_ms = now_ms - target.written_ms
    for plan in plans:
        begin = target.changelog_begins.get(plan.store, plan.end)
        if begin == plan.end:
            continue
        # Half a day, because a versioned store's own history stays a day longer than needed.
        limit_ms = DAY_MS // 2 if specs[plan.store].kind is StoreKind.VERSIONED else logs[plan.store].max_age_ms
        first = plan.end if plan.action is Action.NOTHING else plan.start
        if first > begin or age_ms > limit_ms:
            return False
    return True
