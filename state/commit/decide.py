"""What an attempt may do, told by Spark's copy and by the marker found on the commits partition. A pure function.

Spark may be one step behind Kafka (it crashed between Kafka's commit and its own), never ahead of it and never further
behind. Everything else means that a checkpoint or a topic was lost, rolled back, or belongs to someone else: the attempt
ends with an error that says what was found, and nothing is written. It never "starts empty".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from state.commit.marker import CommitMarker
from state.errors import CheckpointMismatchError


class Decision(Enum):
    """What to do with the micro-batch."""

    RUN = "run"
    SKIP = "skip"
    """It is committed already: bring the store forward, report the marker, send nothing."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Who runs a step.

    Attributes:
        application_id: prefix of all internal topics and transactional ids.
        sub_topology: stable name of the sub-topology.
        task: number of the task.
        tasks: number of tasks of the sub-topology.
        query_id: id of Spark's checkpoint.
        topology_hash: structure of the sub-topology.
    """

    application_id: str
    sub_topology: str
    task: int
    tasks: int
    query_id: str
    topology_hash: str

    @property
    def transactional_id(self) -> str:
        """The one transactional id that ever writes this task's changelog and commits partitions."""
        return f"{self.application_id}-{self.sub_topology}-{self.task}"

    def __str__(self) -> str:
        return f"task {self.task} of {self.tasks} of {self.application_id}/{self.sub_topology}"


def decide(
    identity: TaskIdentity, batch_id: int, batch: str, copy: CommitMarker | None, found: CommitMarker | None
) -> Decision:
    """Compares Spark's copy with the last marker.

    Args:
        identity: the task.
        batch_id: the micro-batch that Spark asks for.
        batch: digest of its offset ranges.
        copy: the marker in Spark's GroupState, None before the first step.
        found: the last committed marker, None on an empty commits partition.

    Raises:
        CheckpointMismatchError: the two do not belong together.
    """
    expected = copy.version if copy else 0
    version = found.version if found else 0
    if found is not None:
        _check_lineage(identity, found)
    if version == expected:
        if copy is not None and copy != found:
            raise _mismatch(
                identity, f"Spark's copy of the commit marker of version {version} differs from the one in Kafka"
            )
        return Decision.RUN
    if found is not None and version == expected + 1:
        if found.same_input(identity.query_id, batch_id, batch):
            return Decision.SKIP
        raise _mismatch(
            identity,
            f"version {version} was committed by batch {found.batch_id} with other input ranges than batch {batch_id} has now",
        )
    if version < expected:
        raise _mismatch(
            identity,
            f"Spark's checkpoint is at version {expected}, but the commits topic ends at version {version}: "
            "the commits topic was deleted, truncated or recreated, or the checkpoint belongs to another application id "
            "(then give this one a checkpoint_dir of its own, and do not reset it before)",
        )
    raise _mismatch(
        identity,
        f"the commits topic is at version {version}, but Spark's checkpoint at version {expected}: "
        "the checkpoint was rolled back to an older copy",
    )


def _check_lineage(identity: TaskIdentity, found: CommitMarker) -> None:
    if found.query_id != identity.query_id:
        raise _mismatch(
            identity,
            f"the last commit (version {found.version}) was made under checkpoint {found.query_id}, this query runs on "
            f"checkpoint {identity.query_id}: the checkpoint was deleted, or another application uses this application id",
        )
    if found.tasks != identity.tasks:
        raise _mismatch(
            identity,
            f"the state was written by {found.tasks} tasks, this query has {identity.tasks}. Set tasks={found.tasks}, or rescale",
        )
    if found.topology_hash != identity.topology_hash:
        raise _mismatch(
            identity,
            f"the state was written by another topology (hash {found.topology_hash}, now {identity.topology_hash}): operators, "
            "windows or stores have changed. `streams diff topology.json MODULE:TOPOLOGY`, with the topology.json of the "
            "checkpoint's folder, tells which. Run the old topology, or choose a new application id",
        )


def _mismatch(identity: TaskIdentity, what: str) -> CheckpointMismatchError:
    return CheckpointMismatchError(
        f"{identity}: {what}. Nothing was written. Put the right checkpoint back, or run "
        f"`streams reset {identity.application_id}` to delete the application's state, changelogs and checkpoint and start anew."
    )
