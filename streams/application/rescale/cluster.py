"""A rescale on a real cluster: the plan of `streams rescale`, from the application's settings and from Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from state.commit.live import LiveKafka
from state.errors import CheckpointMismatchError
from state.kafka.admin import DECIDE_S, KafkaAdmin, wait_until_decided
from state.kafka.placement import Placement
from state.restore.directory import StateDirectory
from state.restore.restorer import RestoreListener
from streams.application.markers import MarkerAccess
from streams.application.pausing import Pausing
from streams.application.prepare import PreparedSub, kafka_of, plan_application
from streams.application.rescale.plan import UsersChoices, first_batch
from streams.application.rescale.replan import Replan, replan, states_of, unfinished_replan
from streams.application.rescale.rescale import RescaleContext, Rescaler, SubRescale, opened
from streams.application.start import check_may_continue
from streams.checkpoint.compare import Markers, SubIdentity, check_checkpoint, check_topic
from streams.checkpoint.files import CheckpointFiles, read_checkpoint
from streams.config import StreamsConfig
from streams.engine.source.log import LiveLog
from streams.engine.source.offsets import FirstBatch
from streams.engine.source.pauses import LeftLive, read_pauses
from streams.errors import RescaleError
from streams.topology.topology import Topology


@dataclass(frozen=True)
class LiveRescale:
    """A rescale on a real cluster."""

    config: StreamsConfig
    admin: KafkaAdmin
    files: CheckpointFiles
    listener: RestoreListener | None

    def rescaler(
        self, topology: Topology, tasks: int | None, choices: UsersChoices, placement: Placement | None = None
    ) -> Rescaler:
        """The rescale of a program's state.

        Args:
            topology: The program.
            tasks: The new number of tasks; None: as many as now.
            choices: The user's choices.
            placement: The new placement of sub-topologies that read topics of other programs; None: the current one.

        Raises:
            StreamsError: The program is not the one that wrote the state, or another rescale is unfinished.
        """
        config, kafka = self.config, self._kafka
        if unfinished_replan(topology, config.application_id, self.admin, kafka):
            raise RescaleError(
                f"{config.application_id}: a rescale to another plan was started but not finished. Finish it with `streams "
                f"rescale TARGET`, without --tasks and --placement; or, as long as nothing was replaced, undo it with --abort"
            )
        # The number in the settings may already be the new one; the topics have the current one.
        application = plan_application(topology, config.model_copy(update={"tasks": None}), self.admin, kafka)
        check_may_continue(application, self.admin, kafka)
        states = states_of(application, self.admin, kafka)

        def of(prepared: PreparedSub) -> SubRescale:
            sub, (count, before) = prepared.sub, states[prepared.sub.name]
            # Without commits there is nothing to move: the next start creates the topics, and looks for the placement.
            old = count or tasks or prepared.tasks
            asked = placement if application.from_outside(sub) else None
            return SubRescale(config.application_id, sub, old, tasks or old, self._context(choices), before, asked)

        return Rescaler([of(prepared) for prepared in application.subs])

    def to_plan(self, topology: Topology, choices: UsersChoices) -> tuple[Rescaler, Replan]:
        """The rescale to the plan, the numbers of tasks and the placements that a first start would choose today.

        Raises:
            StreamsError: The program is not the one that wrote the state, or another rescale is unfinished.
        """
        config, kafka = self.config, self._kafka
        begun = unfinished_replan(topology, config.application_id, self.admin, kafka)
        known = tuple(one.record for one in self._left_live().values() if one.record is not None)
        plan = replan(topology, config, self.admin, kafka, begun, known)
        if not begun:
            check_may_continue(plan.before, self.admin, kafka)
        rescaler = plan.rescaler(states_of(plan.before, self.admin, kafka), self._context(choices))
        return replace(rescaler, accept=partial(plan.accept, config.checkpoint_dir)), plan

    def _left_live(self) -> Mapping[str, LeftLive]:
        return read_pauses(LiveLog(self.config.client, self.admin), self.config.application_id).left_live

    def _context(self, choices: UsersChoices) -> RescaleContext:
        replication = self.config.replication_factor
        return RescaleContext(self.admin, self._kafka, self.files, self._first_of, choices, self.listener, replication)

    @property
    def _kafka(self) -> LiveKafka:
        return kafka_of(self.config)

    def forget_left_live(self) -> None:
        """Forgets why sub-topologies have left live execution."""
        if left := self._left_live():
            config = self.config
            Pausing(config.application_id, config.client, config.replication_factor).left_live(dict.fromkeys(left))

    def forget_local_state(self, tasks: Mapping[str, int], say: Callable[[str], None]) -> None:
        """Deletes this machine's stores of tasks that no longer exist. All others belong to another state now, and are restored.

        Args:
            tasks: Sub-topology -> the number of its tasks now; 0: it no longer exists.
            say: Called with what was deleted.
        """
        for directory in StateDirectory(self.config.state_dir).tasks(self.config.application_id):
            if directory.task >= tasks.get(directory.sub_topology, directory.task + 1):
                directory.wipe()
                say(
                    f"deleted the local state of task {directory.task} of {directory.sub_topology}, which no longer exists"
                )

    def _first_of(self, sub: SubIdentity, markers: Markers) -> FirstBatch | None:
        """Where the new checkpoint begins, after a check that the old one matches the markers."""
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
