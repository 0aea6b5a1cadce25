"""The notes of a rescale in Kafka, in a topic that exists until the rescale has come to its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import orjson

from state.changelog.topics import rescale_topic
from state.commit.guards import fenced_producer
from state.commit.marker import CommitMarker
from state.commit.protocols import KafkaAccess
from state.errors import MarkerFormatError
from state.kafka.topics import TopicInfo, TopicSpec
from streams.application.rescale.log_copy import records_of
from streams.application.rescale.plan import Phase, RescalePlan
from streams.errors import RescaleError, RescaleUnfinishedError

STAGING = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Nothing is compacted or expires while a rescale is unfinished, however long that is."""
_PLAN, _MARKER, _FILLED = "plan", "marker-", "filled-"


class TopicAdmin(Protocol):
    """The part of `state.kafka.admin.KafkaAdmin` that a rescale needs."""

    def describe_topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]: ...
    def create_topics(self, topics: Iterable[TopicSpec]) -> None: ...
    def delete_topics(self, names: Iterable[str]) -> None: ...
    def topic_config(self, name: str) -> Mapping[str, str]: ...


def check_no_rescale(application_id: str, sub_topologies: Iterable[str], admin: TopicAdmin) -> None:
    """Refuses a start during a rescale.

    Raises:
        RescaleUnfinishedError: A rescale was begun and not finished.
    """
    topics = [rescale_topic(application_id, name) for name in sub_topologies]
    found = sorted(admin.describe_topics(topics))
    if found:
        raise RescaleUnfinishedError(
            f"a rescale of {application_id} was begun and has not come to its end (topic {found[0]}). Run the same "
            f"`streams rescale` again: it goes on where it stopped; or, as long as nothing was replaced, take it back with "
            f"--abort. Nothing was written."
        )


@dataclass(frozen=True)
class RescaleNotes:
    """The notes on one sub-topology, in a topic of one partition.

    Attributes:
        kafka: The cluster.
        admin: Creates and deletes topics.
        topic: The topic.
        transactional_id: Writes the notes, and everything else of this rescale.
    """

    kafka: KafkaAccess
    admin: TopicAdmin
    topic: str
    transactional_id: str

    def create(self, plan: RescalePlan, replication: int = -1) -> None:
        """Creates the topic, with the plan in it."""
        self.admin.create_topics([TopicSpec(self.topic, 1, {**STAGING, "max.message.bytes": str(2**24)}, replication)])
        self.write({_PLAN: orjson.dumps(plan.to_json())})

    def write(self, notes: Mapping[str, bytes]) -> None:
        """Writes notes in one transaction."""
        producer = fenced_producer(self.kafka, self.transactional_id)
        try:
            producer.begin()
            for name, data in notes.items():
                producer.send(self.topic, 0, name.encode(), data, 0)
            producer.commit()
        finally:
            producer.close()

    def note_phase(
        self, plan: RescalePlan, phase: Phase, markers: Mapping[int, CommitMarker] | None = None
    ) -> RescalePlan:
        """Notes how far the rescale has come, and the new markers once they are known; returns the plan in that phase."""
        plan = replace(plan, phase=phase)
        made = {f"{_MARKER}{task}": marker.to_bytes() for task, marker in (markers or {}).items()}
        self.write({**made, _PLAN: orjson.dumps(plan.to_json())})
        return plan

    def note_filled(self, topic: str, topic_id: str) -> None:
        """Notes that a new topic has all its records."""
        self.write({f"{_FILLED}{topic}": topic_id.encode()})

    def read(self) -> Notes | None:
        """The notes; None if there are none."""
        if self.topic not in self.admin.describe_topics([self.topic]):
            return None
        found: dict[str, bytes] = {}
        for columns in records_of(self.kafka, self.topic, 0):
            found |= zip((key.decode() for key in columns.keys.to_pylist()), columns.values.to_pylist(), strict=True)
        if _PLAN not in found:
            return None
        try:
            return Notes.of(found)
        except (orjson.JSONDecodeError, KeyError, ValueError, MarkerFormatError) as error:
            raise RescaleError(f"the topic {self.topic} holds something else than the notes of a rescale") from error

    def fence(self) -> None:
        """Ends what an earlier run may have left open: transactions are decided before any topic is deleted."""
        fenced_producer(self.kafka, self.transactional_id).close()


@dataclass(frozen=True)
class Notes:
    """The contents of the notes.

    Attributes:
        plan: The plan, in its last phase.
        markers: The new markers; empty before they are known.
        filled: New topic -> its id, for those that have all their records.
    """

    plan: RescalePlan
    markers: Mapping[int, CommitMarker]
    filled: Mapping[str, str]

    @classmethod
    def of(cls, found: Mapping[str, bytes]) -> Notes:
        plan = RescalePlan.from_json(orjson.loads(found[_PLAN]))
        markers = (CommitMarker.from_bytes(data) for name, data in found.items() if name.startswith(_MARKER))
        filled = {name.removeprefix(_FILLED): id_.decode() for name, id_ in found.items() if name.startswith(_FILLED)}
        return cls(plan, {marker.task: marker for marker in markers}, filled)
