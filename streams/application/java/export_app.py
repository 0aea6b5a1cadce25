"""Hands the state of an application to Kafka Streams in Java: `streams export-app`.

The changelogs stay as they are. Java gets the data that it keeps in other places than this engine: committed offsets with partition
times and closed windows in their metadata, and settings by which windows expire. Then a last marker of each task keeps the task
from continuing here, until `streams import-app` takes the state back. Everything is checked before anything is written. After an
interruption, the same command finishes the export, because each of its writes may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from state.changelog import changelog_topic
from state.commit.marker import EXPORTED, CommitMarker
from state.commit.protocols import KafkaAccess
from state.kafka.topics import TopicPartition
from streams.application.adopt import settled_position
from streams.application.instances import check_group_is_free
from streams.application.java.derived import closes_of, derivations, first_end_in
from streams.application.java.limits import OffsetNote, lost_in_java, one_sided, settings_for_java
from streams.application.markers import last_rows, still_running
from streams.application.prepare import Application, PreparedSub
from streams.application.start import Preflight
from streams.checkpoint.compare import Markers, check_checkpoint, check_program, check_topic
from streams.checkpoint.files import read_checkpoint
from streams.engine.source.partition_times import known_times
from streams.errors import ConfigError
from streams.model.record import NO_TIME


@dataclass(frozen=True)
class SubExport:
    """The export of a sub-topology.

    Attributes:
        offsets: Partition -> the offset where Java continues, with its metadata.
        markers: Task -> its last marker.
    """

    prepared: PreparedSub
    offsets: Mapping[TopicPartition, tuple[int, OffsetNote]]
    markers: Markers

    def lines(self) -> Iterator[str]:
        """The lines that describe the export to users."""
        yield f"  stores: {', '.join(sorted(self.prepared.sub.stores)) or 'none'}"
        places = sorted(self.offsets.items())
        at = ", ".join(f"{topic}-{number}: {offset} (time {note.time})" for (topic, number), (offset, note) in places)
        yield f"  Java then continues at: {at}"


@dataclass(frozen=True)
class Exporter:
    """The export of one application.

    Attributes:
        kafka: Reads logs.
        leave: Whether state that no Java program can continue stays behind; otherwise it is an error.
        members: Returns the members of a group; default: asks the brokers.
    """

    preflight: Preflight
    kafka: KafkaAccess
    leave: bool = False
    members: Callable[[str], Sequence[str]] | None = None

    @property
    def _application(self) -> Application:
        return self.preflight.application

    def survey(self) -> list[SubExport]:
        """The exports that a run would make; writes nothing.

        Raises:
            AlreadyRunningError: The group has members: Java runs already.
            CheckpointMismatchError: Checkpoint and markers do not belong together.
            ConfigError: Records wait somewhere, or there is state that no Java program can continue.
        """
        application = self._application
        app = application.config.application_id
        check_group_is_free(application.config, self.members)
        wrong = [*one_sided(application), *lost_in_java(application)]
        if wrong and not self.leave:
            raise ConfigError(
                f"no Java program can continue all of {app}: {'; '.join(wrong)}. Nothing was written. With --leave, this stays "
                "behind, and the rest is handed over"
            )
        topics = {*application.plan.repartition_topics, *(t for one in application.subs for t in one.sub.delays)}
        if waiting := sorted(application.unread(self.preflight.admin, topics)):
            raise ConfigError(
                f"{', '.join(waiting)}: records wait there that the Java program may not read. Nothing was written. Run the "
                "application until they are read (`streams run --available-now`), then repeat this"
            )
        return [self._survey(prepared) for prepared in application.subs]

    def run(self, found: Sequence[SubExport]) -> None:
        """Makes the exports that a survey has found.

        Raises:
            CheckpointMismatchError: A task has committed since the survey.
            KafkaClientError: The group has members.
        """
        admin, app = self.preflight.admin, self._application.config.application_id
        for one in found:
            now = self.preflight.markers(one.prepared).fenced()
            moved = [task for task, marker in now.items() if marker != one.markers[task]]
            if moved:
                raise still_running(self.preflight.identity(one.prepared), moved[0], "export-app")
        for one in found:
            for node in one.prepared.sub.stores.values():
                settings = settings_for_java(node.spec.kind, node.spec.retention_ms) if node.spec.logged else {}
                if settings:
                    admin.alter_topic(changelog_topic(app, node.spec.name), settings)
        offsets = {place: (at, note.encode()) for one in found for place, (at, note) in one.offsets.items()}
        if offsets:
            admin.commit_group_offsets(app, offsets, exact=True)
        for one in found:
            self._end(one)

    def _survey(self, prepared: PreparedSub) -> SubExport:
        sub, access = self.preflight.identity(prepared), self.preflight.markers(prepared)
        found = access.read() if self.preflight.admin.describe_topics([access.topic]) else {}
        # An export that was interrupted has ended some tasks already.
        markers = {
            task: marker and replace(marker, query_id=marker.query_id.removesuffix(EXPORTED))
            for task, marker in found.items()
        }
        check_program(sub, markers)
        checkpoint = read_checkpoint(
            self.preflight.files, sub.name, {marker.batch_id for marker in markers.values() if marker}
        )
        check_checkpoint(sub, checkpoint, markers)
        check_topic(sub, checkpoint, markers)
        if not any(markers.values()):
            # Nothing was ever committed, so Java begins at the start as well.
            return SubExport(prepared, {}, found)
        positions = settled_position(sub, checkpoint, markers, "hand it over").by_partition()
        closes = {task: self._closes(prepared, task, marker) for task, marker in markers.items() if marker}
        notes = {place: _note(place, at, markers, closes) for place, at in positions.items()}
        return SubExport(prepared, {place: (at, notes[place]) for place, at in positions.items()}, found)

    def _closes(self, prepared: PreparedSub, task: int, marker: CommitMarker) -> Mapping[str, int]:
        """Store -> the time up to which a task has closed its windows, ms."""
        app, first_ends = self._application.config.application_id, {}
        for one in derivations(prepared.sub):
            if prepared.sub.stores[one.source].spec.kind.segmented:
                rows = last_rows(self.kafka, (changelog_topic(app, one.store), task))
                if (first := first_end_in(rows)) is not None:
                    first_ends[one.store] = first
        return closes_of(prepared.sub, marker.operator_state.get("nodes", {}), first_ends)

    def _end(self, one: SubExport) -> None:
        access = self.preflight.markers(one.prepared)
        for task, marker in one.markers.items():
            if marker is None or marker.query_id.endswith(EXPORTED):
                continue
            if not access.replace(task, marker, replace(marker, query_id=marker.query_id + EXPORTED)):
                raise still_running(self.preflight.identity(one.prepared), task, "export-app")


def _note(
    place: TopicPartition, position: int, markers: Markers, closes: Mapping[int, Mapping[str, int]]
) -> OffsetNote:
    """The partition's time. If it is not known up to there, the task's time, which is at least as late as the records' times."""
    task = place[1] % max(1, len(markers))
    own = closes.get(task, {})
    for marker in filter(None, markers.values()):
        offset, time = (known_times(marker.operator_state).get(place) or [(-1, NO_TIME)])[-1]
        if offset == position:
            return OffsetNote(time, own)
    owner = markers.get(task)
    return OffsetNote(NO_TIME if owner is None else owner.stream_time, own)
