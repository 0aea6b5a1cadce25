"""Whether a start of the program would be accepted, before it creates anything."""

from __future__ import annotations

from collections.abc import Iterator

from state.errors import (
    ChangelogMismatchError,
    CheckpointMismatchError,
    KafkaClientError,
    StreamsError,
    TopicNotFoundError,
)
from streams.application.check_start import check_start
from streams.application.doctor.findings import Finding, Place, Severity
from streams.application.doctor.inspection import Inspection
from streams.application.topology_manifest import FILE
from streams.errors import ResetUnfinishedError, TopologyMismatchError


def plan(inspection: Inspection) -> Iterator[Finding]:
    """Checks that the program can be planned on this cluster: its topics exist and its structure is sound."""
    try:
        _ = inspection.application
    except StreamsError as error:
        if isinstance(error, KafkaClientError) and not isinstance(error, TopicNotFoundError):
            raise
        yield refused(inspection, error)


def start(inspection: Inspection) -> Iterator[Finding]:
    """Checks the program against the state, as a start does."""
    try:
        check_start(inspection.application, inspection.admin, inspection.kafka)
    except StreamsError as error:
        if isinstance(error, KafkaClientError):
            raise
        yield refused(inspection, error)


def refused(inspection: Inspection, error: StreamsError) -> Finding:
    """The finding for an error with which a start ends."""
    place, command = Place(), None
    if isinstance(error, TopicNotFoundError):
        place, command = Place(topic=error.topic), f"streams topic create {error.topic} --partitions N"
    elif isinstance(error, ResetUnfinishedError):
        command = f"streams reset {inspection.app}"
    elif isinstance(error, TopologyMismatchError):
        command = f"streams diff {inspection.config.checkpoint_dir}/{FILE} {inspection.target}"
    elif isinstance(error, ChangelogMismatchError):
        place = Place(topic=error.topic)
    elif isinstance(error, CheckpointMismatchError):
        command = inspection.command("run", "--set checkpoint_dir=FOLDER")
    return Finding(Severity.ERROR, str(error), command, place)
