"""The plan of a rescale for one sub-topology, and the markers that the new tasks begin with. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from state.commit.marker import FORMAT, CommitMarker
from state.errors import CheckpointMismatchError
from streams.application.rescale.states import UsersChoices, least, merged_state, sources_of
from streams.checkpoint.adoption import NEVER
from streams.checkpoint.compare import Markers, SubIdentity
from streams.checkpoint.log import Checkpoint
from streams.errors import RescaleError
from streams.source.offsets import FirstBatch


class Phase(Enum):
    """How far a rescale has come."""

    COPYING = "copying"
    """The plan is made; the staging topics may be incomplete."""
    CLOSING = "closing"
    """The staging topics are complete, and so are the new markers."""
    REPLACING = "replacing"
    """No old task can commit any more, and the changelogs may be gone: only forward from here."""
    DONE = "done"
    """Only the staging topics are left."""


@dataclass(frozen=True)
class RescalePlan:
    """What becomes of a sub-topology.

    Attributes:
        query_id: The id of the query of the new checkpoint.
        old: The number of tasks so far.
        new: The new number of tasks.
        first: Where the new checkpoint begins; None: no checkpoint exists, and the next start makes one.
        phase: How far the rescale has come.
        versions: Task -> the version of its last marker when its rows were copied; without tasks that have never committed.
    """

    query_id: str
    old: int
    new: int
    first: FirstBatch | None
    phase: Phase = Phase.COPYING
    versions: Mapping[int, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        first = None if self.first is None else self.first.to_json()
        return {
            "query_id": self.query_id,
            "old": self.old,
            "new": self.new,
            "first": first,
            "phase": self.phase.value,
            "versions": {str(task): version for task, version in sorted(self.versions.items())},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RescalePlan:
        first = None if data["first"] is None else FirstBatch.from_json(data["first"])
        versions = {int(task): int(version) for task, version in data["versions"].items()}
        return cls(str(data["query_id"]), int(data["old"]), int(data["new"]), first, Phase(data["phase"]), versions)


def first_batch(sub: SubIdentity, checkpoint: Checkpoint, markers: Markers) -> FirstBatch | None:
    """Where the new checkpoint begins: where the old one ends.

    Raises:
        RescaleError: The last micro-batch is not finished.
    """
    if checkpoint.query_id is None:
        # Never begun: a checkpoint that is missing beside markers does not match them.
        return None
    if checkpoint.logged == checkpoint.committed and not checkpoint.repeats:
        at = checkpoint.start(checkpoint.logged + 1)
    elif any(marker is not None and marker.batch_id >= max(checkpoint.logged, 0) for marker in markers.values()):
        raise RescaleError(
            f"{sub}: micro-batch {max(checkpoint.logged, 0)} was begun and is not finished: some of its {sub.tasks} tasks have "
            f"committed it, others perhaps not. Start the application with tasks={sub.tasks} until it has finished this "
            f"micro-batch (with --available-now it ends by itself), and rescale then. Nothing was written"
        )
    else:
        # A stop lets the next micro-batch be planned, but no task of it begins: it is planned again, for the new tasks.
        at = checkpoint.start(max(checkpoint.logged, 0))
    if at is None:
        if any(markers.values()):
            raise RescaleError(
                f"{sub}: the checkpoint does not say where reading goes on. Start the application once, and rescale then. "
                f"Nothing was written"
            )
        return None
    # Positions of a reset (`end`) and of an earlier rescale (`fixed`) hold before any task has committed, too.
    chosen = checkpoint.first is not None and (checkpoint.first.fixed or checkpoint.first.end is not None)
    return FirstBatch(replace(at, now_ms=None), fixed=chosen or any(markers.values()))


def new_markers(
    plan: RescalePlan, markers: Markers, users: frozenset[str], choices: UsersChoices
) -> dict[int, CommitMarker]:
    """The marker of each new task; none if no task has ever committed.

    Raises:
        RescaleError: The state of a processor has no rule.
    """
    found = [marker for _, marker in sorted(markers.items()) if marker is not None]
    if not found:
        return {}
    newest = max(found, key=lambda marker: marker.version)
    made = {}
    for task in range(plan.new):
        sources = [markers.get(source) for source in sources_of(task, plan.old, plan.new)]
        known = [source for source in sources if source is not None]
        states = [{} if source is None else source.operator_state for source in sources]
        made[task] = CommitMarker(
            query_id=plan.query_id,
            task=task,
            tasks=plan.new,
            topology_hash=newest.topology_hash,
            version=newest.version,
            batch_id=NEVER,
            batch="",
            ranges={},
            topic_ids={topic: id_ for marker in found for topic, id_ in marker.topic_ids.items()},
            stream_time=least(None if source is None else source.stream_time for source in sources),
            operator_state=merged_state(states, task, plan.new, users, choices),
            changelog_ends={},
            expired_before=_expired_before([marker.expired_before for marker in known], len(sources)),
            counts={},
            changelog_hash="",
            now_ms=max(marker.now_ms for marker in found),
            adopted=newest.version,
            application_id=newest.application_id,
            format=FORMAT,
        )
    return made


def check_same(sub: SubIdentity, versions: Mapping[int, int], now: Markers) -> None:
    """Checks that no task has committed since its rows were copied.

    Raises:
        CheckpointMismatchError: The application runs.
    """
    for task, marker in sorted(now.items()):
        if (0 if marker is None else marker.version) != versions.get(task, 0):
            raise runs(sub, task)


def runs(sub: SubIdentity, task: int) -> CheckpointMismatchError:
    """The error for an application that is not stopped."""
    return CheckpointMismatchError(
        f"{sub}: task {task} is at work: the application runs. Stop it, on all hosts, and run `streams rescale` again: it goes on "
        "where it was"
    )


def _expired_before(parts: list[Mapping[str, int]], sources: int) -> dict[str, int]:
    """Store -> time below which rows are expired in all tasks whose keys are taken over."""
    stores = {store for part in parts for store in part}
    known = {store: [part[store] for part in parts if store in part] for store in sorted(stores)}
    return {store: min(times) for store, times in known.items() if len(times) == sources}
