"""`StepProof`: verifies that a restore saw exactly the changelog records that the target's step wrote.

The marker records where the step's records begin in each changelog, their number and their digest. The proof therefore works
for any restore that reads all of these records, wherever it starts. The proof is skipped where records may legitimately be
missing: compaction removes tombstones after a time, and versions that have left a history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from state.changelog.topics import DAY_MS
from state.commit.digest import StepDigest
from state.kafka.columns import RecordColumns
from state.restore.plan import Action, LogRange, RestoreTarget, StorePlan
from state.stores.changelog_records import ChangelogBatch
from state.stores.spec import StoreKind, StoreSpec


class UnprovenError(Exception):
    """The records read are not those that the step wrote; the reason is not known yet."""


class StepProof:
    """Collects the digest of the changelog records of one step.

    Args:
        target: The step.
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
    """Compares the records of a step with its marker.

    Raises:
        UnprovenError: They differ.
    """
    promised, found = target.changelog_records, read.hexdigest()
    if promised is not None and read.records != promised:
        what = f"wrote {promised} changelog records, {read.records} were found"
    elif found != target.changelog_hash:
        what = f"wrote changelog records with the digest {target.changelog_hash}, those that were found have {found}"
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
