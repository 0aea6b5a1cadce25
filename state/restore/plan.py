"""What a restore has to read, told by what the local store says of itself and by what the changelog has. Pure.

For each store one of: nothing, the tail from the stored offset, or everything from the start after emptying the
store. A store is emptied when its own offset cannot be trusted to lead on: it comes from another query, it is behind
the start of the log, ahead of the target, or so old that compaction may have dropped tombstones it has not seen (it
would bring deleted keys back to life).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from state.changelog.topics import DELETE_RETENTION_MS, cleanup_policy
from state.errors import RestoreError
from state.stores.position import StorePosition
from state.stores.spec import StoreSpec

MAX_AGE_MS = DELETE_RETENTION_MS // 2
"""Older local stores are not trusted; half the time that tombstones are kept, so that a slow restore is safe too."""


class Action(Enum):
    """What to do with one store."""

    NOTHING = "nothing"
    TAIL = "tail"
    FROM_START = "from start"


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The committed step that a restore leads to.

    Attributes:
        query_id: id of the Spark query.
        version: number of the step.
        changelog_ends: store -> offset after its last changelog record.
        written_ms: batch time of the step.
        expired_before: segmented store -> rows with times below never matter again, ms.
        changelog_records: how many changelog records the step wrote, None = unknown.
        changelog_hash: `state.commit.digest` of them, None = unknown.
    """

    query_id: str
    version: int
    changelog_ends: Mapping[str, int]
    written_ms: int = 0
    expired_before: Mapping[str, int] = field(default_factory=dict)
    changelog_records: int | None = None
    changelog_hash: str | None = None


@dataclass(frozen=True, slots=True)
class LogRange:
    """What a changelog partition has: [begin, end)."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class StorePlan:
    """What to read for one store: [start, end) of its changelog partition.

    Attributes:
        store: its name.
        action: what to do.
        start: first offset to read.
        end: where reading ends.
        reason: why, for the log.
    """

    store: str
    action: Action
    start: int
    end: int
    reason: str


def plan_restore(
    specs: Iterable[StoreSpec],
    position: StorePosition | None,
    offsets: Mapping[str, int],
    target: RestoreTarget,
    logs: Mapping[str, LogRange],
    *,
    now_ms: int,
) -> list[StorePlan]:
    """One plan for each logged store.

    Args:
        specs: the task's stores.
        position: the step that the local tables hold.
        offsets: store -> next changelog offset of the local tables.
        target: where to.
        logs: store -> what its changelog partition has.
        now_ms: the batch time of the step that waits for this.

    Raises:
        RestoreError: a changelog has lost what the target promises.
    """
    plans = []
    for spec in specs:
        if not spec.logged:
            continue
        log = logs[spec.name]
        end = target.changelog_ends.get(spec.name, log.end)
        check_end(spec.name, log.end, target.version, end)
        begin = min(log.begin, end)
        why = _distrust(spec, position, offsets.get(spec.name), target, LogRange(begin, end), now_ms)
        if why is not None:
            plans.append(StorePlan(spec.name, Action.FROM_START, begin, end, why))
        elif offsets[spec.name] == end:
            plans.append(StorePlan(spec.name, Action.NOTHING, end, end, "up to date"))
        else:
            plans.append(StorePlan(spec.name, Action.TAIL, offsets[spec.name], end, "behind"))
    return plans


def check_end(store: str, end: int, version: int, promised: int) -> None:
    """Checks that a changelog still has all that a step wrote.

    Args:
        store: the store.
        end: where its changelog partition ends.
        version: number of the step.
        promised: where it ended after that step, by its commit marker.

    Raises:
        RestoreError: records are missing.
    """
    if end < promised:
        raise RestoreError(
            f"the changelog of store {store!r} ends at offset {end}, but the commit marker of step {version} says "
            f"{promised}: the topic was truncated, or deleted and created again. Restore the topic from a backup, or "
            f"reset the application to rebuild the state from its inputs"
        )


def _distrust(
    spec: StoreSpec,
    position: StorePosition | None,
    offset: int | None,
    target: RestoreTarget,
    log: LogRange,
    now_ms: int,
) -> str | None:
    """Why the local rows are of no use; None if they are."""
    if offset is None:
        return "no local state"
    if position is not None and position.query_id != target.query_id:
        return f"local state comes from query {position.query_id}, not from {target.query_id}"
    if offset > log.end:
        return f"local state is ahead: offset {offset}, the committed step ends at {log.end}"
    if offset < log.begin:
        return f"local state is at offset {offset}, the changelog starts at {log.begin}"
    compacted = "compact" in cleanup_policy(spec)
    if compacted and offset < log.end and position is not None and 0 < position.written_ms < now_ms - MAX_AGE_MS:
        return f"local state is {(now_ms - position.written_ms) // 1000} s old: tombstones may be gone"
    return None
