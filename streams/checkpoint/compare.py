"""The comparison of a checkpoint with the commit markers of all tasks, before any task runs. Pure functions.

`state.commit.decide` makes the same comparison for one task in each step and has the last word. But by then other tasks may
have committed, and a wrong checkpoint would no longer be the only problem. So the driver compares all markers with the
checkpoint before the first micro-batch of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from state.commit.decide import ADOPT, RESET, TaskIdentity, check_lineage
from state.commit.marker import CommitMarker
from state.errors import CheckpointMismatchError
from streams.checkpoint.log import FIRST_BATCH, Checkpoint

Markers = Mapping[int, CommitMarker | None]
"""Task -> its last marker; None for a task that has never committed."""


@dataclass(frozen=True, slots=True)
class SubIdentity:
    """A sub-topology that is about to run.

    Attributes:
        application_id: The application.
        name: The sub-topology.
        tasks: The number of its tasks.
        topology_hash: The hash of its structure.
    """

    application_id: str
    name: str
    tasks: int
    topology_hash: str

    def task(self, number: int, query_id: str) -> TaskIdentity:
        """The identity of one of its tasks."""
        return TaskIdentity(self.application_id, self.name, number, self.tasks, query_id, self.topology_hash)

    def __str__(self) -> str:
        return f"{self.application_id}/{self.name}"


def misfit(sub: SubIdentity, what: str, remedy: str = ADOPT) -> CheckpointMismatchError:
    """The error for a checkpoint and topics that do not belong together."""
    return CheckpointMismatchError(f"{sub}: {what}. Nothing was written. {remedy.format(id=sub.application_id)}")


def check_program(sub: SubIdentity, markers: Markers) -> None:
    """Compares the markers with the program.

    Raises:
        CheckpointMismatchError: The state was written with another number of tasks, or by another topology.
    """
    for task, marker in sorted(markers.items()):
        if marker is not None:
            check_lineage(sub.task(task, marker.query_id), marker)


def check_checkpoint(sub: SubIdentity, checkpoint: Checkpoint, markers: Markers) -> None:
    """Compares the markers with the checkpoint: tasks must have committed nothing that the checkpoint does not know.

    Raises:
        CheckpointMismatchError: The checkpoint was lost, rolled back, or belongs to another application.
    """
    found = {task: marker for task, marker in sorted(markers.items()) if marker is not None}
    if checkpoint.query_id is None:
        if found:
            newest = max(marker.version for marker in found.values())
            raise misfit(
                sub,
                f"there is no checkpoint, but {len(found)} of {sub.tasks} tasks have committed, up to version {newest}",
            )
        return
    for task, marker in found.items():
        check_lineage(sub.task(task, checkpoint.query_id), marker)
        _check_batch(sub, checkpoint, task, marker)


def _check_batch(sub: SubIdentity, checkpoint: Checkpoint, task: int, marker: CommitMarker) -> None:
    batch = marker.batch_id
    who = f"task {task} has committed micro-batch {batch} (version {marker.version})"
    if batch > checkpoint.logged and not _is_taken_over(checkpoint, marker):
        if batch == 0 and marker.version == marker.adopted:
            raise misfit(
                sub, f"{who}, which a file of the checkpoint describes, {sub.name}/{FIRST_BATCH}, that is missing"
            )
        raise misfit(
            sub, f"{who}, the checkpoint knows them up to {checkpoint.logged} only: it was rolled back to an older copy"
        )
    expected = checkpoint.digest(batch)
    end = checkpoint.offsets.get(batch)
    if expected is not None:
        fits = marker.batch == expected
    elif batch == 0 and end is not None:
        # Begun by an older version of the engine, which did not save where the first micro-batch begins.
        fits = all(
            to == end.of(topic, int(partition))
            for topic, of in marker.ranges.items()
            for partition, (_, to) in of.items()
        )
    else:
        fits = True
    if not fits:
        raise misfit(
            sub,
            f"{who} with other input ranges than the checkpoint has for it: the checkpoint was rolled back to an older copy, and "
            "has gone on from there",
        )


def _is_taken_over(checkpoint: Checkpoint, marker: CommitMarker) -> bool:
    """Whether a marker is of the first micro-batch of an adopted checkpoint, which repeats the last one of the old."""
    return marker.batch_id == 0 and checkpoint.logged < 0 and checkpoint.digest(0) == marker.batch


def check_topic(sub: SubIdentity, checkpoint: Checkpoint, markers: Markers) -> None:
    """Compares the checkpoint with the markers: tasks must have committed every micro-batch that Spark has confirmed.

    Each range of a micro-batch makes the task that owns its partition commit, and a tick makes all tasks commit; so these
    tasks have a marker of that micro-batch, or a later one.

    Raises:
        CheckpointMismatchError: The commits topic was lost, in whole or in part, or the checkpoint belongs to another
            application.
    """
    for batch in sorted((each for each in checkpoint.offsets if each <= checkpoint.committed), reverse=True):
        start, end, ranges = checkpoint.start(batch), checkpoint.offsets.get(batch), checkpoint.ranges(batch)
        if start is None or end is None or ranges is None:
            continue
        owners = {each.partition % sub.tasks for each in ranges}
        for task in sorted(owners if start.tick == end.tick else range(sub.tasks)):
            marker = markers.get(task)
            if marker is not None and marker.batch_id >= batch:
                continue
            last = "nothing at all" if marker is None else f"micro-batch {marker.batch_id} as the last one"
            raise misfit(
                sub,
                f"Spark has confirmed micro-batch {batch}, but the commits topic has {last} of task {task}: the commits topic was "
                "deleted, truncated or recreated, or the checkpoint belongs to another application id (then give this one a "
                "checkpoint_dir of its own, and do not reset it before)",
                "Restore the commits topic from a backup; without one, " + RESET,
            )
