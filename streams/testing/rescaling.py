"""A rescale in memory: that of production, over the simulated Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from state.kafka.topics import TopicInfo, TopicSpec
from streams.application.rescale.rescaler import Rescaler
from streams.application.rescale.staging import NobodyListens
from streams.application.rescale.states import UsersChoices
from streams.application.rescale.sub_rescale import SubRescale
from streams.application.rescale.surroundings import Surroundings
from streams.checkpoint.compare import Markers, SubIdentity
from streams.errors import RescaleError
from streams.source.offsets import FirstBatch
from streams.testing.query import DriverQuery
from streams.testing.simulation import Event, SimulatedKafka


class SimulatedAdmin:
    """The admin client of the simulated Kafka; each creation and deletion of a topic is an event.

    Args:
        kafka: The simulated Kafka.
    """

    def __init__(self, kafka: SimulatedKafka) -> None:
        self._kafka = kafka

    def describe_topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        """Those of these topics that exist."""
        return self._kafka.describe_topics(names)

    def create_topics(self, topics: Iterable[TopicSpec]) -> None:
        """Creates topics; existing ones stay."""
        for spec in topics:
            self._kafka.hook.before(Event("create", spec.name))
            self._kafka.create_topic(spec.name, spec.partitions, spec.config.get("cleanup.policy", "delete"))

    def delete_topics(self, names: Iterable[str]) -> None:
        """Deletes topics; missing ones are ignored."""
        for name in names:
            self._kafka.hook.before(Event("delete topic", name))
            self._kafka.delete_topic(name)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """No settings: the simulated Kafka has none that matter here."""
        return {}


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
    admin = SimulatedAdmin(kafka)
    at_rest = {query.sub.name: query.at_rest for query in queries}

    def first_of(sub: SubIdentity, markers: Markers) -> FirstBatch:
        offsets = at_rest[sub.name]
        if offsets is None:
            raise RescaleError(f"{sub}: the last micro-batch has failed and is not finished: send a record, or restart")
        return FirstBatch(offsets)

    around = Surroundings(admin, kafka, NoFiles(), first_of, choices, NobodyListens())
    subs = []
    for query in queries:
        found = admin.describe_topics([query.commits_topic]).get(query.commits_topic)
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
