"""Creates new checkpoints from the commit markers, where the existing checkpoints do not match them or are lost.

For each such sub-topology: the tasks are fenced, a plan is written into a folder beside the checkpoint, the markers are
replaced task by task, the old checkpoint is moved aside, and the folder takes its place. After an interruption, the next
call continues: the plan records the markers that it was made for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from state.commit.marker import CommitMarker
from state.errors import CheckpointMismatchError, FencedError, TopicNotFoundError, TopicRecreatedError
from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicInfo, TopicPartition
from streams.application.positions import GivenPositions, reading_positions
from streams.application.preflight import Findings, Preflight
from streams.application.prepare import Application, PreparedSub
from streams.checkpoint.adoption import Adoption, done_ranges, plan_adoption
from streams.checkpoint.compare import Markers, SubIdentity, check_program, misfit
from streams.checkpoint.files import CheckpointFiles, move_aside
from streams.checkpoint.log import FIRST_BATCH, query_id_of, write_query_id
from streams.lake.commit import SinkId
from streams.lake.handed_over import HandedOver
from streams.lake.resume import topic_log
from streams.source.offsets import TopicOffsets
from streams.topology.graph import DeltaTable

# No topic's name, and so no sub-topology's, has this character.
ADOPTING = "~adopting"


class WritableMarkers(Protocol):
    """The part of `streams.application.markers.MarkerAccess` that an adoption uses."""

    def fenced(self) -> dict[int, CommitMarker | None]: ...
    def replace(self, task: int, expected: CommitMarker, marker: CommitMarker) -> bool: ...


@dataclass(frozen=True)
class Adopter:
    """The adoption of an application's state under new checkpoints.

    Attributes:
        preflight: Knows the application, its checkpoint folder and its cluster.
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
        """The plan for a sub-topology; `markers`: the last ones, once its tasks are fenced.

        Raises:
            StreamsError: Something is missing that is needed to know where reading continues.
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
        places = [(name, number) for name, info in sorted(topics.items()) for number in range(info.partitions)]
        positions = reading_positions(admin, sub.application_id, places, known, findings.checkpoint, self.given)
        confirmed = self._is_confirmed(prepared, known)
        return plan_adoption(sub, markers, ids, positions, global_topics, str(uuid.uuid4()), confirmed)

    def _is_confirmed(self, prepared: PreparedSub, starts: Mapping[TopicPartition, int]) -> bool:
        """Whether records of the last micro-batch are deleted from repartition topics, which only happens once it is confirmed."""
        trimmed = self.preflight.application.source_spec(prepared.sub).trimmed
        begins = self.preflight.admin.begin_offsets([place for place in starts if place[0] in trimmed])
        return any(begin > starts[place] for place, begin in begins.items())

    def _topics(self, prepared: PreparedSub, markers: Markers) -> tuple[dict[str, TopicInfo], dict[str, TopicOffsets]]:
        """The topics that a sub-topology reads, and the end positions of its global tables' topics.

        Raises:
            TopicNotFoundError: A topic no longer exists.
            TopicRecreatedError: A topic was deleted and created again under the same name.
        """
        spec, admin = self.preflight.application.source_spec(prepared.sub), self.preflight.admin
        found = admin.describe_topics([*spec.starting, *spec.global_topics])
        for name in (*spec.starting, *spec.global_topics):
            if name not in found:
                raise TopicNotFoundError(name)
        for marker in filter(None, markers.values()):
            for name, topic_id in marker.topic_ids.items():
                if name in found and found[name].topic_id != topic_id:
                    raise TopicRecreatedError(name, topic_id, found[name].topic_id)
        ends = admin.end_offsets([(name, n) for name in spec.global_topics for n in range(found[name].partitions)])
        global_topics = {
            name: TopicOffsets(found[name].topic_id, tuple(ends[name, n] for n in range(found[name].partitions)))
            for name in spec.global_topics
        }
        return {name: found[name] for name in spec.starting}, global_topics

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
    access: WritableMarkers,
    plan: Callable[[Markers], Adoption],
    say: Callable[[str], None],
) -> None:
    """Carries out an adoption, or continues an interrupted one."""
    markers = access.fenced()
    check_program(sub, markers)
    folder = sub.name + ADOPTING
    adoption = unfinished_plan(files, sub, markers)
    if adoption is None:
        files.delete(folder)
        adoption = plan(markers)
        write_query_id(files, folder, adoption.query_id)
        files.write(f"{folder}/{FIRST_BATCH}", orjson.dumps(adoption.to_json()))
    pending = adoption.pending(markers)
    for task in pending or ():
        old = markers[task]
        assert old is not None
        _replace(sub, access, task, old, adoption.marker(old))
    if pending:
        # A commit returns before it is readable. A fence returns after that, so that the next start sees the new markers.
        access.fenced()
    if files.names(sub.name):
        say(f"{sub.name}: moved its checkpoint aside, to {move_aside(files, sub.name)}")
    files.move(folder, sub.name)
    say(f"{sub.name}: made a new checkpoint, at the tasks' last commits")


def unfinished_plan(files: CheckpointFiles, sub: SubIdentity, markers: Markers) -> Adoption | None:
    """The plan of an interrupted adoption, if one exists and was made for the present markers; else None."""
    folder = sub.name + ADOPTING
    data = files.read(f"{folder}/{FIRST_BATCH}")
    if data is not None:
        adoption = Adoption.from_json(orjson.loads(data))
        if adoption.pending(markers) is not None:
            return adoption
        if adoption.begun(markers):
            raise misfit(
                sub,
                f"an adoption was interrupted, and tasks have committed since, so its plan in the folder {folder} of the "
                "checkpoint is no longer valid",
                "Stop everything that runs under this application id, and report this.",
            )
    return None


def _check_one_query(sub: SubIdentity, markers: Markers) -> None:
    queries = sorted({marker.query_id for marker in markers.values() if marker is not None})
    if len(queries) > 1:
        raise misfit(
            sub,
            f"its tasks have committed under different checkpoints ({', '.join(queries)}): an adoption was interrupted and the "
            f"folder with its plan, {sub.name}{ADOPTING}, has gone, or two applications use this application id",
            "Put that folder back below the checkpoint, and adopt again.",
        )


def _replace(sub: SubIdentity, access: WritableMarkers, task: int, old: CommitMarker, new: CommitMarker) -> None:
    try:
        replaced = access.replace(task, old, new)
    except FencedError as error:
        raise _runs(sub, task) from error
    if not replaced:
        raise _runs(sub, task)


def _runs(sub: SubIdentity, task: int) -> CheckpointMismatchError:
    return CheckpointMismatchError(
        f"{sub}: task {task} is at work: the application runs. Stop it, on all hosts, and run `streams adopt` again: it goes on "
        "where it was"
    )


def described(adoption: Adoption, tasks: int) -> Mapping[str, str]:
    """The plan for people: what happens to the tasks, and where reading continues."""
    end = adoption.first.end or adoption.first.start
    done = ", ".join(map(str, sorted(adoption.done)))
    again = ", ".join(str(task) for task in range(tasks) if task not in adoption.done)
    at = [f"{topic}-{number}: {offset}" for topic, of in end.topics.items() for number, offset in enumerate(of.offsets)]
    return {
        "have committed the last micro-batch": f"tasks {done}" if done else "all tasks that it had records for",
        "have not, and run it again": f"tasks {again}" if done and again else "none",
        "reading then goes on at": ", ".join(at),
    }


def lost_sinks(application: Application, files: CheckpointFiles, admin: KafkaAdmin) -> dict[str, HandedOver]:
    """The sinks of foreach_batch whose checkpoint is missing -> the note of the last batch that the function was called with."""
    app = application.config.application_id
    topics = {sink.topic.topic_name(app): sink for sink in application.plan.topology.lake_sinks.values()}
    found = {}
    for topic in admin.describe_topics(topics):
        sink = topics[topic]
        if not isinstance(sink.target, DeltaTable) and query_id_of(files, sink.name) is None:
            note = HandedOver.of_admin(admin, SinkId(app, sink.name), topic_log(admin, topic))
            if note is not None and note.batch >= 0:
                found[sink.name] = note
    return found
