"""Moves the reading positions of an application and keeps its state: what is read twice is counted twice.

Each sub-topology gets a new checkpoint that begins at the positions, and its tasks get markers of the new query, with the
version and the state of the old ones, as in an adoption (`adopt.take_over`): fenced, planned on disk first, continued after an
interruption. The consumer group moves in the same transactions as the markers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from state.commit.marker import CommitMarker
from state.commit.protocols import KafkaAccess
from state.errors import CheckpointMismatchError
from state.kafka.topics import TopicPartition
from streams.application.adopt import take_over, unfinished_plan
from streams.application.markers import MarkerAccess
from streams.checkpoint.adoption import Adoption
from streams.checkpoint.compare import Markers, SubIdentity, check_checkpoint, check_topic
from streams.checkpoint.files import CheckpointFiles
from streams.checkpoint.log import Checkpoint, read_checkpoint
from streams.errors import ConfigError
from streams.source.offsets import FirstBatch, SourceOffsets


@dataclass(frozen=True)
class Move:
    """The move of one sub-topology.

    Attributes:
        sub: The sub-topology.
        access: Its commits topic.
        first: Where it then begins to read; repartition topics go on where they were.
    """

    sub: SubIdentity
    access: MarkerAccess
    first: FirstBatch


def plan_moves(
    application_id: str,
    kafka: KafkaAccess,
    files: CheckpointFiles,
    tasks: Mapping[str, int],
    start: Mapping[str, FirstBatch],
) -> list[Move]:
    """Plans the moves; changes nothing.

    Raises:
        CheckpointMismatchError: Checkpoint and markers do not belong together: adopt first.
        ConfigError: A sub-topology has never committed, or its last micro-batch is not complete.
    """
    return [
        _plan(application_id, kafka, files, name, tasks.get(name, 0), first) for name, first in sorted(start.items())
    ]


def _plan(
    application_id: str, kafka: KafkaAccess, files: CheckpointFiles, name: str, tasks: int, first: FirstBatch
) -> Move:
    probe = MarkerAccess(kafka, SubIdentity(application_id, name, tasks, ""))
    markers = probe.read() if tasks else {}
    known = next((marker for marker in markers.values() if marker is not None), None)
    if known is None:
        raise ConfigError(f"{name} has no state: no task has committed. Reset it without --keep-state")
    sub = SubIdentity(application_id, name, tasks, known.topology_hash)
    checkpoint = read_checkpoint(files, name, {marker.batch_id for marker in markers.values() if marker})
    try:
        check_checkpoint(sub, checkpoint, markers)
        check_topic(sub, checkpoint, markers)
    except CheckpointMismatchError:
        if unfinished_plan(files, sub, markers) is None:
            raise
        # An interrupted move: `take_over` goes on with its own plan.
        return Move(sub, MarkerAccess(kafka, sub), first)
    return Move(sub, MarkerAccess(kafka, sub), _beside(sub, first, checkpoint))


def _beside(sub: SubIdentity, first: FirstBatch, checkpoint: Checkpoint) -> FirstBatch:
    """The positions together with those in topics that are not moved."""
    if checkpoint.logged > checkpoint.committed or checkpoint.repeats:
        raise ConfigError(
            f"{sub.name}: micro-batch {max(checkpoint.logged, 0)} is logged and not complete, and some tasks may have committed "
            "it. Run the application once more (--available-now) and stop it, then move its positions. Nothing was written"
        )
    present = checkpoint.start(checkpoint.logged + 1)
    if present is None:
        raise ConfigError(
            f"{sub.name}: the checkpoint does not say where reading continues. Run the application once (--available-now) and "
            "stop it, then move its positions. Nothing was written"
        )
    at = SourceOffsets({**present.topics, **first.start.topics})
    return FirstBatch(at, at)


class _WithOffsets:
    """The commits topic of a sub-topology, whose consumer group moves together with each marker."""

    def __init__(self, access: MarkerAccess, offsets: Mapping[TopicPartition, int]) -> None:
        self._access = access
        self._offsets = offsets

    def fenced(self) -> dict[int, CommitMarker | None]:
        return self._access.fenced()

    def replace(self, task: int, expected: CommitMarker, marker: CommitMarker) -> bool:
        return self._access.replace(task, expected, marker, self._offsets)


def carry_out(move: Move, files: CheckpointFiles, report: Callable[[str], None]) -> None:
    """Moves one sub-topology, or continues an interrupted move.

    Raises:
        CheckpointMismatchError: The application is running.
    """
    first = move.first
    offsets = {(topic, n): at for topic, of in first.start.topics.items() for n, at in enumerate(of.offsets)}

    def plan(markers: Markers) -> Adoption:
        versions = {task: marker.version for task, marker in markers.items() if marker is not None}
        return Adoption(str(uuid.uuid4()), first, versions, frozenset())

    take_over(files, move.sub, _WithOffsets(move.access, offsets), plan, report)
