"""Whether a start of the program would be accepted, before it creates anything."""

from __future__ import annotations

from collections.abc import Iterator

from state.changelog.topics import pauses_topic, rescale_topic
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
from streams.application.rescale.notes import RescaleNotes, check_no_rescale
from streams.application.reset_checkpoint import check_no_reset
from streams.application.topology_manifest import FILE
from streams.config.durations import age_in_words
from streams.errors import RescaleUnfinishedError, ResetUnfinishedError, TopologyMismatchError
from streams.source.pauses import WHOLE, pauses_in


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


def under_way(inspection: Inspection) -> bool:
    """Whether a rescale or a reset was begun and has not come to its end."""
    names = [sub.name for sub in inspection.application.plan.sub_topologies]
    try:
        check_no_rescale(inspection.app, names, inspection.admin)
        check_no_reset(inspection.app, inspection.config.checkpoint_dir)
    except (RescaleUnfinishedError, ResetUnfinishedError):
        return True
    return False


def pauses(inspection: Inspection) -> Iterator[Finding]:
    """Looks for pauses, which last until somebody ends them: nothing that waits for them is lost."""
    place = (pauses_topic(inspection.app), 0)
    if place[0] not in inspection.admin.describe_topics([place[0]]):
        return
    begin, end = inspection.kafka.begin_offset(place), inspection.kafka.end_offsets([place])[place]
    for name, since_ms in sorted(pauses_in(inspection.kafka.read(*place, begin, end)).items()):
        what = inspection.app if name == WHOLE else "this sub-topology"
        yield Finding(
            Severity.NOTE,
            f"{what} is paused for {age_in_words(inspection.now_ms() - since_ms)}: it reads nothing, also after a restart, until "
            "it is resumed",
            f"streams resume {inspection.app}" + ("" if name == WHOLE else f" --sub-topology {name}"),
            Place(sub_topology=name or None),
        )


def refused(inspection: Inspection, error: StreamsError) -> Finding:
    """The finding for an error with which a start ends."""
    place, command = Place(), None
    if isinstance(error, TopicNotFoundError):
        place, command = Place(topic=error.topic), f"streams topic create {error.topic} --partitions N"
    elif isinstance(error, ResetUnfinishedError):
        command = f"streams reset {inspection.app}"
    elif isinstance(error, RescaleUnfinishedError):
        command = inspection.command("rescale", f"--tasks {_rescaled_to(inspection)}")
    elif isinstance(error, TopologyMismatchError):
        command = f"streams diff {inspection.config.checkpoint_dir}/{FILE} {inspection.target}"
    elif isinstance(error, ChangelogMismatchError):
        place = Place(topic=error.topic)
    elif isinstance(error, CheckpointMismatchError):
        command = inspection.command("run", "--set checkpoint_dir=FOLDER")
    return Finding(Severity.ERROR, str(error), command, place)


def _rescaled_to(inspection: Inspection) -> str:
    """The number of tasks to which an unfinished rescale leads; `N` if its notes do not say."""
    for sub in inspection.application.plan.sub_topologies:
        topic = rescale_topic(inspection.app, sub.name)
        notes = RescaleNotes(inspection.kafka, inspection.admin, topic, topic).read()
        if notes is not None:
            return str(notes.plan.new)
    return "N"
