"""What the rescale of a sub-topology works with: Kafka, the checkpoint folder, and what the user says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from state.commit.protocols import KafkaAccess
from streams.application.rescale.notes import TopicAdmin
from streams.application.rescale.staging import Listener
from streams.application.rescale.states import UsersChoices
from streams.checkpoint.compare import Markers, SubIdentity
from streams.checkpoint.files import CheckpointFiles
from streams.source.offsets import FirstBatch

FirstOf = Callable[[SubIdentity, Markers], "FirstBatch | None"]
"""Where the new checkpoint begins; refuses state that is not at rest."""


@dataclass(frozen=True)
class Surroundings:
    """What a rescale works with.

    Attributes:
        admin: Creates and deletes topics.
        kafka: Reads and writes records.
        files: The application's checkpoint folder.
        first_of: See `FirstOf`.
        choices: What the user says.
        listener: Is told of the progress.
        replication: Replication factor of topics; -1: the broker's default.
    """

    admin: TopicAdmin
    kafka: KafkaAccess
    files: CheckpointFiles
    first_of: FirstOf
    choices: UsersChoices
    listener: Listener
    replication: int = -1
