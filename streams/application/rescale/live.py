"""A rescale on a real cluster: what is compared with the program and with Spark's checkpoint before it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from state.changelog.topics import commits_topic
from state.commit.live import LiveKafka
from state.errors import CheckpointMismatchError
from state.kafka.admin import KafkaAdmin
from state.kafka.transactions import DECIDE_S, wait_until_decided
from state.restore.directory import StateDirectory
from streams.application.check_start import check_may_continue
from streams.application.markers import MarkerAccess
from streams.application.prepare import plan_application
from streams.application.rescale.plan import first_batch
from streams.application.rescale.rescaler import Rescaler
from streams.application.rescale.staging import Listener
from streams.application.rescale.states import UsersChoices
from streams.application.rescale.sub_rescale import SubRescale, opened
from streams.application.rescale.surroundings import Surroundings
from streams.checkpoint.compare import Markers, SubIdentity, check_checkpoint, check_topic
from streams.checkpoint.files import CheckpointFiles
from streams.checkpoint.log import read_checkpoint
from streams.config import StreamsConfig
from streams.source.offsets import FirstBatch
from streams.topology.topology import Topology


@dataclass(frozen=True)
class LiveRescale:
    """What a rescale of a real application needs.

    Attributes:
        config: The application's settings.
        admin: Asks Kafka.
        files: The application's checkpoint folder.
        listener: Is told of the progress.
    """

    config: StreamsConfig
    admin: KafkaAdmin
    files: CheckpointFiles
    listener: Listener

    def rescaler(self, topology: Topology, tasks: int, choices: UsersChoices) -> Rescaler:
        """The rescale of a program's state.

        Raises:
            StreamsError: The program is not the one that wrote the state, or another rescale is unfinished.
        """
        config, kafka = self.config, self._kafka
        # The number in the settings may already be the new one; the topics have the present one.
        application = plan_application(topology, config.model_copy(update={"tasks": None}), self.admin)
        check_may_continue(application, self.admin, kafka)
        around = Surroundings(
            self.admin, kafka, self.files, self._first_of, choices, self.listener, config.replication_factor
        )
        app, subs = config.application_id, application.plan.sub_topologies
        found = self.admin.describe_topics([commits_topic(app, sub.name) for sub in subs])

        def present(name: str) -> int:
            info = found.get(commits_topic(app, name))
            # Without commits there is nothing to move: the next start creates the topics.
            return tasks if info is None else info.partitions

        return Rescaler([SubRescale(app, sub, present(sub.name), tasks, around) for sub in subs])

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
