"""Creates new checkpoints from the commit markers, if checkpoints are lost or do not match, or to move reading positions.

For each such sub-topology: the tasks are fenced, a plan is written into a folder next to the checkpoint, the markers are
replaced task by task, the old checkpoint is moved aside, and the folder takes its place. After an interruption, the next
call continues: the plan records the markers that it was made for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from state.commit.protocols import KafkaAccess
from state.errors import CheckpointMismatchError, FencedError
from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicInfo, TopicPartition, partitions_of
from streams.application.markers import MarkerAccess, still_running
from streams.application.prepare import Application, PreparedSub
from streams.application.start import Findings, Preflight
from streams.checkpoint.compare import (
    Adoption,
    Markers,
    SubIdentity,
    check_checkpoint,
    check_program,
    check_topic,
    done_ranges,
    misfit,
    plan_adoption,
    position,
)
from streams.checkpoint.files import (
    FIRST_BATCH,
    Checkpoint,
    CheckpointFiles,
    move_aside,
    query_id_of,
    read_checkpoint,
    write_query_id,
)
from streams.engine.source.offsets import FirstBatch, SourceOffsets, TopicOffsets
from streams.engine.source.topics import check_same
from streams.errors import ConfigError
from streams.lake.commit import HandedOver, SinkId, topic_log


@dataclass(frozen=True)
class GivenPositions:
    """The positions that a user gives for partitions whose position is otherwise unknown.

    Attributes:
        partitions: Partition -> offset.
        topics: Topic -> `earliest` or `latest`, for its other partitions.
    """

    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> GivenPositions:
        """Parses positions from texts such as `TOPIC:PARTITION=OFFSET`, `TOPIC=earliest` and `TOPIC=latest`."""
        partitions: dict[TopicPartition, int] = {}
        topics: dict[str, str] = {}
        for text in texts:
            where, _, what = text.partition("=")
            topic, _, number = where.partition(":")
            if topic and number.isdecimal() and what.isdecimal():
                partitions[topic, int(number)] = int(what)
            elif topic and not number and what in ("earliest", "latest"):
                topics[topic] = what
            else:
                raise ConfigError(f"--position {text}: write TOPIC:PARTITION=OFFSET, TOPIC=earliest or TOPIC=latest")
        return cls(partitions, topics)

    def of(self, place: TopicPartition, begin: int, end: int) -> int | None:
        """The given offset for a partition with records [begin, end); None if none was given."""
        named = self.topics.get(place[0])
        return self.partitions.get(place, None if named is None else begin if named == "earliest" else end)


def reading_positions(
    admin: KafkaAdmin,
    group: str,
    places: Sequence[TopicPartition],
    known: Mapping[TopicPartition, int],
    checkpoint: Checkpoint,
    given: GivenPositions,
) -> dict[TopicPartition, int]:
    """The next offset of each partition.

    Kafka forgets the committed offsets of a partition that was quiet for some days (`offsets.retention.minutes`). So a missing
    offset does not mean that nothing was read: unless the partition is empty, or the old checkpoint has read all of it, only
    the user can know.
    """
    committed = admin.group_offsets(group, places)
    begin, end = admin.begin_offsets(places), admin.end_offsets(places)
    logged = checkpoint.offsets.get(checkpoint.logged)
    found: dict[TopicPartition, int] = {}
    unknown: list[TopicPartition] = []
    for place in places:
        chosen = given.of(place, begin[place], end[place])
        if place in known or place in committed:
            if place in given.partitions:
                raise ConfigError(
                    f"--position {place[0]}:{place[1]}={chosen}: the application has committed its position there; leave this out"
                )
            found[place] = known.get(place, committed.get(place, 0))
        elif chosen is not None:
            found[place] = chosen
        elif begin[place] == end[place] or (logged is not None and logged.of(*place) == end[place]):
            found[place] = end[place]
        else:
            unknown.append(place)
    if unknown:
        raise _unknown_positions(group, unknown, begin, end)
    return found


def _unknown_positions(
    group: str,
    unknown: Sequence[TopicPartition],
    begin: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> ConfigError:
    shown = ", ".join(
        f"{topic}-{number} [{begin[topic, number]}, {end[topic, number]})" for topic, number in unknown[:5]
    )
    more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
    topic, number = unknown[0]
    return ConfigError(
        f"group {group} has no committed offset for {shown}{more}: nothing was read there so far, or Kafka forgot the offset "
        f"after some quiet days (offsets.retention.minutes). Say where reading continues: --position {topic}:{number}=OFFSET, or "
        f"--position {topic}=earliest (all is new) or --position {topic}=latest (all was read)"
    )


# --- Adoption

# No topic's name, and so no sub-topology's, has this character.
ADOPTING = "~adopting"


TRIES = 5
"""How often a switch is tried again because a process of the earlier query has fenced one of its tasks, or committed."""


@dataclass(frozen=True)
class Adopter:
    """The adoption of an application's state under new checkpoints.

    Attributes:
        given: The user's positions for partitions whose position is otherwise unknown.
    """

    preflight: Preflight
    given: GivenPositions = field(default_factory=GivenPositions)

    def misfits(self) -> list[tuple[PreparedSub, Findings]]:
        """The sub-topologies that need a new checkpoint.

        Raises:
            CheckpointMismatchError: A new checkpoint would not help.
        """
        found = [(prepared, self.preflight.inspect(prepared)) for prepared in self.preflight.application.subs]
        for _, findings in found:
            if findings.wrong is not None and not any(findings.markers.values()):
                raise findings.wrong
        return [(prepared, findings) for prepared, findings in found if findings.wrong is not None]

    def plan(self, prepared: PreparedSub, findings: Findings, markers: Markers | None = None) -> Adoption:
        """The plan for a sub-topology; `markers` are its last ones, read after its tasks were fenced.

        Raises:
            StreamsError: It cannot be determined where reading continues.
        """
        sub, admin = self.preflight.identity(prepared), self.preflight.admin
        markers = findings.markers if markers is None else markers
        unfinished = unfinished_plan(self.preflight.files, sub, markers)
        if unfinished is not None:
            return unfinished
        _check_one_query(sub, markers)
        topics, global_topics = self._topics(prepared, markers)
        ids = {name: info.topic_id for name, info in topics.items()}
        known = {place: start for place, (start, _) in done_ranges(sub, markers).items()}
        for marker in filter(None, markers.values()):
            known |= marker.live_positions
        places = sorted(partitions_of(topics))
        positions = reading_positions(admin, sub.application_id, places, known, findings.checkpoint, self.given)
        confirmed = self._is_confirmed(prepared, known)
        return plan_adoption(sub, markers, ids, positions, global_topics, str(uuid.uuid4()), confirmed)

    def _is_confirmed(self, prepared: PreparedSub, starts: Mapping[TopicPartition, int]) -> bool:
        """Whether the last micro-batch was confirmed: only then are its records deleted from repartition topics."""
        trimmed = self.preflight.application.source_spec(prepared.sub).trimmed
        begins = self.preflight.admin.begin_offsets([place for place in starts if place[0] in trimmed])
        return any(begin > starts[place] for place, begin in begins.items())

    def _topics(self, prepared: PreparedSub, markers: Markers) -> tuple[dict[str, TopicInfo], dict[str, TopicOffsets]]:
        """The topics that a sub-topology reads, and the end offsets of its global tables' topics."""
        sources = self.preflight.sources(prepared)
        topics = sources.described({})
        for marker in filter(None, markers.values()):
            check_same(marker.topic_ids, topics)
        return topics, sources.global_ends({})

    def adopt(self, prepared: PreparedSub, findings: Findings) -> None:
        """Gives a sub-topology a new checkpoint.

        Raises:
            CheckpointMismatchError: The application is running, or an earlier adoption cannot be continued.
        """
        take_over(
            self.preflight.files,
            self.preflight.identity(prepared),
            self.preflight.markers(prepared),
            lambda markers: self.plan(prepared, findings, markers),
            self.preflight.say,
        )


def take_over(
    files: CheckpointFiles,
    sub: SubIdentity,
    access: MarkerAccess,
    plan: Callable[[Markers], Adoption],
    report: Callable[[str], None],
    moves: bool = False,
) -> Adoption:
    """Carries out an adoption, or continues an interrupted one.

    `plan` gets the markers that were read after the last fence, because tasks may commit until then. With each marker, the group
    gets the positions of the task's live steps (after a micro-batch without records, only the group has them), and, if it `moves`,
    the plan's positions.

    Raises:
        CheckpointMismatchError: The application is running, or an earlier adoption cannot be continued.
    """
    for left in reversed(range(TRIES)):
        markers = access.fenced()
        check_program(sub, markers)
        adoption = unfinished_plan(files, sub, markers) or plan(markers)
        _note(files, sub, adoption)
        overtaken = _replace_markers(sub, access, adoption, markers, moves)
        if overtaken is None:
            break
        # In a switch, a process of the earlier query was slow to end. It ends once it finds another marker.
        if not (adoption.switch and left):
            raise still_running(sub, overtaken, "run" if adoption.switch else "adopt")
    if files.names(sub.name):
        report(f"{sub.name}: moved its checkpoint aside, to {move_aside(files, sub.name)}")
    files.move(sub.name + ADOPTING, sub.name)
    report(f"{sub.name}: made a new checkpoint, at the tasks' last commits")
    return adoption


def _note(files: CheckpointFiles, sub: SubIdentity, adoption: Adoption) -> None:
    """Writes the plan into its folder, unless the folder has it."""
    folder, data = sub.name + ADOPTING, orjson.dumps(adoption.to_json())
    if query_id_of(files, folder) != adoption.query_id:
        files.delete(folder)
        write_query_id(files, folder, adoption.query_id)
    if files.read(f"{folder}/{FIRST_BATCH}") != data:
        files.write(f"{folder}/{FIRST_BATCH}", data)


def _replace_markers(
    sub: SubIdentity, access: MarkerAccess, adoption: Adoption, markers: Markers, moves: bool
) -> int | None:
    """Replaces the markers task by task. Returns a task that has committed since or fenced this process; None: all are replaced."""
    pending = adoption.pending(markers) or []
    offsets = adoption.first.start.by_partition() if moves else {}
    for task in pending:
        old = markers[task]
        new = adoption.barrier(sub, task) if old is None else adoption.marker(old)
        try:
            replaced = access.replace(task, old, new, {**(old.live_positions if old else {}), **offsets})
        except FencedError:
            return task
        if not replaced:
            return task
    if pending:
        # A commit returns before readers see it. A fence waits until they do, so that the next start sees the new markers.
        access.fenced()
    return None


def unfinished_plan(files: CheckpointFiles, sub: SubIdentity, markers: Markers) -> Adoption | None:
    """The plan of an interrupted adoption, if one exists and was made for the current markers; else None.

    A switch that has begun continues after the commits that tasks have made since.

    Raises:
        CheckpointMismatchError: Another adoption has begun, and tasks have committed since.
    """
    folder = sub.name + ADOPTING
    data = files.read(f"{folder}/{FIRST_BATCH}")
    if data is None:
        return None
    adoption = Adoption.from_json(orjson.loads(data))
    if adoption.pending(markers) is not None:
        return adoption
    if not adoption.begun(markers):
        return None
    renewed = adoption.renewed(markers) if adoption.switch else None
    if renewed is None:
        raise misfit(
            sub,
            f"an adoption was interrupted, and tasks have committed since, so its plan in the folder {folder} of the "
            "checkpoint is no longer valid",
            "Stop everything that runs under this application id, and report this.",
        )
    return renewed


def _check_one_query(sub: SubIdentity, markers: Markers) -> None:
    queries = sorted({marker.query_id for marker in markers.values() if marker is not None})
    if len(queries) > 1:
        raise misfit(
            sub,
            f"its tasks have committed under different checkpoints ({', '.join(queries)}): an adoption was interrupted and the "
            f"folder with its plan, {sub.name}{ADOPTING}, is missing, or two applications use this application id",
            "Put that folder back below the checkpoint, and adopt again.",
        )


def described(adoption: Adoption, tasks: int) -> Mapping[str, str]:
    """The plan for users: what happens to the tasks, and where reading continues."""
    end = adoption.first.end or adoption.first.start
    done = ", ".join(map(str, sorted(adoption.done)))
    again = ", ".join(str(task) for task in range(tasks) if task not in adoption.done)
    return {
        "have committed the last micro-batch": f"tasks {done}" if done else "all tasks that it had records for",
        "have not, and run it again": f"tasks {again}" if done and again else "none",
        "reading then continues at": str(end),
    }


def lost_sinks(application: Application, files: CheckpointFiles, admin: KafkaAdmin) -> dict[str, HandedOver]:
    """The sinks of foreach_batch whose checkpoint is missing -> the note of the last batch that their function received."""
    app = application.config.application_id
    topics = {sink.topic.topic_name(app): sink for sink in application.plan.topology.lake_sinks.values()}
    found = {}
    for topic in admin.describe_topics(topics):
        sink = topics[topic]
        if not sink.keeps_position and query_id_of(files, sink.name) is None:
            note = HandedOver.of_admin(admin, SinkId(app, sink.name), topic_log(admin, topic))
            if note is not None and note.batch >= 0:
                found[sink.name] = note
    return found


# --- Moved positions
#
# The application keeps its state, so records that are read twice are counted twice. Each sub-topology gets a new checkpoint that
# begins at the positions, and its tasks get markers of the new query with the version and state of the old ones. The consumer group
# moves in the same transactions as the markers.


@dataclass(frozen=True)
class Move:
    """The move of one sub-topology.

    Attributes:
        first: The positions at which it then begins to read. Positions in repartition topics do not change.
        given: The positions that change.
        checkpoint: Its checkpoint; None: a move was interrupted, and continues with its own plan.
    """

    sub: SubIdentity
    access: MarkerAccess
    first: FirstBatch
    given: FirstBatch
    checkpoint: Checkpoint | None = None

    def adoption(self, markers: Markers) -> Adoption:
        """The plan of the move: the new positions, and for other topics the positions of the tasks' last markers.

        Raises:
            CheckpointMismatchError: Tasks have made commits that the checkpoint does not have.
            ConfigError: It is not known where reading continues.
        """
        if self.checkpoint is None:
            raise misfit(
                self.sub,
                "tasks have committed since a move of its positions was interrupted",
                "Stop the application on all hosts, and run `streams reset --keep-state` again.",
            )
        check_checkpoint(self.sub, self.checkpoint, markers)
        first = _with_unmoved_topics(self.sub, self.given, self.checkpoint, markers)
        versions = {task: marker.version for task, marker in markers.items() if marker is not None}
        return Adoption(str(uuid.uuid4()), first, versions, frozenset())


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
        # An interrupted move: `take_over` continues with its plan.
        return Move(sub, MarkerAccess(kafka, sub), first, first)
    moved = _with_unmoved_topics(sub, first, checkpoint, markers)
    return Move(sub, MarkerAccess(kafka, sub), moved, first, checkpoint)


def settled_position(sub: SubIdentity, checkpoint: Checkpoint, markers: Markers, then: str) -> SourceOffsets:
    """Where a sub-topology continues to read, if its last micro-batch is complete; `then` is what the user wants, for messages.

    Raises:
        ConfigError: The micro-batch is not complete, or the checkpoint does not have the position.
    """
    if checkpoint.logged > checkpoint.committed or checkpoint.repeats:
        raise ConfigError(
            f"{sub.name}: micro-batch {max(checkpoint.logged, 0)} is logged but not complete, and some tasks may have committed "
            f"it. Run the application again (--available-now) and stop it, then {then}. Nothing was written"
        )
    present = position(checkpoint, markers)
    if present is None:
        raise ConfigError(
            f"{sub.name}: the checkpoint does not show where reading continues. Run the application once (--available-now) and "
            f"stop it, then {then}. Nothing was written"
        )
    return present


def _with_unmoved_topics(sub: SubIdentity, first: FirstBatch, checkpoint: Checkpoint, markers: Markers) -> FirstBatch:
    """The new positions, together with the current ones in topics that are not moved."""
    present = settled_position(sub, checkpoint, markers, "move its positions")
    at = SourceOffsets({**present.topics, **first.start.topics})
    return FirstBatch(at, at)


def carry_out(move: Move, files: CheckpointFiles, report: Callable[[str], None]) -> None:
    """Moves one sub-topology, or continues an interrupted move.

    Raises:
        CheckpointMismatchError: The application is running.
    """
    take_over(files, move.sub, move.access, move.adoption, report, moves=True)
