"""A rescale in memory: that of production, over the simulated Kafka."""

from __future__ import annotations

from collections.abc import Sequence

from streams.application.rescale.plan import UsersChoices
from streams.application.rescale.rescale import RescaleContext, Rescaler, SubRescale
from streams.application.rescale.rows import NobodyListens
from streams.checkpoint.compare import Markers, SubIdentity
from streams.errors import RescaleError
from streams.source.offsets import FirstBatch
from streams.testing.query import DriverQuery
from streams.testing.simulation import SimulatedKafka


class NoFiles:
    """A checkpoint folder without checkpoints: the test driver has its own."""

    def names(self, folder: str) -> list[str]:
        """None."""
        return []

    def read(self, path: str) -> bytes | None:
        """Nothing."""
        return None

    def write(self, path: str, data: bytes) -> None:
        """Does nothing."""

    def move(self, path: str, to: str) -> None:
        """Does nothing."""

    def delete(self, folder: str) -> None:
        """Does nothing."""


def rescaler_of(
    queries: Sequence[DriverQuery], application_id: str, kafka: SimulatedKafka, tasks: int, choices: UsersChoices
) -> Rescaler:
    """The rescale of some queries, or of what an interrupted one has left to do.

    Args:
        queries: The queries, of which none is running.
        application_id: Their application.
        kafka: The topics.
        tasks: The new number of tasks.
        choices: What the user says.
    """
    at_rest = {query.sub.name: query.at_rest for query in queries}

    def first_of(sub: SubIdentity, markers: Markers) -> FirstBatch:
        offsets = at_rest[sub.name]
        if offsets is None:
            raise RescaleError(f"{sub}: the last micro-batch has failed and is not finished: send a record, or restart")
        return FirstBatch(offsets)

    around = RescaleContext(kafka, kafka, NoFiles(), first_of, choices, NobodyListens())
    subs = []
    for query in queries:
        found = kafka.describe_topics([query.commits_topic]).get(query.commits_topic)
        old = query.tasks if found is None else found.partitions
        subs.append(SubRescale(application_id, query.sub, old, tasks, around))
    return Rescaler(subs)


def rescale(
    queries: Sequence[DriverQuery], application_id: str, kafka: SimulatedKafka, tasks: int, choices: UsersChoices
) -> None:
    """Rescales some queries, which then go on with the new number of tasks; the arguments are those of `rescaler_of`.

    Raises:
        RescaleError: The rescale is refused.
    """
    rescaler = rescaler_of(queries, application_id, kafka, tasks, choices)
    moved = {sub.sub.name for sub in rescaler.waiting}
    rescaler.run()
    for query in queries:
        # A query that has the number of tasks although it was not moved now was moved before an interruption.
        if query.sub.name in moved or query.tasks != tasks:
            query.rescaled(tasks)
