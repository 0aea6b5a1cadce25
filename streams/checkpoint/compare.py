"""Checks that checkpoints and commit markers belong together, makes new checkpoints from markers, and finds oversized batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from state.commit.decide import ADOPT, RESET, TaskIdentity, check_lineage
from state.commit.marker import UNPLACED, CommitMarker, format_of
from state.errors import CheckpointMismatchError
from state.kafka.topics import TopicPartition
from streams.checkpoint.files import FIRST_BATCH, Checkpoint
from streams.engine.source.offsets import FirstBatch, SourceOffsets, TopicOffsets, batch_digest
from streams.model.record import NO_TIME

# --- The comparison of a checkpoint with the commit markers of all tasks, before any task runs. Pure functions.
#
# `state.commit.decide` makes the same comparison for one task in each step and has the last word. But by then other tasks may
# have committed, and a wrong checkpoint would no longer be the only problem. So the driver compares all markers with the
# checkpoint before the first micro-batch of a run.

Markers = Mapping[int, CommitMarker | None]
"""Task -> its last marker; None for a task that has never committed."""


@dataclass(frozen=True, slots=True)
class SubIdentity:
    """A sub-topology that is about to run; `placement` as in `TaskIdentity`."""

    application_id: str
    name: str
    tasks: int
    topology_hash: str
    placement: str | None = None

    def task(self, number: int, query_id: str) -> TaskIdentity:
        return TaskIdentity(
            self.application_id, self.name, number, self.tasks, query_id, self.topology_hash, self.placement
        )

    def __str__(self) -> str:
        return f"{self.application_id}/{self.name}"


def misfit(sub: SubIdentity, what: str, remedy: str = ADOPT) -> CheckpointMismatchError:
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
    """Compares the markers with the checkpoint: tasks must not have committed anything that the checkpoint does not know.

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
                sub, f"{who}, but the checkpoint's file {sub.name}/{FIRST_BATCH}, which describes it, is missing"
            )
        raise misfit(
            sub,
            f"{who}, but the checkpoint has them only up to {checkpoint.logged}: it was rolled back to an older copy",
        )
    expected = checkpoint.digest(batch)
    end = checkpoint.offsets.get(batch)
    if expected is not None:
        fits = marker.batch == expected
    elif batch == 0 and end is not None:
        # An older version of the engine began it, and did not save where the first micro-batch begins.
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
            f"{who} with other input ranges than the checkpoint has for it: the checkpoint was rolled back to an older copy, "
            f"and has continued from there",
        )


def _is_taken_over(checkpoint: Checkpoint, marker: CommitMarker) -> bool:
    """Whether the marker is of an adopted checkpoint's first micro-batch, which repeats the last one of the old checkpoint."""
    return marker.batch_id == 0 and checkpoint.logged < 0 and checkpoint.digest(0) == marker.batch


def check_topic(sub: SubIdentity, checkpoint: Checkpoint, markers: Markers) -> None:
    """Compares the checkpoint with the markers: tasks must have committed every micro-batch that Spark has confirmed.

    Each range of a micro-batch causes a commit of the task that owns its partition, and a tick causes a commit of all tasks. So
    these tasks have a marker of that micro-batch, or a later one.

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
            raise lost_commits(sub, task, f"Spark has confirmed micro-batch {batch}", last)


def lost_commits(sub: SubIdentity, task: int, known: str, last: str = "nothing at all") -> CheckpointMismatchError:
    """Makes the error for markers that existed and are lost. `last` describes the task's last marker that is left."""
    return misfit(
        sub,
        f"{known}, but the commits topic has {last} of task {task}: the commits topic was deleted, truncated or recreated, or the "
        "checkpoint belongs to another application id (then set another checkpoint_dir for this one, and do not reset it before)",
        "Restore the commits topic from a backup; without one, " + RESET,
    )


# --- The contents of a new checkpoint for state that is in Kafka, derived from the commit markers. Pure functions.
#
# The last micro-batch that any task has committed, N, may have been committed by only some of the tasks. So the new
# query begins by repeating N as its micro-batch 0, over exactly the same ranges: tasks that have committed N get a
# marker of micro-batch 0, and skip it; the others get a marker of micro-batch -1, and run it. Records that N did not
# read for a task that has committed it stay unread: micro-batch 1 begins there.
#
# Example: N is 41 and read offsets 100 to 200. Tasks 0 and 1 have committed it, task 2 has not. Micro-batch 0 reads 100 to 200
# again; tasks 0 and 1 skip it and task 2 processes its records.
#
# If N is complete, nothing is repeated, and the new query begins where N ended. Its records may already be deleted,
# and a changed program may send them to other tasks.
#
# Everything is written down as one plan before the first marker is replaced, so that an interrupted adoption can be
# continued.

NEVER = -1
"""The micro-batch number in the marker of a task that has not run any micro-batch yet."""


@dataclass(frozen=True)
class Adoption:
    """The plan of an adoption for one sub-topology.

    Attributes:
        query_id: The id of the new query.
        first: Where the new query begins, and where its first micro-batch ends.
        versions: Task -> the version of its last marker, which stays. In a switch, 0 for a task that has never committed.
        done: The tasks that have already committed that micro-batch. Empty if the micro-batch is, because nothing is repeated.
        switch: Whether the application has made the plan, to continue in the other execution; the next start may finish it. It
            concerns all tasks, and local state stays in use.
    """

    query_id: str
    first: FirstBatch
    versions: Mapping[int, int]
    done: frozenset[int]
    switch: bool = False

    def marker(self, old: CommitMarker) -> CommitMarker:
        """A task's new marker, for the new query, with the version and state of the old one."""
        end = self.first.end or self.first.start
        done = old.task in self.done
        return replace(
            old,
            query_id=self.query_id,
            batch_id=0 if done else NEVER,
            batch=batch_digest(self.first.start, end) if done else "",
            # If no micro-batch is repeated (positions were moved), the ranges of the last one do not predict the next.
            ranges=old.ranges if self.done else {},
            adopted=old.version,
            # A changelog that was restored from a backup has another id, and is adopted with the rest.
            changelog_ids={},
            # If positions were moved, or a checkpoint or topics are lost, the state is no longer the one that local copies know.
            continues=old.state_of if self.switch else "",
            format=format_of(old.placement),
        )

    def barrier(self, sub: SubIdentity, task: int) -> CommitMarker:
        """The marker of a task that has never committed.

        If a process of the previous query opens its session late, or fences again, it finds this marker and commits nothing.
        """
        return CommitMarker(
            query_id=self.query_id,
            task=task,
            tasks=sub.tasks,
            topology_hash=sub.topology_hash,
            version=0,
            batch_id=NEVER,
            batch="",
            ranges={},
            topic_ids={},
            stream_time=NO_TIME,
            operator_state={},
            changelog_ends={},
            expired_before={},
            counts={},
            changelog_hash="",
            now_ms=0,
            application_id=sub.application_id,
            placement=UNPLACED,
        )

    def pending(self, markers: Markers) -> list[int] | None:
        """The tasks whose markers have yet to be replaced; None if the plan was made for other markers."""
        found = {task: marker for task, marker in markers.items() if marker is not None or task in self.versions}
        if versions_of(found) != dict(self.versions):
            return None
        return sorted(task for task, marker in found.items() if not self._has_replaced(marker))

    def begun(self, markers: Markers) -> bool:
        return any(self._has_replaced(marker) for marker in markers.values())

    def renewed(self, markers: Markers) -> Adoption | None:
        """Renews the plan of a switch for tasks that have committed since it was made: it begins where they have ended.

        None: a task has already continued after the marker of this plan.
        """
        replaced = {task: marker for task, marker in markers.items() if self._has_replaced(marker)}
        if any(version != self.versions.get(task) for task, version in versions_of(replaced).items()):
            return None
        others = {task: marker for task, marker in markers.items() if task not in replaced}
        start = behind_live(self.first.start, others)
        return replace(self, first=FirstBatch(start, start), versions=versions_of(markers))

    def _has_replaced(self, marker: CommitMarker | None) -> bool:
        return marker is not None and marker.query_id == self.query_id

    def to_json(self) -> dict[str, Any]:
        versions = {str(task): version for task, version in sorted(self.versions.items())}
        data = {**self.first.to_json(), "query_id": self.query_id, "versions": versions, "done": sorted(self.done)}
        return {**data, "switch": True} if self.switch else data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Adoption:
        versions = {int(task): int(version) for task, version in data["versions"].items()}
        return cls(
            data["query_id"], FirstBatch.from_json(data), versions, frozenset(data["done"]), bool(data.get("switch"))
        )


def runs_live(markers: Markers) -> bool:
    """Whether the last step of any task was a live one."""
    return any(marker is not None and marker.live for marker in markers.values())


def position(checkpoint: Checkpoint, markers: Markers) -> SourceOffsets | None:
    """Where reading continues: after the last micro-batch, and after the last live steps; None if that is not known.

    A live step reads the task's own partition of each topic, so the task's marker says how far that partition is read.
    """
    at = checkpoint.start(checkpoint.logged + 1)
    return None if at is None else behind_live(at, markers)


def behind_live(at: SourceOffsets, markers: Markers) -> SourceOffsets:
    """Moves positions to where the live steps in the markers have ended."""
    live = [marker for marker in markers.values() if marker is not None and marker.live]
    read = {place: end for marker in live for place, end in marker.live_positions.items()}
    return at.behind(read, {topic: topic_id for marker in live for topic, topic_id in marker.topic_ids.items()})


def versions_of(markers: Markers) -> dict[int, int]:
    """Task -> the version of its last marker; 0 if it has never committed."""
    return {task: 0 if marker is None else marker.version for task, marker in markers.items()}


def last_batch(markers: Markers) -> int:
    return max(marker.batch_id for marker in markers.values() if marker is not None)


def done_ranges(sub: SubIdentity, markers: Markers) -> dict[TopicPartition, tuple[int, int]]:
    """The ranges that the last micro-batch has read for the tasks that have committed it.

    Raises:
        CheckpointMismatchError: The tasks disagree: their markers come from different queries.
    """
    batch = last_batch(markers)
    found: dict[TopicPartition, tuple[int, int]] = {}
    for task, marker in sorted(markers.items()):
        if marker is None or marker.batch_id != batch:
            continue
        for topic, of in marker.ranges.items():
            for partition, ends in of.items():
                known = found.setdefault((topic, int(partition)), ends)
                if known != ends:
                    raise misfit(
                        sub,
                        f"tasks have committed micro-batch {batch} with different ranges of {topic}-{partition}: {known} and, "
                        f"task {task}, {ends}. Their markers are not of one query",
                        "Keep the topics as they are, and report this.",
                    )
    return found


def plan_adoption(
    sub: SubIdentity,
    markers: Markers,
    topic_ids: Mapping[str, str],
    positions: Mapping[TopicPartition, int],
    global_topics: Mapping[str, TopicOffsets],
    query_id: str,
    confirmed: bool = False,
) -> Adoption:
    """Plans the new checkpoint of a sub-topology.

    Raises:
        CheckpointMismatchError: The markers contradict each other.
    """
    ranges, batch = done_ranges(sub, markers), last_batch(markers)
    starts = {place: ranges.get(place, (at, at))[0] for place, at in positions.items()}
    ends = {place: ranges.get(place, (at, at))[1] for place, at in positions.items()}
    found = {task: marker for task, marker in markers.items() if marker is not None}
    versions = {task: marker.version for task, marker in found.items()}
    done = frozenset(task for task, marker in found.items() if marker.batch_id == batch != NEVER)
    # A live step is never repeated: each task continues after its own last one.
    confirmed = confirmed or any(marker.live for marker in found.values())
    # After an import, or an adoption without a step since, there is no micro-batch to repeat.
    if confirmed or batch == NEVER or done == markers.keys():
        at = SourceOffsets(_topics(topic_ids, ends))
        return Adoption(query_id, FirstBatch(at, at), versions, frozenset())
    # The batch is repeated with its original clock time: the same timestamps must count as too far ahead, so that tasks get the
    # same rows.
    now_ms = max(marker.now_ms for marker in found.values() if marker.batch_id == batch)
    end = SourceOffsets(_topics(topic_ids, ends), global_topics=global_topics, now_ms=now_ms)
    first = FirstBatch(SourceOffsets(_topics(topic_ids, starts)), end)
    return Adoption(query_id, first, versions, done)


def _topics(topic_ids: Mapping[str, str], at: Mapping[TopicPartition, int]) -> dict[str, TopicOffsets]:
    numbers: dict[str, list[int]] = {name: [] for name in sorted(topic_ids)}
    for topic, partition in sorted(at):
        numbers[topic].append(at[topic, partition])
    return {name: TopicOffsets(topic_ids[name], tuple(of)) for name, of in numbers.items()}


# --- A logged micro-batch that is too large. Spark repeats its offsets at each start, whatever the current limits are.
#
# As long as no task has committed the micro-batch, its plan can be undone: without the last file of the offset log, Spark plans it
# again.


@dataclass(frozen=True, slots=True)
class Oversized:
    """A logged micro-batch that is larger than the current limits allow.

    Attributes:
        records: The most records that it can have, by its offsets.
        limit: How many records it would be planned with now.
    """

    batch: int
    records: int
    limit: int

    def __str__(self) -> str:
        return f"micro-batch {self.batch} with {self.records:,} records, but the current limits allow {self.limit:,}"


def oversized(checkpoint: Checkpoint, limit: Callable[[SourceOffsets, SourceOffsets], int]) -> Oversized | None:
    """The logged and unconfirmed micro-batch, if it is too large. None also if its start is unknown."""
    batch = checkpoint.logged
    ranges = checkpoint.ranges(batch) if batch > checkpoint.committed else None
    start, end = checkpoint.start(batch), checkpoint.offsets.get(batch)
    if not ranges or start is None or end is None:
        return None
    records, allowed = sum(each.end - each.start for each in ranges), limit(start, end)
    return Oversized(batch, records, allowed) if records > allowed else None
