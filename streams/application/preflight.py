"""The driver's check before the first micro-batch of a run: checkpoints and commits topics must belong together.

The check changes two things only: the first position of a new query is saved beside its checkpoint, and a logged
micro-batch that is too large, and that no task has committed, is taken back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from state.commit.live import LiveKafka
from state.commit.protocols import KafkaAccess
from state.errors import CheckpointMismatchError
from state.kafka.admin import KafkaAdmin
from state.kafka.sampler import RecordSampler
from state.kafka.transactions import wait_until_decided
from streams.application.markers import MarkerAccess
from streams.application.prepare import Application, PreparedSub
from streams.checkpoint.compare import Markers, SubIdentity, check_checkpoint, check_program, check_topic, misfit
from streams.checkpoint.files import CheckpointFiles
from streams.checkpoint.log import Checkpoint, read_checkpoint, write_first_batch
from streams.checkpoint.oversized import Limits, oversized
from streams.errors import DamagedCheckpointError
from streams.source.clock import now_ms
from streams.source.offsets import FirstBatch
from streams.source.planner import BatchPlanner
from streams.source.sampling import Positions, ReadRecords, Record, TopicPartition


@dataclass(frozen=True)
class Findings:
    """The result of the check for a sub-topology.

    Attributes:
        checkpoint: The contents of its checkpoint; empty if the checkpoint is damaged.
        markers: The last markers of its tasks.
        wrong: Why the checkpoint cannot be used; None if it can.
    """

    checkpoint: Checkpoint
    markers: Markers
    wrong: CheckpointMismatchError | None


@dataclass(frozen=True)
class Preflight:
    """The comparison of an application's checkpoints with its commits topics.

    Attributes:
        application: The application that is about to run.
        files: The application's checkpoint folder.
        admin: Asks Kafka.
        say: Shows a message to the user.
        kafka: Reads and writes logs; None: the real cluster of the settings.
        until_decided: Waits until transactions are decided, for readers too.
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
        firsts = {prepared.sub.name: self._first(prepared, checkpoint) for prepared, checkpoint in checked}
        return {name: first for name, first in firsts.items() if first is not None}

    def check(self, prepared: PreparedSub) -> Checkpoint:
        """Compares one sub-topology's checkpoint with its markers.

        Raises:
            CheckpointMismatchError: Checkpoint and markers do not belong together.
        """
        found = self.inspect(prepared)
        if found.wrong is not None:
            raise found.wrong
        return found.checkpoint

    def inspect(self, prepared: PreparedSub) -> Findings:
        """Like `check`, but returns an error that a new checkpoint would resolve, instead of raising it.

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
        return Findings(checkpoint, markers, wrong)

    def _check_topic(self, sub: SubIdentity, access: MarkerAccess, checkpoint: Checkpoint, markers: Markers) -> None:
        if self.application.config.on_lost_offsets != "fail":
            # Lost records make no task commit, and which were lost is recorded nowhere.
            return
        try:
            check_topic(sub, checkpoint, markers)
        except CheckpointMismatchError:
            # The last commits of an earlier run may not be readable yet.
            self.until_decided(self.admin, access.places(), self.application.decide_s)
            check_topic(sub, checkpoint, access.read())

    def identity(self, prepared: PreparedSub) -> SubIdentity:
        """The identity of a sub-topology."""
        config, sub = self.application.config, prepared.sub
        return SubIdentity(config.application_id, sub.name, prepared.tasks, sub.topology_hash)

    def markers(self, prepared: PreparedSub) -> MarkerAccess:
        """The commits topic of a sub-topology."""
        config = self.application.config
        kafka = self.kafka or LiveKafka(config.client, config.transaction_timeout_ms, bulk=config.bulk_io)
        return MarkerAccess(kafka, self.identity(prepared))

    def _first(self, prepared: PreparedSub, checkpoint: Checkpoint) -> FirstBatch | None:
        """Where a sub-topology's first micro-batch begins; decided now if none is logged yet."""
        planner = self._planner(prepared)
        taken_back = take_back(self.files, prepared.sub.name, checkpoint, planner, self.markers(prepared), self.say)
        first = checkpoint.first
        if first is not None and (first.end is not None or first.fixed or taken_back == 0):
            return first
        if checkpoint.logged < 0:
            first = FirstBatch(planner.initial())
            write_first_batch(self.files, prepared.sub.name, first)
        return first

    def _planner(self, prepared: PreparedSub) -> BatchPlanner:
        def read(at: Positions, end: Positions) -> Mapping[TopicPartition, Sequence[Record]]:
            with closing(RecordSampler(self.application.config.client)) as sampler:
                return sampler.sample(at, end)

        spec = self.application.source_spec(prepared.sub)
        return BatchPlanner(self.admin, spec, self.sample or read, now_ms=now_ms)


def take_back(
    files: CheckpointFiles,
    name: str,
    checkpoint: Checkpoint,
    limits: Limits,
    access: MarkerAccess,
    say: Callable[[str], None],
) -> int | None:
    """Takes back the plan of a logged micro-batch that is too large, unless a task has committed it."""
    found = oversized(checkpoint, limits)
    if found is None:
        return None
    digest = checkpoint.digest(found.batch)
    # Fenced, so that a task which is still about to commit the micro-batch cannot do so afterwards.
    markers = access.fenced()
    done = sorted(task for task, marker in markers.items() if marker is not None and marker.batch == digest)
    if done:
        say(
            f"{name}: an earlier run has planned {found}. It cannot be planned anew, for task {done[0]} has committed it. "
            "If it fails for want of memory, give the workers more; if it takes too long, raise transaction_timeout_ms; "
            "the limits hold again for the next one"
        )
        return None
    aside = f"{name}/taken-back/{found.batch}-{int(time.time() * 1000)}"
    if found.batch == 0 and files.names(f"{name}/state"):
        # Spark created this folder when the query began, and starts no query where state exists. It is empty of tasks' state.
        files.move(f"{name}/state", f"{aside}/state")
    files.move(f"{name}/offsets/{found.batch}", f"{aside}/offsets")
    say(f"{name}: an earlier run has planned {found}. No task has committed it: it is planned anew")
    return found.batch


def _damaged(sub: SubIdentity, markers: Markers, error: DamagedCheckpointError) -> CheckpointMismatchError:
    what = f"the checkpoint is damaged: {error}"
    if any(markers.values()):
        return misfit(sub, what)
    return misfit(sub, what, f"No task has ever committed: delete the checkpoint's folder {sub.name}, to begin anew.")
