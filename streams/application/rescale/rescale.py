"""The rescale of an application, sub-topology by sub-topology. Each step can be repeated, and continues after an interruption."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from state.changelog import (
    changelog_config,
    changelog_topic,
    commits_config,
    commits_topic,
    repartition_config,
    rescale_topic,
    staging_topic,
)
from state.commit.guards import fenced_producer
from state.commit.marker import MARKER_KEY, RESCALED, CommitMarker
from state.commit.protocols import KafkaAccess
from state.errors import CheckpointMismatchError, FencedError
from state.kafka.admin import KafkaAdmin
from state.kafka.placement import Placement
from state.kafka.topics import TopicPartition, TopicSpec
from state.restore.restorer import RestoreListener
from state.stores.spec import StoreSpec
from streams.application.markers import MarkerAccess, still_running
from streams.application.rescale.plan import (
    STAGING,
    Notes,
    Part,
    Phase,
    RescaleNotes,
    RescalePlan,
    Sources,
    UsersChoices,
    check_same,
    first_of_part,
    new_markers,
)
from streams.application.rescale.rows import (
    USERS_PROCESSORS,
    LogCopy,
    Strays,
    check_strays,
    records_with_progress,
    row_keys,
    stage_partition,
)
from streams.checkpoint.compare import Markers, SubIdentity, check_program
from streams.checkpoint.files import (
    CheckpointFiles,
    move_aside,
    query_id_of,
    write_first_batch,
    write_query_id,
)
from streams.engine.source.offsets import FirstBatch
from streams.errors import RescaleError
from streams.topology.plan import SubTopology

FirstOf = Callable[[SubIdentity, Markers], "FirstBatch | None"]
"""Returns where the new checkpoint begins; refuses state that is not at rest."""


@dataclass(frozen=True)
class RescaleContext:
    """The objects that a rescale works with.

    Attributes:
        first_of: Returns where the new checkpoint begins (`FirstOf`).
        replication: Replication factor of topics; -1: the broker's default.
    """

    admin: KafkaAdmin
    kafka: KafkaAccess
    files: CheckpointFiles
    first_of: FirstOf
    choices: UsersChoices
    listener: RestoreListener | None
    replication: int = -1


_MADE = "~rescaled"


class SubRescale:
    """The rescale of one sub-topology, step by step.

    Args:
        old: The current number of its tasks. If a rescale has begun, the number in the notes is used instead.
        before: The current placement; None: no task has had a key yet, so there is nothing to move.
        asked: The new placement; None: it does not change.
        parts: The sub-topologies of another plan that take over from it; empty: it is not divided.
        sources: The plan with which it ran, and the plan with which the parts run; None: the plan stays.

    Attributes:
        parts: The sub-topologies that take over; only itself, if the plan stays.
        notes: The notes so far; None: the rescale of this sub-topology has not begun.
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
        parts: Sequence[Part] = (),
        sources: tuple[Sources, Sources] | None = None,
    ) -> None:
        self.sub = sub
        self.new = new
        self.sources = sources
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
        if plan is not None and (plan.sources is None) is not (sources is None):
            raise RescaleError(
                f"{application_id}/{sub.name}: a rescale {_asked_for(plan)} was begun and is not finished. Finish it first, or, as "
                f"long as nothing was replaced, undo it with --abort"
            )
        if plan is not None and sources is None and (plan.new != new or plan.then is not (asked or plan.then)):
            raise RescaleError(
                f"{application_id}/{sub.name}: a rescale from {plan.old} to {plan.new} tasks ({plan.then.value}) was begun and "
                f"is not finished. Finish it with --tasks {plan.new} --placement {plan.then.value}, then rescale again; or, as "
                f"long as nothing was replaced, undo it with --abort"
            )
        self.old = plan.old if plan else old
        self.parts = tuple(parts) or (Part(sub, new, self.then),)
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
        # In an ordinary rescale, the sub-topology is its own only part.
        (first, *others) = self.parts
        same = first.name == self.sub.name and first.sub.topology_hash == self.sub.topology_hash
        return bool(others) or not same or self.old != first.tasks or self.before is not first.placement

    def settle(self) -> None:
        """Ends transactions that another run may have left open: they are decided before anything is read or deleted."""
        if self._exists(self._notes_topic.topic):
            self._notes_topic.fence()
            self.notes = self._notes_topic.read()

    def check(self) -> None:
        """Checks everything that can be checked without reading the changelogs; writes nothing.

        Raises:
            StreamsError: The rescale is refused.
        """
        if self.notes is not None and self.phase is not Phase.COPYING:
            # From the same program: the notes have its markers, even while the commits topic is being replaced.
            for part in self.parts:
                identity = replace(self._identity, name=part.name, tasks=part.tasks, topology_hash=self._hash_of(part))
                check_program(identity, self._made(part))
            return
        for part in self.parts:
            specs = _specs_of(part)
            if Placement.PARTITION in (self.before, part.placement) and specs:
                raise RescaleError(
                    f"{self._identity}: with placement=partition, a key is in the task of the partition that its producer chose. "
                    f"The rows of the store {specs[0].name!r} do not say which, so they cannot be moved. Keep the number of "
                    f"tasks and the placement, or process the input again (`streams reset`)"
                )
        self._check_parts()
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
        self._new_markers(self._plan("", first), opened(markers))

    def begin(self) -> None:
        """Step 1: fences the tasks and records the plan."""
        if self.phase not in (None, Phase.COPYING) or not self._moves:
            return
        markers = opened(self._markers.fenced()) if self._exists(self._commits) else {}
        check_program(self._identity, markers)
        first = self._context.first_of(self._identity, markers)
        plan = self._plan(str(uuid.uuid4()), first)
        self._notes_topic.create(plan, self._context.replication)
        self.notes = Notes(plan, {}, {})

    def stage(self) -> None:
        """Step 2: copies the changelogs to staging topics, then notes the new markers."""
        if self.phase is not Phase.COPYING:
            return
        assert self.notes is not None
        markers = opened(self._markers.fenced()) if self._exists(self._commits) else {}
        made = self._new_markers(self.notes.plan, markers)
        keys = row_keys(self.sub, self._context.choices.by_key)
        # The copies of an interrupted run may be incomplete.
        self._context.admin.delete_topics([staging_topic(self._app, spec.name) for spec in self._specs])
        for part, spec in self._moved():
            topic = staging_topic(self._app, spec.name)
            self._create(topic, part.tasks, STAGING)
            if not self._exists(changelog_topic(self._app, spec.name)):
                continue
            copy = LogCopy(self._context.kafka, self._transactional_id, topic, part.tasks)
            changelog, strays = changelog_topic(self._app, spec.name), Strays(spec.name)
            for task in range(self.old):
                stage_partition(
                    copy, changelog, spec, keys[spec.name], (task, self.old), (self.before, part.placement), markers.get(task),
                    strays, self._context.listener,
                )  # fmt: skip
            copy.flush()
            check_strays(copy.kafka, changelog, spec, strays, markers)
        versions = {task: marker.version for task, marker in markers.items() if marker is not None}
        self._note(replace(self.notes.plan, versions=versions), Phase.CLOSING, made)

    def close(self) -> None:
        """Step 3: closes the old markers. After that, no old task can commit, even if one still runs."""
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
            # The copies are no longer the current state, so the next run copies again.
            self._note(self.notes.plan, Phase.COPYING)
            raise
        self._note(self.notes.plan, Phase.REPLACING)

    def replace(self) -> None:
        """Steps 4 and 5: makes the new changelogs, repartition topics and commits topics, and the new checkpoints."""
        if self.phase is not Phase.REPLACING:
            return
        assert self.notes is not None
        ends: dict[str, dict[int, int]] = {}
        for part, spec in self._moved():
            ends[spec.name] = self._fill(changelog_topic(self._app, spec.name), spec, part.tasks)
        for part in self.parts:
            for topic, partitions in part.writes.items():
                self._make(topic, partitions)
        added = self._context.admin.describe_topics([topic for part in self.parts for topic in part.writes])
        plan = self.notes.plan
        for part in self.parts:
            first = (
                None if plan.first is None else first_of_part(plan.first, part, added) if self._divides else plan.first
            )
            own = {spec.name: ends[spec.name] for spec in _specs_of(part)}
            self._write_markers(part, own, {} if first is None else first.start.by_partition())
            self._replace_checkpoint(part.name, plan.query_id, first)
        if self.sub.name not in {part.name for part in self.parts}:
            # Nothing runs under this name any more.
            self._context.admin.delete_topics([self._commits])
            if plan.first is not None and self._context.files.names(self.sub.name):
                move_aside(self._context.files, self.sub.name)
        self._note(plan, Phase.DONE)

    def clean_up(self) -> None:
        """Deletes the staging topics, and the notes last: after that the application can be started."""
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

    @property
    def _divides(self) -> bool:
        """Whether the plan changes, so that the parts have names of their own."""
        return self.sources is not None

    def _plan(self, query_id: str, first: FirstBatch | None) -> RescalePlan:
        parts = {part.name: (part.tasks, part.placement) for part in self.parts} if self._divides else {}
        return RescalePlan(
            query_id, self.old, self.new, first, self.before, self.then, parts=parts, sources=self.sources
        )

    def _key(self, part: Part) -> str:
        return part.name if self._divides else ""

    def _made(self, part: Part) -> Mapping[int, CommitMarker]:
        """The new markers of a part that are noted so far."""
        assert self.notes is not None
        return self.notes.markers.get(self._key(part), {})

    def _hash_of(self, part: Part) -> str:
        return part.sub.topology_hash if self._divides else self._identity.topology_hash

    def _moved(self) -> Iterator[tuple[Part, StoreSpec]]:
        """The stores whose rows move, each with the part that it belongs to."""
        return ((part, spec) for part in self.parts for spec in _specs_of(part))

    def _check_parts(self) -> None:
        """Checks that each store belongs to one part, and that its rows belong to the same keys as before.

        Raises:
            RescaleError: A check fails, or a topic between the parts already exists.
        """
        keys = row_keys(self.sub, self._context.choices.by_key)
        found = {
            name: key for part in self.parts for name, key in row_keys(part.sub, self._context.choices.by_key).items()
        }
        if found != keys:
            name = min(store for store in keys.keys() | found.keys() if keys.get(store) != found.get(store))
            raise RescaleError(
                f"{self._identity}: the rows of the store {name!r} would belong to other keys with repartition topics than "
                f"without, so they cannot be moved: report this. Until then, process the input again (`streams reset`)"
            )
        for topic in sorted(topic for part in self.parts for topic in part.writes):
            if self._exists(topic):
                raise RescaleError(
                    f"{self._identity}: the topic {topic}, which the plan adds, already exists, and may have records of something "
                    f"else. Delete it (`streams topic delete {topic}`), then rescale"
                )

    def _new_markers(self, plan: RescalePlan, markers: Markers) -> dict[str, Mapping[int, CommitMarker]]:
        users = frozenset(node.name for node in self.sub.processors if node.kind in USERS_PROCESSORS)
        return {self._key(one): new_markers(plan, one, markers, users, self._context.choices) for one in self.parts}

    def _put(self, task: int, old: CommitMarker, new: CommitMarker) -> None:
        try:
            if self._markers.replace(task, old, new):
                return
        except FencedError as error:
            raise still_running(self._identity, task, "rescale") from error
        raise still_running(self._identity, task, "rescale")

    def _note(
        self, plan: RescalePlan, phase: Phase, markers: Mapping[str, Mapping[int, CommitMarker]] | None = None
    ) -> None:
        assert self.notes is not None
        plan = self._notes_topic.note_phase(plan, phase, markers)
        self.notes = Notes(plan, self.notes.markers if markers is None else markers, self.notes.filled)

    def _exists(self, topic: str) -> bool:
        return topic in self._context.admin.describe_topics([topic])

    def _create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        self._context.admin.create_topics([TopicSpec(topic, partitions, config, self._context.replication)])

    def _make(self, topic: str, partitions: int) -> None:
        """Creates a repartition topic between the parts, unless it exists."""
        if not self._is_filled(topic):
            self._context.admin.delete_topics([topic])
            self._create(topic, partitions, repartition_config(self._context.replication))
            self._note_filled(topic)

    def _fill(self, topic: str, spec: StoreSpec, tasks: int) -> dict[int, int]:
        """Replaces a changelog by its staging topic; returns the ends of its partitions."""
        context, staging = self._context, staging_topic(self._app, spec.name)
        copy = LogCopy(context.kafka, self._transactional_id, topic, tasks)
        if not self._is_filled(topic):
            context.admin.delete_topics([topic])
            self._create(topic, tasks, changelog_config(spec, context.replication))
            for partition in range(tasks):
                self._fill_partition(copy, staging, partition, f"{spec.name} (new)")
            copy.flush()
            self._note_filled(topic)
        # A new transaction of the same producer begins only once the last one is decided, so the ends are final.
        self._notes_topic.fence()
        return {partition: end for (_, partition), end in copy.ends().items()}

    def _fill_partition(self, copy: LogCopy, staging: str, partition: int, name: str) -> None:
        kafka, place = self._context.kafka, (staging, partition)
        end = kafka.end_offsets([place])[place]
        for columns in records_with_progress(kafka, *place, end, name, self._context.listener):
            copy.add(columns, np.full(len(columns), partition, np.int32))

    def _is_filled(self, topic: str) -> bool:
        assert self.notes is not None
        found = self._context.admin.describe_topics([topic]).get(topic)
        return found is not None and self.notes.filled.get(topic) == found.topic_id

    def _note_filled(self, topic: str) -> None:
        assert self.notes is not None
        topic_id = self._context.admin.describe_topics([topic])[topic].topic_id
        self._notes_topic.note_filled(topic, topic_id)
        self.notes = replace(self.notes, filled={**self.notes.filled, topic: topic_id})

    def _write_markers(
        self, part: Part, ends: Mapping[str, Mapping[int, int]], positions: Mapping[TopicPartition, int]
    ) -> None:
        """Replaces the commits topic of a part, with all new markers in one transaction.

        The new markers have no ranges, and the group may not know how far live steps have read. So the group gets the positions,
        too.
        """
        topic = commits_topic(self._app, part.name)
        if self._is_filled(topic):
            return
        self._context.admin.delete_topics([topic])
        self._create(topic, part.tasks, commits_config(self._context.replication))
        if markers := self._made(part):
            producer = fenced_producer(self._context.kafka, self._transactional_id)
            try:
                producer.begin()
                for task, marker in sorted(markers.items()):
                    made = replace(marker, changelog_ends={store: of[task] for store, of in ends.items()})
                    producer.send(topic, task, MARKER_KEY, made.to_bytes(), made.now_ms)
                if positions:
                    producer.send_offsets(positions, self._app)
                producer.commit()
            finally:
                producer.close()
        self._note_filled(topic)

    def _replace_checkpoint(self, name: str, query_id: str, first: FirstBatch | None) -> None:
        files = self._context.files
        if first is None or query_id_of(files, name) == query_id:
            return
        folder = name + _MADE
        files.delete(folder)
        write_query_id(files, folder, query_id)
        write_first_batch(files, folder, first)
        if files.names(name):
            move_aside(files, name)
        files.move(folder, name)


def _specs_of(part: Part) -> list[StoreSpec]:
    """The stores of a part that have a changelog."""
    return [node.spec for node in part.sub.stores.values() if node.spec.logged]


def _asked_for(plan: RescalePlan) -> str:
    if plan.sources is not None:
        return "to the plan with repartition topics (`streams rescale TARGET`)"
    return f"from {plan.old} to {plan.new} tasks ({plan.then.value})"


def opened(markers: Markers) -> dict[int, CommitMarker | None]:
    """The markers as they were before they were closed."""
    return {
        task: None if marker is None else replace(marker, query_id=marker.query_id.removesuffix(RESCALED))
        for task, marker in markers.items()
    }


@dataclass(frozen=True)
class Rescaler:
    """Rescales all sub-topologies, so that no start finds only some of them with the new number of tasks.

    Attributes:
        accept: Makes the next start use the new plan; called before the notes are deleted, perhaps repeatedly.
    """

    subs: Sequence[SubRescale]
    accept: Callable[[], None] = lambda: None

    @property
    def waiting(self) -> list[SubRescale]:
        return [sub for sub in self.subs if sub.needed]

    @property
    def tasks(self) -> dict[str, int]:
        """Sub-topology -> the number of its tasks afterwards; 0: it no longer exists."""
        before = dict.fromkeys((sub.sub.name for sub in self.subs), 0)
        return before | {part.name: part.tasks for sub in self.subs for part in sub.parts}

    def check(self) -> None:
        """Checks all that can be checked without reading the state; writes nothing.

        Raises:
            StreamsError: The rescale is refused.
        """
        for sub in self.waiting:
            sub.check()

    def run(self) -> None:
        """Runs the rescale. Nothing is replaced before the copies of all sub-topologies are complete.

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
        if waiting:
            self.accept()
        for sub in waiting:
            sub.clean_up()

    def abort(self) -> None:
        """Undoes a rescale that has replaced nothing yet.

        Raises:
            RescaleError: Something was replaced already.
        """
        for sub in self.subs:
            sub.settle()
            sub.check_abort()
        for sub in self.subs:
            sub.abort()
