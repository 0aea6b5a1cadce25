"""Decides what an attempt may do, from Spark's copy of the marker and the marker on the commits partition. A pure function.

Spark may be one step behind Kafka (after a crash between Kafka's commit and Spark's own), never ahead of Kafka and never
further behind. Any other combination means that a checkpoint or a topic was lost, rolled back, or belongs to something else. Then
the attempt ends with an error that describes the findings, and nothing is written. A task never "starts empty".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from state.commit.marker import EXPORTED, RESCALED, UNPLACED, CommitMarker, Ranges
from state.errors import CheckpointMismatchError
from state.kafka.placement import Placement

RESET = "`streams reset {id}` deletes the application's state, changelogs and checkpoint, to start over."
ADOPT = (
    "Put the right checkpoint back; if it is lost, `streams adopt MODULE:TOPOLOGY -a {id}` makes a new one from what the commits "
    "topic says, and nothing is lost."
)


class Decision(Enum):
    """What to do with the micro-batch."""

    RUN = "run"
    SKIP = "skip"
    """Already committed: bring the store forward, report the marker, send nothing."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """The task that runs a step, and the query and topology that it belongs to.

    Attributes:
        application_id: Prefix of all internal topics and transactional ids.
        sub_topology: Stable name of the sub-topology.
        task: Number of the task.
        tasks: Number of tasks of the sub-topology.
        query_id: Id of Spark's checkpoint.
        topology_hash: Structure of the sub-topology.
        placement: The rule that assigns keys to tasks (`CommitMarker.placement`); None: it is not known, and not compared.
    """

    application_id: str
    sub_topology: str
    task: int
    tasks: int
    query_id: str
    topology_hash: str
    placement: str | None = None

    @property
    def written_placement(self) -> str:
        """The placement in the task's markers. Rows from outside Kafka have none, because their tasks do not depend on keys."""
        return Placement.MURMUR2.value if self.placement is None else self.placement

    @property
    def transactional_id(self) -> str:
        """The task's own transactional id, which micro-batches use, and commands that replace its marker."""
        return f"{self.application_id}-{self.sub_topology}-{self.task}"

    def noted(self, transactional_id: str) -> str:
        """The form in which a marker notes the transactional id that writes it."""
        return "" if transactional_id == self.transactional_id else transactional_id

    def writer_of(self, marker: CommitMarker | None) -> str:
        """The transactional id that wrote the task's last marker, or that would write the first one in a micro-batch."""
        return (marker.transactional_id if marker else "") or self.transactional_id

    def __str__(self) -> str:
        return f"task {self.task} of {self.tasks} of {self.application_id}/{self.sub_topology}"


def slot_transactional_id(application_id: str, slot: int) -> str:
    """The transactional id of a slot, which writes for all of its tasks. It has a `~`, which no topic or sub-topology has.

    A slot has the tasks whose numbers leave the same remainder as its own number when divided by the number of slots. So a task has
    only ever been in slots whose numbers are not larger than its own, whatever the number of slots was.
    """
    return f"{application_id}-slot~{slot}"


def decide(
    identity: TaskIdentity,
    batch_id: int,
    batch: str,
    copy: CommitMarker | None,
    found: CommitMarker | None,
    ranges: Ranges = MappingProxyType({}),
) -> Decision:
    """Compares Spark's copy with the last marker.

    A query that has taken over the state of another one (`streams adopt`) begins without copies, at the version that its
    marker records as `adopted`; that marker may already contain the first micro-batch of the new checkpoint.

    A task that has committed a micro-batch is not always called again when readers run again within that micro-batch (lost shuffle
    files), because its records may have been compacted away since. Spark then completes the micro-batch without knowing of the
    commit. The commit remains valid.

    Raises:
        CheckpointMismatchError: The two do not belong together.
    """
    if found is not None:
        check_lineage(identity, found)
    expected = expected_version(copy, found)
    version = found.version if found else 0
    if version < expected:
        raise _topic_is_behind(identity, expected, version)
    if found is None:
        return Decision.RUN
    same_input = found.same_input(identity.query_id, batch_id, batch)
    if version == expected:
        if copy is not None and copy != found:
            raise mismatch(
                identity, f"Spark's copy of the commit marker of version {version} differs from the one in Kafka", ADOPT
            )
        return Decision.SKIP if copy is None and same_input else Decision.RUN
    return _decide_ahead(identity, batch_id, found, expected, same_input, ranges)


def _decide_ahead(
    identity: TaskIdentity, batch_id: int, found: CommitMarker, expected: int, same_input: bool, ranges: Ranges
) -> Decision:
    """The decision if Kafka's marker is ahead of Spark's checkpoint."""
    version = found.version
    if version > expected + 1 + found.passed_over:
        raise mismatch(
            identity,
            f"the commits topic is at version {version}, but Spark's checkpoint at version {expected}: "
            "the checkpoint was rolled back to an older copy",
            ADOPT,
        )
    if not same_input and follows(found, batch_id, ranges):
        return Decision.RUN
    if not same_input:
        raise mismatch(
            identity,
            f"version {version} was committed by batch {found.batch_id} with other input ranges than batch {batch_id} has now",
            ADOPT,
        )
    return Decision.SKIP


def follows(found: CommitMarker, batch_id: int, ranges: Ranges) -> bool:
    """Whether a micro-batch continues where a committed one of the same query ended, in every partition that fed it."""
    return found.batch_id < batch_id and all(
        partition in ranges.get(topic, {}) and ranges[topic][partition][0] >= end
        for topic, partitions in found.ranges.items()
        for partition, (_, end) in partitions.items()
    )


def expected_version(copy: CommitMarker | None, found: CommitMarker | None) -> int:
    """The version that Spark's checkpoint is at."""
    if copy is not None:
        return copy.version
    return found.adopted if found else 0


def _topic_is_behind(identity: TaskIdentity, expected: int, version: int) -> CheckpointMismatchError:
    return mismatch(
        identity,
        f"Spark's checkpoint is at version {expected}, but the commits topic ends at version {version}: "
        "the commits topic was deleted, truncated or recreated, or the checkpoint belongs to another application id "
        "(then set another checkpoint_dir for this one, and do not reset it before)",
        "Restore the commits topic from a backup; without one, " + RESET,
    )


def check_lineage(identity: TaskIdentity, found: CommitMarker) -> None:
    """Checks that a marker belongs to this query, with the same number of tasks and the same topology.

    Raises:
        CheckpointMismatchError: The marker belongs to another query, topology or number of tasks.
    """
    if found.query_id.endswith(RESCALED):
        raise mismatch(
            identity,
            "a rescale has taken over its state, and has not come to its end",
            "Stop the application, and run the same `streams rescale` again: it continues where it stopped.",
        )
    if found.query_id.endswith(EXPORTED):
        raise mismatch(
            identity,
            "its state was handed to Kafka Streams",
            "Stop the Java application, and run `streams import-app`: it takes the state back.",
        )
    _check_same_query(identity, found)


def _check_same_query(identity: TaskIdentity, found: CommitMarker) -> None:
    if found.query_id != identity.query_id:
        raise mismatch(
            identity,
            f"the last commit (version {found.version}) was made under checkpoint {found.query_id}, this query runs on "
            f"checkpoint {identity.query_id}: the checkpoint was deleted, or another application uses this application id",
            ADOPT,
        )
    if found.tasks != identity.tasks:
        raise mismatch(
            identity,
            f"the state was written by {found.tasks} tasks, this query has {identity.tasks}",
            f"Set tasks={found.tasks}, or run `streams rescale` with --tasks {identity.tasks}.",
        )
    if identity.placement is not None and found.placement not in (identity.placement, UNPLACED):
        raise mismatch(
            identity,
            f"the state was written with the keys of {found.placement} in each task, this query goes by "
            f"{identity.placement or 'no function yet'}",
            "Start the application again, which goes by what the commits topic says; `streams rescale` with --placement moves it.",
        )
    if found.topology_hash != identity.topology_hash:
        raise mismatch(
            identity,
            f"the state was written by another topology (hash {found.topology_hash}, now {identity.topology_hash}): operators, "
            "windows or stores have changed",
            "`streams diff topology.json MODULE:TOPOLOGY`, with the topology.json of the checkpoint folder, shows which. "
            "Run the old topology, or choose a new application id.",
        )


def mismatch(identity: TaskIdentity, what: str, remedy: str) -> CheckpointMismatchError:
    """The error for a task whose checkpoint and topics do not belong together."""
    return CheckpointMismatchError(
        f"{identity}: {what}. Nothing was written. {remedy.format(id=identity.application_id)}"
    )
