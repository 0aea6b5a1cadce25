"""The rescale of one sub-topology, step by step. Each step can be repeated, and finds what an interrupted one has left."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from state.changelog.topics import (
    changelog_config,
    changelog_topic,
    commits_config,
    commits_topic,
    rescale_topic,
    staging_topic,
)
from state.commit.guards import fenced_producer
from state.commit.marker import MARKER_KEY, RESCALED, CommitMarker
from state.errors import CheckpointMismatchError, FencedError
from state.kafka.topics import TopicSpec
from state.stores.spec import StoreSpec
from streams.application.markers import MarkerAccess
from streams.application.rescale.log_copy import LogCopy, records_of
from streams.application.rescale.notes import STAGING, Notes, RescaleNotes
from streams.application.rescale.plan import Phase, RescalePlan, check_same, new_markers, runs
from streams.application.rescale.row_keys import USERS_PROCESSORS, row_keys
from streams.application.rescale.staging import stage_partition
from streams.application.rescale.surroundings import Surroundings
from streams.checkpoint.compare import Markers, SubIdentity, check_program
from streams.checkpoint.files import move_aside
from streams.checkpoint.log import query_id_of, write_first_batch, write_query_id
from streams.errors import RescaleError
from streams.topology.plan import SubTopology

_MADE = "~rescaled"


class SubRescale:
    """A sub-topology, on its way from one number of tasks to another.

    Args:
        application_id: The application.
        sub: The sub-topology.
        old: The number of its tasks now, if no rescale was begun; else that of the notes counts.
        new: The new number.
        around: What the rescale works with.

    Attributes:
        notes: What was noted so far; None: the rescale of this sub-topology has not begun.
    """

    def __init__(self, application_id: str, sub: SubTopology, old: int, new: int, around: Surroundings) -> None:
        self.sub = sub
        self.new = new
        self._app = application_id
        self._around = around
        self._transactional_id = f"{application_id}-{sub.name}-rescale"
        self._notes_topic = RescaleNotes(
            around.kafka, around.admin, rescale_topic(application_id, sub.name), self._transactional_id
        )
        self.notes: Notes | None = self._notes_topic.read()
        plan = self.notes.plan if self.notes else None
        if plan is not None and plan.new != new:
            raise RescaleError(
                f"{application_id}/{sub.name}: a rescale from {plan.old} to {plan.new} tasks was begun and has not come to its "
                f"end. Finish it with --tasks {plan.new}, and rescale again then; or, as long as nothing was replaced, take it "
                f"back with --abort"
            )
        self.old = plan.old if plan else old
        self._identity = SubIdentity(application_id, sub.name, self.old, sub.topology_hash)
        self._markers = MarkerAccess(around.kafka, self._identity)
        self._specs = [node.spec for node in sub.stores.values() if node.spec.logged]
        self._commits = commits_topic(application_id, sub.name)

    @property
    def phase(self) -> Phase | None:
        """How far this sub-topology has come; None: not begun."""
        return self.notes.plan.phase if self.notes else None

    @property
    def needed(self) -> bool:
        """Whether anything is to be done."""
        return self.notes is not None or self.old != self.new

    def settle(self) -> None:
        """Ends what another run may have left open: its transactions are decided before anything is read or deleted."""
        if self._exists(self._notes_topic.topic):
            self._notes_topic.fence()
            self.notes = self._notes_topic.read()

    def check(self) -> None:
        """Everything that can be refused without reading the changelogs; writes nothing.

        Raises:
            StreamsError: The rescale is refused.
        """
        if self.notes is not None and self.phase is not Phase.COPYING:
            # Of the same program: the notes have its markers, even if the commits topic is just being replaced.
            check_program(replace(self._identity, tasks=self.new), self.notes.markers)
            return
        row_keys(self.sub, self._around.choices.by_key)
        lost = sorted(
            name
            for name, node in self.sub.stores.items()
            if not node.spec.logged and name not in self._around.choices.dropped
        )
        if lost:
            raise RescaleError(
                f"the store {lost[0]!r} has no changelog: its rows are on the hosts of its tasks only, and cannot be moved. If "
                f"they may be lost, say so: --drop {lost[0]}"
            )
        markers = self._markers.read() if self._exists(self._commits) else {}
        check_program(self._identity, opened(markers))
        plan = RescalePlan("", self.old, self.new, self._around.first_of(self._identity, opened(markers)))
        self._new_markers(plan, opened(markers))

    def begin(self) -> None:
        """1: fences the tasks and notes the plan."""
        if self.phase not in (None, Phase.COPYING) or self.old == self.new:
            return
        markers = opened(self._markers.fenced()) if self._exists(self._commits) else {}
        check_program(self._identity, markers)
        first = self._around.first_of(self._identity, markers)
        plan = RescalePlan(str(uuid.uuid4()), self.old, self.new, first)
        self._notes_topic.create(plan, self._around.replication)
        self.notes = Notes(plan, {}, {})

    def stage(self) -> None:
        """2: copies the changelogs to staging topics, then notes the new markers."""
        if self.phase is not Phase.COPYING:
            return
        assert self.notes is not None
        markers = opened(self._markers.fenced()) if self._exists(self._commits) else {}
        made = self._new_markers(self.notes.plan, markers)
        keys = row_keys(self.sub, self._around.choices.by_key)
        # What an interrupted run has copied is not known to be complete.
        staging = [staging_topic(self._app, spec.name) for spec in self._specs]
        self._around.admin.delete_topics(staging)
        for spec, topic in zip(self._specs, staging, strict=True):
            self._create(topic, self.new, STAGING)
            if not self._exists(changelog_topic(self._app, spec.name)):
                continue
            copy = LogCopy(self._around.kafka, self._transactional_id, topic, self.new)
            for task in range(self.old):
                stage_partition(
                    copy, changelog_topic(self._app, spec.name), spec, keys[spec.name], (task, self.old),
                    markers.get(task), self._around.listener,
                )  # fmt: skip
            copy.flush()
        versions = {task: marker.version for task, marker in markers.items() if marker is not None}
        self._note(replace(self.notes.plan, versions=versions), Phase.CLOSING, made)

    def close(self) -> None:
        """3: closes the old markers, so that no old task can commit any more, even if one should run."""
        if self.phase is not Phase.CLOSING:
            return
        assert self.notes is not None
        markers = self._markers.fenced() if self._exists(self._commits) else {}
        try:
            check_same(self._identity, self.notes.plan.versions, markers)
            for task, marker in markers.items():
                if marker is not None and not marker.query_id.endswith(RESCALED):
                    self._put(task, marker, replace(marker, query_id=marker.query_id + RESCALED))
        except CheckpointMismatchError:
            # What was copied is no longer the state, so the next run copies anew.
            self._note(self.notes.plan, Phase.COPYING)
            raise
        self._note(self.notes.plan, Phase.REPLACING)

    def replace(self) -> None:
        """4 and 5: the new changelogs, the new commits topic, the new checkpoint."""
        if self.phase is not Phase.REPLACING:
            return
        assert self.notes is not None
        ends: dict[str, dict[int, int]] = {}
        for spec in self._specs:
            ends[spec.name] = self._fill(changelog_topic(self._app, spec.name), spec)
        self._write_markers(ends)
        self._replace_checkpoint(self.notes.plan)
        self._note(self.notes.plan, Phase.DONE)

    def clean_up(self) -> None:
        """Deletes the staging topics, and the notes last: from then on the application can be started."""
        self._around.admin.delete_topics([staging_topic(self._app, spec.name) for spec in self._specs])
        self._around.admin.delete_topics([self._notes_topic.topic])
        self.notes = None

    def check_abort(self) -> None:
        """Checks that nothing was replaced.

        Raises:
            RescaleError: Something was.
        """
        if self.phase in (Phase.REPLACING, Phase.DONE):
            raise RescaleError(
                f"{self._identity}: its changelogs are being replaced, so this rescale can only go forward: run `streams rescale` "
                f"with --tasks {self.new} again"
            )

    def abort(self) -> None:
        if self._exists(self._commits):
            for task, marker in self._markers.fenced().items():
                if marker is not None and marker.query_id.endswith(RESCALED):
                    self._put(task, marker, replace(marker, query_id=marker.query_id.removesuffix(RESCALED)))
            self._markers.fenced()
        self.clean_up()

    # -------------------------------------------------------------------------------------------------------------------

    def _new_markers(self, plan: RescalePlan, markers: Markers) -> dict[int, CommitMarker]:
        users = frozenset(node.name for node in self.sub.processors if node.kind in USERS_PROCESSORS)
        return new_markers(plan, markers, users, self._around.choices)

    def _put(self, task: int, old: CommitMarker, new: CommitMarker) -> None:
        try:
            if self._markers.replace(task, old, new):
                return
        except FencedError as error:
            raise runs(self._identity, task) from error
        raise runs(self._identity, task)

    def _note(self, plan: RescalePlan, phase: Phase, markers: Mapping[int, CommitMarker] | None = None) -> None:
        assert self.notes is not None
        plan = self._notes_topic.note_phase(plan, phase, markers)
        self.notes = Notes(plan, self.notes.markers if markers is None else markers, self.notes.filled)

    def _exists(self, topic: str) -> bool:
        return topic in self._around.admin.describe_topics([topic])

    def _create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        self._around.admin.create_topics([TopicSpec(topic, partitions, config, self._around.replication)])

    def _fill(self, topic: str, spec: StoreSpec) -> dict[int, int]:
        """Replaces a changelog by its staging topic; returns where the partitions end."""
        around, staging = self._around, staging_topic(self._app, spec.name)
        copy = LogCopy(around.kafka, self._transactional_id, topic, self.new)
        if not self._is_filled(topic):
            around.admin.delete_topics([topic])
            self._create(topic, self.new, changelog_config(spec, around.replication))
            for partition in range(self.new):
                self._fill_partition(copy, staging, partition, f"{spec.name} (new)")
            copy.flush()
            self._note_filled(topic)
        # A new transaction of the same producer begins only once the last one is decided: so these are the ends.
        self._notes_topic.fence()
        return {partition: end for (_, partition), end in copy.ends().items()}

    def _fill_partition(self, copy: LogCopy, staging: str, partition: int, name: str) -> None:
        kafka, listener, place = self._around.kafka, self._around.listener, (staging, partition)
        end = kafka.end_offsets([place])[place]
        listener.on_start(name, partition, end)
        for columns in records_of(kafka, *place, end):
            copy.add(columns, np.full(len(columns), partition, np.int32))
            listener.on_batch(name, partition, len(columns), int(columns.offsets[-1]))
        listener.on_end(name, partition)

    def _is_filled(self, topic: str) -> bool:
        assert self.notes is not None
        found = self._around.admin.describe_topics([topic]).get(topic)
        return found is not None and self.notes.filled.get(topic) == found.topic_id

    def _note_filled(self, topic: str) -> None:
        assert self.notes is not None
        topic_id = self._around.admin.describe_topics([topic])[topic].topic_id
        self._notes_topic.note_filled(topic, topic_id)
        self.notes = replace(self.notes, filled={**self.notes.filled, topic: topic_id})

    def _write_markers(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """Replaces the commits topic, with all new markers in one transaction."""
        assert self.notes is not None
        if self._is_filled(self._commits):
            return
        self._around.admin.delete_topics([self._commits])
        self._create(self._commits, self.new, commits_config(self._around.replication))
        if self.notes.markers:
            producer = fenced_producer(self._around.kafka, self._transactional_id)
            try:
                producer.begin()
                for task, marker in sorted(self.notes.markers.items()):
                    made = replace(marker, changelog_ends={store: of[task] for store, of in ends.items()})
                    producer.send(self._commits, task, MARKER_KEY, made.to_bytes(), made.now_ms)
                producer.commit()
            finally:
                producer.close()
        self._note_filled(self._commits)

    def _replace_checkpoint(self, plan: RescalePlan) -> None:
        files, name = self._around.files, self.sub.name
        if plan.first is None or query_id_of(files, name) == plan.query_id:
            return
        folder = name + _MADE
        files.delete(folder)
        write_query_id(files, folder, plan.query_id)
        write_first_batch(files, folder, plan.first)
        if files.names(name):
            move_aside(files, name)
        files.move(folder, name)


def opened(markers: Markers) -> dict[int, CommitMarker | None]:
    """The markers as they were before they were closed."""
    return {
        task: None if marker is None else replace(marker, query_id=marker.query_id.removesuffix(RESCALED))
        for task, marker in markers.items()
    }
