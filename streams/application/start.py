"""The checks of a start, and its preparations in Kafka, before Spark runs anything.

`check_start` compares the program with its state before the start creates anything: a start that is refused there has left no
topic and no file. `Preflight`, once the topics exist, compares Spark's checkpoints with the commit markers.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from state.changelog import commits_topic
from state.commit.live import LiveKafka
from state.commit.marker import MarkerLog
from state.commit.protocols import KafkaAccess
from state.errors import ChangelogMismatchError, CheckpointMismatchError
from state.kafka.admin import KafkaAdmin, wait_until_decided
from state.kafka.connection import RightsProbe
from state.kafka.consumers import RecordSampler
from state.kafka.topics import TopicPartition
from state.restore.snapshot_location import open_location
from state.tables.files import check_owner
from streams.application.instances import check_group_is_free
from streams.application.markers import MarkerAccess, newest_markers
from streams.application.owned_topics import described_repartitions, local_folder, own_manifest, write_manifest
from streams.application.placements import Placements
from streams.application.prepare import (
    Application,
    PreparedSub,
    ensure_internal_topics,
    has_committed,
    kafka_of,
    plan_application,
)
from streams.application.rescale.plan import check_no_rescale
from streams.application.reset import check_no_reset
from streams.application.rights import check_created, check_rights, needed_rights
from streams.checkpoint.compare import (
    Markers,
    SubIdentity,
    check_checkpoint,
    check_program,
    check_topic,
    lost_commits,
    misfit,
    oversized,
    runs_live,
)
from streams.checkpoint.files import (
    LIVE,
    Checkpoint,
    CheckpointFiles,
    LocalFiles,
    confirmed_end,
    is_local,
    read_checkpoint,
    write_first_batch,
)
from streams.cluster.admin import check_reachable
from streams.config import StreamsConfig
from streams.engine.source.log import LiveLog, now_ms
from streams.engine.source.offsets import FirstBatch, SourceOffsets
from streams.engine.source.pauses import Pauses, read_pauses
from streams.engine.source.planner import BatchPlanner
from streams.engine.source.sampling import Positions, ReadRecords, Sampled
from streams.engine.source.topics import SourceTopics
from streams.errors import ConfigError, DamagedCheckpointError, TopologyMismatchError
from streams.topology.diff import REFUSED, StateEffect, compare_plan, unreadable_topics
from streams.topology.graph import InternalTopic
from streams.topology.manifest import plan_manifest
from streams.topology.plan import Plan
from streams.topology.planning.sub_topologies import possible_names
from streams.topology.topology import Topology

_log = logging.getLogger(__name__)


def check_start(application: Application, admin: KafkaAdmin, log: MarkerLog) -> None:
    """Refuses a start that would damage the application's state or lose input.

    Raises:
        StreamsError: A reset or rescale is unfinished, or the state belongs to another program, application or number of tasks.
    """
    plan = application.plan
    # Also under the names that its sub-topologies had before repartition topics were added.
    check_no_rescale(plan.application_id, possible_names(plan.topology.sources()), admin)
    check_may_continue(application, admin, log)
    check_tasks(application, admin)


def check_may_continue(application: Application, admin: KafkaAdmin, log: MarkerLog) -> None:
    """Checks that the program may continue with the application's state, without comparing the number of tasks.

    Raises:
        ResetUnfinishedError: An unfinished reset has deleted a part of the state.
        TopologyMismatchError: The state was written by a program with another structure.
        ChangelogMismatchError: A commits topic belongs to another application.
        CheckpointMismatchError: The checkpoint belongs to another application.
    """
    config = application.config
    check_no_reset(config.application_id, config.checkpoint_dir)
    check_commits_owner(application.plan, admin, log)
    kept = own_manifest(config)
    if kept is not None and has_committed(kept["sub_topologies"], config.application_id, admin):
        check_structure(application.plan, kept)
        check_readable(application, kept, admin)
        check_all_read(application, kept, admin)


def check_tasks(application: Application, admin: KafkaAdmin) -> None:
    """Checks that the state has the same number of tasks as this start of the application."""
    app = application.config.application_id
    tasks = {commits_topic(app, prepared.sub.name): prepared.tasks for prepared in application.subs}
    for topic, info in admin.describe_topics(tasks).items():
        places = [(topic, partition) for partition in range(info.partitions)]
        if info.partitions != tasks[topic] and any(admin.end_offsets(places).values()):
            raise ChangelogMismatchError(
                topic,
                f"the state in Kafka has {info.partitions} tasks, but the application would run with {tasks[topic]}",
                f"nothing was written; `streams rescale MODULE:TOPOLOGY -a {app} --tasks {tasks[topic]}` moves the state to that "
                f"number; or keep tasks={info.partitions}",
            )


def check_commits_owner(plan: Plan, admin: KafkaAdmin, log: MarkerLog) -> None:
    """Checks that the commits topics belong to this application, as far as their markers show."""
    app = plan.application_id
    topics = [commits_topic(app, sub.name) for sub in plan.sub_topologies]
    for topic, info in admin.describe_topics(topics).items():
        # One marker is enough: no application commits to a topic with another application's markers.
        marker = next(newest_markers(log, topic, range(info.partitions)), None)
        if marker is not None and marker.application_id not in ("", app):
            raise ChangelogMismatchError(
                topic,
                f"it holds commits of the application {marker.application_id!r}, which has a sub-topology of the same full "
                f"name as one of {app!r}; both would write to it",
                f"nothing was written; give this application an id that {marker.application_id!r} does not begin with",
            )


def check_structure(plan: Plan, kept: Mapping[str, Any]) -> None:
    """Checks that the program may continue with the state of the described one, and logs changes that ask the user to act."""
    changes = compare_plan(kept, plan)
    against = [change for change in changes if change.refused and not change.depends]
    if against:
        reasons = "; ".join(f"{one.where}: {one.what} {one.says.removesuffix(f'. {REFUSED}')}" for one in against)
        raise TopologyMismatchError(
            f"the state of {plan.application_id} was written by another topology, described in topology.json in the checkpoint's "
            f"folder: {reasons}. {REFUSED}. Nothing was written. `streams diff` shows all differences."
        )
    for change in changes:
        if change.severity is not StateEffect.SAFE and not change.refused:
            _log.warning("%s: %s: %s %s.", plan.application_id, change.where, change.what, change.says)


def check_readable(application: Application, kept: Mapping[str, Any], admin: KafkaAdmin) -> None:
    """Checks that the program can read the records that wait in its repartition topics."""
    app = application.config.application_id
    changed = unreadable_topics(kept, plan_manifest(application.plan, sorted(kept["sub_topologies"])))
    topics = {f"{app}-{name}": why for name, why in changed.items()}
    if waiting := sorted(application.unread(admin, topics)):
        raise TopologyMismatchError(
            f"{waiting[0]}: the old program of {app} wrote records there that this one cannot read: {topics[waiting[0]]}. "
            f"Nothing was written. Give a new field a default, or let the old program run until its lag is 0, then start this one."
        )


def check_all_read(application: Application, kept: Mapping[str, Any], admin: KafkaAdmin) -> None:
    """Checks that all records in repartition topics which the new program no longer has were read."""
    config = application.config
    app = config.application_id
    gone = described_repartitions(kept, app) - application.plan.repartition_topics.keys()
    sinks = {InternalTopic(name).topic_name(app): name for name in kept.get("lake_sinks", ())}
    unread = application.unread(admin, gone, _confirmed(config.checkpoint_dir, sinks))
    if unread:
        dropped = ", ".join(
            f"`streams reset {app} --drop-sink {sinks[topic]}`" for topic in sorted(unread & sinks.keys())
        )
        raise TopologyMismatchError(
            f"{', '.join(sorted(unread))}: the old program of {app} wrote records there that it has not read yet, and this one "
            f"does not have the topic, so they would be lost. Nothing was written. Let the old program run until its lag is 0, "
            f"then start this one{f'; or give up what is left there with {dropped}' if dropped else ''}."
        )


def _confirmed(checkpoint_dir: str, sinks: Mapping[str, str]) -> dict[TopicPartition, int]:
    """The ends of the batches that foreach_batch functions have received, by the checkpoint: old versions noted none in Kafka."""
    files = LocalFiles(checkpoint_dir)
    ends = {topic: confirmed_end(files, name, topic) for topic, name in sinks.items() if is_local(checkpoint_dir)}
    return {(topic, n): at for topic, end in ends.items() if end for n, at in enumerate(end.offsets)}


# --- Checkpoints and commits topics must belong together
#
# The check changes only two things: it saves the first position of a new query next to its checkpoint, and takes back a logged
# micro-batch that is too large and that no task has committed.


@dataclass(frozen=True)
class Findings:
    """The result of the check for a sub-topology.

    Attributes:
        checkpoint: The contents of its checkpoint; empty if the checkpoint is damaged.
        wrong: Why the checkpoint cannot be used; None if it can.
    """

    checkpoint: Checkpoint
    markers: Markers
    wrong: CheckpointMismatchError | None


@dataclass(frozen=True)
class Preflight:
    """The comparison of an application's checkpoints with its commits topics.

    Attributes:
        kafka: Reads and writes logs; None: the real cluster of the settings.
        sample: Reads a few records at given places; None: from the cluster of the settings.
    """

    application: Application
    files: CheckpointFiles
    admin: KafkaAdmin
    say: Callable[[str], None]
    kafka: KafkaAccess | None = None
    until_decided: Callable[[KafkaAdmin, Iterable[TopicPartition], float], object] = wait_until_decided
    sample: ReadRecords | None = None

    def run(self) -> dict[str, FirstBatch]:
        """Checks every sub-topology; nothing is changed before all of them pass.

        Raises:
            CheckpointMismatchError: A checkpoint does not match; the message says what was found and what to do.
            StreamsError: A first position cannot be determined: a topic is missing, or has no initial position.
        """
        checked = [(prepared, self.check(prepared)) for prepared in self.application.subs]
        firsts = {prepared.sub.name: self._first(prepared, found) for prepared, found in checked}
        return {name: first for name, first in firsts.items() if first is not None}

    def check(self, prepared: PreparedSub) -> Findings:
        """Compares one sub-topology's checkpoint with its markers.

        Raises:
            CheckpointMismatchError: Checkpoint and markers do not belong together.
        """
        found = self.inspect(prepared)
        if found.wrong is not None:
            raise found.wrong
        return found

    def inspect(self, prepared: PreparedSub) -> Findings:
        """Compares like `check`, but returns an error that a new checkpoint would resolve instead of raising it.

        Raises:
            CheckpointMismatchError: Another program has written the state, or the commits topic has lost markers.
        """
        sub, access = self.identity(prepared), self.markers(prepared)
        markers = access.read() if self.admin.describe_topics([access.topic]) else {}
        check_program(sub, markers)
        try:
            checkpoint = read_checkpoint(self.files, sub.name, {m.batch_id for m in markers.values() if m})
        except DamagedCheckpointError as error:
            return Findings(Checkpoint(), markers, _damaged(sub, markers, error))
        wrong = None
        try:
            check_checkpoint(sub, checkpoint, markers)
        except CheckpointMismatchError as error:
            wrong = error
        if all(marker is None or marker.query_id == checkpoint.query_id for marker in markers.values()):
            self._check_topic(sub, access, checkpoint, markers)
            self._check_commits_of_live(prepared, checkpoint, markers)
        return Findings(checkpoint, markers, wrong)

    def _check_topic(self, sub: SubIdentity, access: MarkerAccess, checkpoint: Checkpoint, markers: Markers) -> None:
        if self.application.config.on_lost_offsets != "fail":
            # Lost records make no task commit, and nothing records which ones were lost.
            return
        try:
            check_topic(sub, checkpoint, markers)
        except CheckpointMismatchError:
            # The last commits of an earlier run may not be readable yet.
            self.until_decided(self.admin, access.places(), self.application.decide_s)
            check_topic(sub, checkpoint, access.read())

    def identity(self, prepared: PreparedSub) -> SubIdentity:
        config, sub = self.application.config, prepared.sub
        placement = None if prepared.placement is None else prepared.placement.value
        return SubIdentity(config.application_id, sub.name, prepared.tasks, sub.topology_hash, placement)

    def markers(self, prepared: PreparedSub) -> MarkerAccess:
        return MarkerAccess(self.kafka or kafka_of(self.application.config), self.identity(prepared))

    def _check_commits_of_live(self, prepared: PreparedSub, checkpoint: Checkpoint, markers: Markers) -> None:
        """Compares live tasks' markers with the consumer group's positions, committed together with them; Spark logs neither.

        Raises:
            CheckpointMismatchError: A task has read records, but the commits topic has no marker for them.
        """
        sub, app = prepared.sub, self.application.config.application_id
        without = [task for task in range(prepared.tasks) if markers.get(task) is None]
        if not without or self.files.read(f"{sub.name}/{LIVE}") is None:
            return
        read = self.admin.group_offsets(app, [(topic, task) for topic in sub.topics for task in without])
        begun = SourceOffsets({}) if checkpoint.first is None else checkpoint.first.start
        for (topic, task), at in sorted(read.items()):
            if at > begun.of(topic, task):
                known = f"the consumer group has read {topic}-{task} up to offset {at}"
                raise lost_commits(self.identity(prepared), task, known)

    def sources(self, prepared: PreparedSub) -> SourceTopics:
        """The topics that a sub-topology reads, as they are in Kafka."""
        return SourceTopics(self.admin, self.application.source_spec(prepared.sub), now_ms)

    def _first(self, prepared: PreparedSub, found: Findings) -> FirstBatch | None:
        """Where a sub-topology's first micro-batch begins; decided now if nothing is read yet."""
        planner, checkpoint = self._planner(prepared), found.checkpoint
        taken_back = take_back(
            self.files, prepared.sub.name, checkpoint, planner.limit, self.markers(prepared), self.say
        )
        first = checkpoint.first
        if first is not None and (first.end is not None or first.fixed or taken_back == 0 or runs_live(found.markers)):
            return first
        if checkpoint.logged < 0:
            first = FirstBatch(planner.initial())
            write_first_batch(self.files, prepared.sub.name, first)
        return first

    def _planner(self, prepared: PreparedSub) -> BatchPlanner:
        def read(at: Positions, end: Positions) -> Mapping[TopicPartition, Sequence[Sampled]]:
            with closing(RecordSampler(self.application.config.client)) as sampler:
                return sampler.sample(at, end)

        spec = self.application.source_spec(prepared.sub)
        return BatchPlanner(self.admin, spec, self.sample or read, now_ms=now_ms)


def take_back(
    files: CheckpointFiles,
    name: str,
    checkpoint: Checkpoint,
    limit: Callable[[SourceOffsets, SourceOffsets], int],
    access: MarkerAccess,
    say: Callable[[str], None],
) -> int | None:
    """Takes back the plan of a logged micro-batch that is too large, unless a task has committed it."""
    found = oversized(checkpoint, limit)
    if found is None:
        return None
    digest = checkpoint.digest(found.batch)
    # Fenced, so that a task that is about to commit the micro-batch can no longer do so.
    markers = access.fenced()
    done = sorted(task for task, marker in markers.items() if marker is not None and marker.batch == digest)
    if done:
        say(
            f"{name}: an earlier run planned {found}. It cannot be planned again, because task {done[0]} has committed it. If it "
            "runs out of memory, give the workers more; if it takes too long, raise transaction_timeout_ms. The next one is "
            "within the limits"
        )
        return None
    aside = f"{name}/taken-back/{found.batch}-{int(time.time() * 1000)}"
    if found.batch == 0 and files.names(f"{name}/state"):
        # Spark created this folder when the query began, and does not start a query where state already exists. It is empty of
        # tasks' state.
        files.move(f"{name}/state", f"{aside}/state")
    files.move(f"{name}/offsets/{found.batch}", f"{aside}/offsets")
    say(f"{name}: an earlier run planned {found}. No task has committed it, so it is planned again")
    return found.batch


def _damaged(sub: SubIdentity, markers: Markers, error: DamagedCheckpointError) -> CheckpointMismatchError:
    what = f"the checkpoint is damaged: {error}"
    if any(markers.values()):
        return misfit(sub, what)
    return misfit(sub, what, f"No task has ever committed: delete the checkpoint's folder {sub.name} and start again.")


# --- The whole start


def check_places(config: StreamsConfig) -> None:
    """Refuses folders that cannot work; asks no broker.

    Raises:
        ConfigError: The folder of snapshots cannot be opened, or a folder belongs to somebody else or cannot be written.
    """
    open_location(config.snapshot_dir)
    for setting, folder in (("state_dir", config.state_dir), ("checkpoint_dir", local_folder(config.checkpoint_dir))):
        if folder is not None:
            check_owner(folder)
            _check_writable(config, setting, folder)


def _check_writable(config: StreamsConfig, setting: str, folder: Path) -> None:
    """Checks that a folder can be written, with an unnamed file in it or in its nearest parent, which leaves no trace."""
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        base = config.base_dir.absolute()
        name = f"base_dir ({base})" if base in folder.absolute().parents else setting
        raise ConfigError(
            f"{name}: {folder} cannot be used, because no file can be written to {there}: {error.strerror}. Choose another folder, "
            "or let this user write there"
        ) from error


def prepare_start(
    topology: Topology, config: StreamsConfig, tell_created: Callable[[str], None]
) -> tuple[Application, dict[str, int], Pauses]:
    """Checks the cluster, the application's rights and its earlier commits, and then creates the internal topics.

    Raises:
        StreamsError: The application cannot start; nothing was written, except for new topics, which are empty.
    """
    check_reachable(config.client)
    needed, probe = needed_rights(topology, config), RightsProbe(config.client)
    missing = check_rights(needed, probe, config.client)
    with KafkaAdmin(config.client) as admin:
        # Few records are read here; importing what reads many at once takes longer.
        log = LiveKafka(config.client, config.transaction_timeout_ms, bulk=False)
        application = plan_application(topology, config, admin, log)
        check_start(application, admin, log)
        check_group_is_free(config)
        if functions := Placements(application, admin, log).disagreeing():
            application = plan_application(topology, config, admin, log, functions)
        application = Placements(application, admin, log).found()
        counts = ensure_internal_topics(application, admin, tell_created)
        check_created(needed, missing, probe, config.client)
        pauses = read_pauses(LiveLog(config.client, admin), config.application_id)
    write_manifest(application.plan, config.checkpoint_dir, application.placements)
    return application, counts, pauses
