"""Reads everything that the doctor examines, each thing once.

Defines its findings: a sentence, a place, and the command that fixes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property
from typing import Any

from state.changelog import commits_topic
from state.commit.marker import CommitMarker
from state.commit.protocols import KafkaAccess
from state.errors import CheckpointMismatchError
from state.kafka.topics import TopicPartition, partitions_of
from streams.application.markers import newest_marker
from streams.application.prepare import Application, PreparedSub, plan_application
from streams.application.start import Preflight
from streams.application.transactions import TransactionsAdmin
from streams.checkpoint.compare import Markers
from streams.checkpoint.files import Checkpoint, CheckpointFiles
from streams.cluster.admin import Survey
from streams.config import StreamsConfig
from streams.topology.topology import Topology


class Severity(str, Enum):
    """How bad a finding is. The values are in order of severity."""

    OK = "ok"
    NOTE = "note"
    """Nothing has to be done."""
    WARNING = "warning"
    """A start succeeds, but data or the guarantees are in danger."""
    ERROR = "error"
    """A start is refused or fails, or data is already lost."""

    @property
    def weight(self) -> int:
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Place:
    """The place that a finding is about; attributes that do not apply are None.

    Attributes:
        offset: The offset in the partition.
    """

    sub_topology: str | None = None
    task: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        named = [(one.name.replace("_", "-"), getattr(self, one.name)) for one in fields(self)]
        return ", ".join(f"{name} {value}" for name, value in named if value is not None)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        command: The command that fixes it, or shows more; None: the text `says` has the remedy, or nothing has to be done.
    """

    severity: Severity
    says: str
    command: str | None = None
    place: Place = Place()

    @classmethod
    def error(cls, says: str, command: str | None = None, place: Place = Place()) -> Finding:
        return cls(Severity.ERROR, says, command, place)

    @classmethod
    def warning(cls, says: str, command: str | None = None, place: Place = Place()) -> Finding:
        return cls(Severity.WARNING, says, command, place)

    @classmethod
    def note(cls, says: str, command: str | None = None, place: Place = Place()) -> Finding:
        return cls(Severity.NOTE, says, command, place)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The findings of one check; a single one of severity `OK` if all is well.

    Attributes:
        findings: At least one.
    """

    check: str
    findings: tuple[Finding, ...]


def worst(results: Iterable[CheckResult]) -> Severity:
    found = (finding.severity for result in results for finding in result.findings)
    return max(found, key=lambda severity: severity.weight, default=Severity.OK)


# --- What the doctor examines: the application, its cluster and its disks, each read once.


@dataclass(frozen=True)
class SubLook:
    """What a sub-topology has left behind.

    Attributes:
        markers: Task -> its last marker.
        checkpoint: Its checkpoint; empty if it is lost or cannot be read.
        wrong: Why the two do not belong together; None if they do.
        adoptable: Whether a new checkpoint would fix that.
    """

    prepared: PreparedSub
    markers: Markers
    checkpoint: Checkpoint
    wrong: CheckpointMismatchError | None
    adoptable: bool

    @property
    def name(self) -> str:
        return self.prepared.sub.name

    @property
    def found(self) -> dict[int, CommitMarker]:
        """The last markers of the tasks that have committed."""
        return {task: marker for task, marker in sorted(self.markers.items()) if marker is not None}

    @property
    def last(self) -> CommitMarker | None:
        """The marker of the last commit of any task."""
        return max(self.found.values(), key=lambda marker: marker.now_ms, default=None)


@dataclass(frozen=True)
class Inspection:
    """An application to examine.

    Attributes:
        target: The user's name for the program on the command line.
        admin: Asks Kafka (`KafkaAdmin`).
        kafka: Reads logs; None: the real cluster of the settings.
        transactions: Asks brokers for open transactions; None: there is no Java, or the jars are missing.
    """

    topology: Topology
    config: StreamsConfig
    target: str
    files: CheckpointFiles
    admin: Any
    survey: Survey
    kafka: KafkaAccess
    transactions: Callable[[], TransactionsAdmin | None] = lambda: None
    pause: Callable[[], None] = lambda: time.sleep(1.0)
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)

    @property
    def app(self) -> str:
        return self.config.application_id

    def command(self, name: str, more: str = "") -> str:
        return f"streams {name} {self.target} -a {self.app}{more and ' ' + more}"

    @cached_property
    def application(self) -> Application:
        """The planned application.

        Raises:
            StreamsError: It cannot be planned on this cluster.
        """
        return plan_application(self.topology, self.config, self.admin)

    @cached_property
    def subs(self) -> tuple[SubLook, ...]:
        preflight = Preflight(self.application, self.files, self.admin, lambda _: None, self.kafka)
        return tuple(self._look(preflight, prepared) for prepared in self.application.subs)

    def _look(self, preflight: Preflight, prepared: PreparedSub) -> SubLook:
        try:
            found = preflight.inspect(prepared)
        except CheckpointMismatchError as error:
            access = preflight.markers(prepared)
            markers = access.read() if self.admin.describe_topics([access.topic]) else {}
            return SubLook(prepared, markers, Checkpoint(), error, adoptable=False)
        return SubLook(prepared, found.markers, found.checkpoint, found.wrong, any(found.markers.values()))

    def has_moved(self, look: SubLook, task: int) -> bool:
        """Whether a task has committed since its marker was read: then the application runs, and being ahead is not a fault."""
        newest = newest_marker(self.kafka, (commits_topic(self.app, look.name), task))
        return newest is not None and newest != look.found[task]

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """The partitions of these topics, as far as the topics exist."""
        return sorted(partitions_of(self.admin.describe_topics(sorted(set(topics)))))

    @property
    def source_topics(self) -> set[str]:
        """The topics that the application reads and does not write itself."""
        internal = self.application.plan.repartition_topics
        return {topic for one in self.application.subs for topic in one.sub.topics if topic not in internal}

    @property
    def output_topics(self) -> set[str]:
        sinks = (sink.topic for one in self.application.subs for sink in one.sub.sinks if sink.topic is not None)
        named = {str(topic) for topic in sinks} - set(self.application.plan.repartition_topics)
        return named | ({self.config.dead_letter_topic} if self.config.dead_letter_topic else set())
