"""The rescale of an application, sub-topology by sub-topology. Each step can be repeated, and continues what was interrupted."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from state.changelog import (
    changelog_config,
    changelog_topic,
    commits_config,
    commits_topic,
    rescale_topic,
    staging_topic,
)
from state.commit.guards import fenced_producer
from state.commit.live import LiveKafka
from state.commit.marker import MARKER_KEY, RESCALED, CommitMarker
from state.commit.protocols import KafkaAccess
from state.errors import CheckpointMismatchError, FencedError
from state.kafka.admin import DECIDE_S, KafkaAdmin, wait_until_decided
from state.kafka.partitioner import Placement
from state.kafka.topics import TopicPartition, TopicSpec
from state.restore.directory import StateDirectory
from state.stores.spec import StoreSpec
from streams.application.markers import MarkerAccess, placed_marker, still_running
from streams.application.prepare import PreparedSub, plan_application
from streams.application.rescale.plan import (
    STAGING,
    Notes,
    Phase,
    RescaleNotes,
    RescalePlan,
    UsersChoices,
    check_same,
    first_batch,
    new_markers,
)
from streams.application.rescale.rows import (
    USERS_PROCESSORS,
    Listener,
    LogCopy,
    Strays,
    check_strays,
    records_of,
    row_keys,
    stage_partition,
)
from streams.application.start import check_may_continue
from streams.checkpoint.compare import Markers, SubIdentity, check_checkpoint, check_program, check_topic
from streams.checkpoint.files import (
    CheckpointFiles,
    move_aside,
    query_id_of,
    read_checkpoint,
    write_first_batch,
    write_query_id,
)
from streams.config import StreamsConfig
from streams.errors import RescaleError
from streams.source.offsets import FirstBatch
from streams.topology.plan import SubTopology
from streams.topology.topology import Topology

FirstOf = Callable[[SubIdentity, Markers], "FirstBatch | None"]
"""Where the new checkpoint begins; refuses state that is not at rest."""


@dataclass(frozen=True)
class RescaleContext:
    """What a rescale works with.

    Attributes:
        first_of: See `FirstOf`.
        replication: Replication factor of topics; -1: the broker's default.
    """

    admin: KafkaAdmin
    kafka: KafkaAccess
    files: CheckpointFiles
    first_of: FirstOf
    choices: UsersChoices
    listener: Listener
    replication: int = -1


_MADE = "~rescaled"


class SubRescale:
    """The rescale of one sub-topology, step by step.

    Args:
        old: The number of its tasks now, if no rescale was begun; else that of the notes counts.
        before: What gives keys to its tasks now; None: no task has had a key yet, so there is nothing to move.
        asked: What shall; None: the same.

    Attributes:
        notes: What was noted so far; None: the rescale of this sub-topology has not begun.
    """

    def __init__(
        self,
        application_id: str,
        sub: SubTopology,
        old: int,
        new: int,
        context: RescaleContext,
        before: Placement | None = Placement.MURMUR2,
        asked: Placement | None = None,
    ) -> None:
        self.sub = sub
        self.new = new
        self._app = application_id
        self._context = context
        self._transactional_id = f"{application_id}-{sub.name}-rescale"
        self._notes_topic = RescaleNotes(
            context.kafka, context.admin, rescale_topic(application_id, sub.name), self._transactional_id
        )
        self.notes: Notes | None = self._notes_topic.read()
        plan = self.notes.plan if self.notes else None
        self.before = plan.before if plan else before or Placement.MURMUR2
        self.then = plan.then if plan else (before and asked) or self.before
        if plan is not None and (plan.new != new or plan.then is not (asked or plan.then)):
            raise RescaleError(
                f"{application_id}/{sub.name}: a rescale from {plan.old} to {plan.new} tasks ({plan.then.value}) was begun and "
                f"is not finished. Finish it with --tasks {plan.new} --placement {plan.then.value}, then rescale again; or, as "
                f"long as nothing was replaced, undo it with --abort"
            )
        self.old = plan.old if plan else old
        self._identity = SubIdentity(application_id, sub.name, self.old, sub.topology_hash)
        self._markers = MarkerAccess(context.kafka, self._identity)
        self._specs = [node.spec for node in sub.stores.values() if node.spec.logged]
        self._commits = commits_topic(application_id, sub.name)

    @property
    def phase(self) -> Phase | None:
        """How far this sub-topology has come; None: not begun."""
        return self.notes.plan.phase if self.notes else None

    @property
    def needed(self) -> bool:
        return self.notes is not None or self._moves

    @property
    def _moves(self) -> bool:
        return self.old != self.new or self.before is not self.then

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
        if Placement.PARTITION in (self.before, self.then) and self._specs:
            raise RescaleError(
                f"{self._identity}: with placement=partition, a key is in the task of the partition that its producer chose, of "
                f"which the rows of the store {self._specs[0].name!r} say nothing, so they cannot be moved. Keep the number of "
                f"tasks and the placement, or process the input again (`streams reset`)"
            )
        row_keys(self.sub, self._context.choices.by_key)
        lost = sorted(
            name
            for name, node in self.sub.stores.items()
            if not node.spec.logged and name not in self._context.choices.dropped
        )
        if lost:
            raise RescaleError(
                f"the store {lost[0]!r} has no changelog: its rows exist only on the hosts of its tasks and cannot be moved. If "
                f"they may be lost, add --drop {lost[0]}"
            )
        markers = self._markers.read() if self._exists(self._commits) else {}
        check_program(self._identity, opened(markers))
        first = self._context.first_of(self._identity, opened(markers))
        plan = RescalePlan("", self.old, self.new, first, self.before, self.then)
        self._new_markers(plan, opened(markers))

    def begin(self) -> None:
        """1: fences the tasks and notes the plan."""
        if self.phase not in (None, Phase.COPYING) or not self._moves:
            return
        markers = opened(self._markers.fenced()) if self._exists(self._commits) else {}
        check_program(self._identity, markers)
        first = self._context.first_of(self._identity, markers)
        plan = RescalePlan(str(uuid.uuid4()), self.old, self.new, first, self.before, self.then)
        self._notes_topic.create(plan, self._context.replication)
        self.notes = Notes(plan, {}, {})

    def stage(self) -> None:
        """2: copies the changelogs to staging topics, then notes the new markers."""
        if self.phase is not Phase.COPYING:
            return
        assert self.notes is not None
        markers = opened(self._markers.fenced()) if self._exists(self._commits) else {}
        made = self._new_markers(self.notes.plan, markers)
        keys = row_keys(self.sub, self._context.choices.by_key)
        # What an interrupted run has copied is not known to be complete.
        staging = [staging_topic(self._app, spec.name) for spec in self._specs]
        self._context.admin.delete_topics(staging)
        for spec, topic in zip(self._specs, staging, strict=True):
            self._create(topic, self.new, STAGING)
            if not self._exists(changelog_topic(self._app, spec.name)):
                continue
            copy = LogCopy(self._context.kafka, self._transactional_id, topic, self.new)
            changelog, strays = changelog_topic(self._app, spec.name), Strays(spec.name)
            for task in range(self.old):
                stage_partition(
                    copy, changelog, spec, keys[spec.name], (task, self.old), (self.before, self.then), markers.get(task),
                    strays, self._context.listener,
                )  # fmt: skip
            copy.flush()
            check_strays(copy.kafka, changelog, spec, strays, markers)
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
            # What was copied is no longer the state, so the next run copies it again.
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
        first = self.notes.plan.first
        self._write_markers(ends, {} if first is None else first.start.by_partition())
        self._replace_checkpoint(self.notes.plan)
        self._note(self.notes.plan, Phase.DONE)

    def clean_up(self) -> None:
        """Deletes the staging topics, and the notes last: from then on the application can be started."""
        self._context.admin.delete_topics([staging_topic(self._app, spec.name) for spec in self._specs])
        self._context.admin.delete_topics([self._notes_topic.topic])
        self.notes = None

    def check_abort(self) -> None:
        """Checks that nothing was replaced."""
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
        return new_markers(plan, markers, users, self._context.choices)

    def _put(self, task: int, old: CommitMarker, new: CommitMarker) -> None:
        try:
            if self._markers.replace(task, old, new):
                return
        except FencedError as error:
            raise still_running(self._identity, task, "rescale") from error
        raise still_running(self._identity, task, "rescale")

    def _note(self, plan: RescalePlan, phase: Phase, markers: Mapping[int, CommitMarker] | None = None) -> None:
        assert self.notes is not None
        plan = self._notes_topic.note_phase(plan, phase, markers)
        self.notes = Notes(plan, self.notes.markers if markers is None else markers, self.notes.filled)

    def _exists(self, topic: str) -> bool:
        return topic in self._context.admin.describe_topics([topic])

    def _create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        self._context.admin.create_topics([TopicSpec(topic, partitions, config, self._context.replication)])

    def _fill(self, topic: str, spec: StoreSpec) -> dict[int, int]:
        """Replaces a changelog by its staging topic; returns where the partitions end."""
        context, staging = self._context, staging_topic(self._app, spec.name)
        copy = LogCopy(context.kafka, self._transactional_id, topic, self.new)
        if not self._is_filled(topic):
            context.admin.delete_topics([topic])
            self._create(topic, self.new, changelog_config(spec, context.replication))
            for partition in range(self.new):
                self._fill_partition(copy, staging, partition, f"{spec.name} (new)")
            copy.flush()
            self._note_filled(topic)
        # A new transaction of the same producer begins only once the last one is decided: so these are the ends.
        self._notes_topic.fence()
        return {partition: end for (_, partition), end in copy.ends().items()}

    def _fill_partition(self, copy: LogCopy, staging: str, partition: int, name: str) -> None:
        kafka, listener, place = self._context.kafka, self._context.listener, (staging, partition)
        end = kafka.end_offsets([place])[place]
        listener.on_start(name, partition, end)
        for columns in records_of(kafka, *place, end):
            copy.add(columns, np.full(len(columns), partition, np.int32))
            listener.on_batch(name, partition, len(columns), int(columns.offsets[-1]))
        listener.on_end(name, partition)

    def _is_filled(self, topic: str) -> bool:
        assert self.notes is not None
        found = self._context.admin.describe_topics([topic]).get(topic)
        return found is not None and self.notes.filled.get(topic) == found.topic_id

    def _note_filled(self, topic: str) -> None:
        assert self.notes is not None
        topic_id = self._context.admin.describe_topics([topic])[topic].topic_id
        self._notes_topic.note_filled(topic, topic_id)
        self.notes = replace(self.notes, filled={**self.notes.filled, topic: topic_id})

    def _write_markers(self, ends: Mapping[str, Mapping[int, int]], positions: Mapping[TopicPartition, int]) -> None:
        """Replaces the commits topic, with all new markers in one transaction.

        The new markers have no ranges, and the group may not know yet how far live steps have read: so it gets the positions, too.
        """
        assert self.notes is not None
        if self._is_filled(self._commits):
            return
        self._context.admin.delete_topics([self._commits])
        self._create(self._commits, self.new, commits_config(self._context.replication))
        if self.notes.markers:
            producer = fenced_producer(self._context.kafka, self._transactional_id)
            try:
                producer.begin()
                for task, marker in sorted(self.notes.markers.items()):
                    made = replace(marker, changelog_ends={store: of[task] for store, of in ends.items()})
                    producer.send(self._commits, task, MARKER_KEY, made.to_bytes(), made.now_ms)
                if positions:
                    producer.send_offsets(positions, self._app)
                producer.commit()
            finally:
                producer.close()
        self._note_filled(self._commits)

    def _replace_checkpoint(self, plan: RescalePlan) -> None:
        files, name = self._context.files, self.sub.name
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


@dataclass(frozen=True)
class Rescaler:
    """Takes all sub-topologies to another number of tasks, so that no start finds some of them with another number."""

    subs: Sequence[SubRescale]

    @property
    def waiting(self) -> list[SubRescale]:
        return [sub for sub in self.subs if sub.needed]

    def check(self) -> None:
        """Checks all that can be checked without reading the state; writes nothing.

        Raises:
            StreamsError: The rescale is refused.
        """
        for sub in self.waiting:
            sub.check()

    def run(self) -> None:
        """Does it. Nothing is replaced before the copies of all sub-topologies are complete.

        Raises:
            StreamsError: The rescale is refused, or a request to Kafka has failed; the next run continues.
        """
        for sub in self.subs:
            sub.settle()
        waiting = self.waiting
        self.check()
        # The notes of all come first: they keep the application from being started, until the last of them is deleted.
        for sub in waiting:
            sub.begin()
        for sub in waiting:
            sub.stage()
        for sub in waiting:
            sub.close()
        for sub in waiting:
            sub.replace()
        for sub in waiting:
            sub.clean_up()

    def abort(self) -> None:
        """Takes back a rescale that has replaced nothing yet.

        Raises:
            RescaleError: Something was replaced already.
        """
        for sub in self.subs:
            sub.settle()
            sub.check_abort()
        for sub in self.subs:
            sub.abort()


@dataclass(frozen=True)
class LiveRescale:
    """A rescale on a real cluster."""

    config: StreamsConfig
    admin: KafkaAdmin
    files: CheckpointFiles
    listener: Listener

    def rescaler(
        self, topology: Topology, tasks: int | None, choices: UsersChoices, placement: Placement | None = None
    ) -> Rescaler:
        """The rescale of a program's state.

        Args:
            topology: The program.
            tasks: The new number of tasks; None: as many as now.
            choices: What the user says.
            placement: What shall give keys to tasks, in sub-topologies that read topics of others; None: what does now.

        Raises:
            StreamsError: The program is not the one that wrote the state, or another rescale is unfinished.
        """
        config, kafka = self.config, self._kafka
        # The number in the settings may already be the new one; the topics have the present one.
        application = plan_application(topology, config.model_copy(update={"tasks": None}), self.admin, self._kafka)
        check_may_continue(application, self.admin, kafka)
        context = RescaleContext(
            self.admin, kafka, self.files, self._first_of, choices, self.listener, config.replication_factor
        )
        app, subs = config.application_id, application.plan.sub_topologies
        found = self.admin.describe_topics([commits_topic(app, sub.name) for sub in subs])

        def of(prepared: PreparedSub) -> SubRescale:
            sub, topic = prepared.sub, commits_topic(app, prepared.sub.name)
            info = found.get(topic)
            last = None if info is None else placed_marker(kafka, topic, range(info.partitions))
            # Without commits there is nothing to move: the next start creates the topics, and looks for the placement.
            old = (tasks or prepared.tasks) if info is None else info.partitions
            before = None if last is None else Placement(last.placement)
            asked = placement if application.from_outside(sub) else None
            return SubRescale(app, sub, old, tasks or old, context, before, asked)

        return Rescaler([of(prepared) for prepared in application.subs])

    @property
    def _kafka(self) -> LiveKafka:
        return LiveKafka(self.config.client, self.config.transaction_timeout_ms, bulk=self.config.bulk_io)

    def forget_local_state(self, tasks: int, say: Callable[[str], None]) -> None:
        """Deletes this machine's stores of tasks that no longer exist; all others are foreign now, and are restored."""
        for directory in StateDirectory(self.config.state_dir).tasks(self.config.application_id):
            if directory.task >= tasks:
                directory.wipe()
                say(
                    f"deleted the local state of task {directory.task} of {directory.sub_topology}, which no longer exists"
                )

    def _first_of(self, sub: SubIdentity, markers: Markers) -> FirstBatch | None:
        """Where the new checkpoint begins, once the old one is known to match the markers."""
        checkpoint = read_checkpoint(self.files, sub.name, {marker.batch_id for marker in markers.values() if marker})
        check_checkpoint(sub, checkpoint, markers)
        if self.config.on_lost_offsets == "fail":
            try:
                check_topic(sub, checkpoint, markers)
            except CheckpointMismatchError:
                # The last commits of an earlier run may not be readable yet.
                access = MarkerAccess(self._kafka, sub)
                wait_until_decided(self.admin, access.places(), self.config.transaction_timeout_ms / 1000 + DECIDE_S)
                check_topic(sub, checkpoint, opened(access.read()))
        return first_batch(sub, checkpoint, markers)
