"""Where the application reads on: positions in the logs, the consumer group, and records that are about to be deleted."""

from __future__ import annotations

from collections.abc import Iterator

from state.errors import OffsetsLostError, TopicRecreatedError
from state.kafka.topics import TopicPartition
from streams.application.doctor.findings import Finding, Place, Severity
from streams.application.doctor.inspection import Inspection, SubLook
from streams.config.durations import age_in_words
from streams.wording import counted

NEARLY = 0.8
"""The part of a retention time after which unread records are in danger."""
_CLOSE = 0.05
"""The part of a log before a position that is still there, below which the position is close to the log's start."""


def positions(inspection: Inspection) -> Iterator[Finding]:
    """Checks that what the checkpoint wants to read is still in the logs."""
    for look in inspection.subs:
        found = inspection.admin.describe_topics(sorted(look.prepared.sub.topics))
        logged = look.checkpoint.offsets.get(look.checkpoint.logged)
        for topic, of in sorted(logged.topics.items()) if logged else ():
            if topic in found and found[topic].topic_id != of.topic_id:
                error = TopicRecreatedError(topic, of.topic_id, found[topic].topic_id)
                yield Finding(
                    Severity.ERROR,
                    str(error),
                    f"streams reset {inspection.app} --dry-run",
                    Place(look.name, topic=topic),
                )
        at = _positions(look)
        places = [place for place in inspection.partitions(look.prepared.sub.topics) if place in at]
        begins, ends = inspection.admin.begin_offsets(places), inspection.admin.end_offsets(places)
        for place in places:
            if not begins[place] <= at[place] <= ends[place]:
                yield _lost(inspection, look, place, at[place], begins[place], ends[place])


def _lost(inspection: Inspection, look: SubLook, place: TopicPartition, at: int, begin: int, end: int) -> Finding:
    policy = inspection.config.on_lost_offsets
    error = OffsetsLostError(place[0], place[1], at, earliest=begin, latest=end)
    return Finding(
        Severity.ERROR if policy == "fail" else Severity.WARNING,
        f"{error}. With on_lost_offsets={policy}, "
        + ("a start fails" if policy == "fail" else f"reading goes on at the {policy} offset"),
        inspection.command("run", "--set on_lost_offsets=earliest"),
        Place(look.name, None, *place, at),
    )


def _positions(look: SubLook) -> dict[TopicPartition, int]:
    """Where the next micro-batch begins: the end of the last confirmed one, or of the logged one if that is not known."""
    checkpoint = look.checkpoint
    done = checkpoint.offsets.get(checkpoint.committed) or checkpoint.offsets.get(checkpoint.logged)
    done = done or (checkpoint.first.start if checkpoint.first else None)
    if done is None:
        return {}
    return {(topic, n): at for topic, of in done.topics.items() for n, at in enumerate(of.offsets)}


def retention(inspection: Inspection) -> Iterator[Finding]:
    """Looks for unread records of the inputs that retention is about to delete."""
    for look in inspection.subs:
        read = _positions(look)
        places = inspection.partitions(inspection.source_topics & set(look.prepared.sub.topics))
        group = inspection.admin.group_offsets(inspection.app, places)
        begins, ends = inspection.admin.begin_offsets(places), inspection.admin.end_offsets(places)
        settings = {topic: inspection.admin.topic_config(topic) for topic in {place[0] for place in places}}
        for place in places:
            at = max(read.get(place, group.get(place, begins[place])), begins[place])
            deletes = "delete" in settings[place[0]].get("cleanup.policy", "delete")
            keep_ms = int(settings[place[0]].get("retention.ms", -1))
            if not deletes or at >= ends[place]:
                continue
            unread = counted(ends[place] - at, "offset")
            if keep_ms > 0:
                now_ms = inspection.now_ms()
                young = inspection.admin.offsets_for_times({place: int(now_ms - NEARLY * keep_ms)})[place]
                if at < young:
                    yield _endangered(
                        inspection,
                        look,
                        place,
                        at,
                        f"{unread} not read yet, and the next one is older than {NEARLY:.0%} of the topic's retention "
                        f"({age_in_words(keep_ms)}): it is deleted soon",
                    )
                    continue
            if begins[place] > 0 and at - begins[place] < _CLOSE * (ends[place] - begins[place]):
                yield _endangered(
                    inspection,
                    look,
                    place,
                    at,
                    f"{unread} not read yet, and the log begins {counted(at - begins[place], 'offset')} before them: records are "
                    "being deleted there, and unread ones are next",
                )


def _endangered(inspection: Inspection, look: SubLook, place: TopicPartition, at: int, says: str) -> Finding:
    return Finding(
        Severity.WARNING,
        f"{says}. Let the application catch up, or keep records for longer",
        f"kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name {place[0]} --add-config "
        "retention.ms=MORE",
        Place(look.name, None, *place, at),
    )


def group(inspection: Inspection) -> Iterator[Finding]:
    """Compares the consumer group's offsets with the markers, which were committed together with them."""
    members = inspection.survey.group_members(inspection.app)
    if members:
        yield Finding(
            Severity.WARNING,
            f"consumers have joined the group {inspection.app} ({', '.join(members)}), which belongs to the application: they "
            "commit offsets of their own over those of its tasks. Give them another group.id",
        )
    for look in inspection.subs:
        promised = _promised(look)
        committed = inspection.admin.group_offsets(inspection.app, sorted(promised))
        for place, (task, end) in sorted(promised.items()):
            where = Place(look.name, task, *place, committed.get(place))
            if place not in committed:
                yield Finding(
                    Severity.NOTE,
                    f"the consumer group has no offset, though the task has read up to {end}: Kafka has forgotten it "
                    "(offsets.retention.minutes), or it was deleted. The application goes on from its checkpoint; should the "
                    "checkpoint be lost, an adoption asks for the position",
                    inspection.command("adopt", f"--position {place[0]}:{place[1]}={end} --dry-run"),
                    where,
                )
            elif committed[place] < end or (committed[place] > end and not inspection.has_moved(look, task)):
                yield Finding(
                    Severity.WARNING,
                    f"the consumer group's offset is {committed[place]}, and the task has committed {end} together with its "
                    "marker: something else has changed the group. The application goes on from its checkpoint, but lag and "
                    "adoptions go by the group. Set it back",
                    f"kafka-consumer-groups.sh --bootstrap-server HOST:PORT --group {inspection.app} --topic {place[0]}:{place[1]} "
                    f"--reset-offsets --to-offset {end} --execute",
                    where,
                )


def _promised(look: SubLook) -> dict[TopicPartition, tuple[int, int]]:
    """Partition -> the task that reports its progress, and the end of the last range that this task has committed."""
    found: dict[TopicPartition, tuple[int, int]] = {}
    for task, marker in look.found.items():
        for topic, of in marker.ranges.items():
            for partition, (_, end) in of.items():
                if int(partition) % look.prepared.tasks == task:
                    found[topic, int(partition)] = (task, end)
    return found
