"""Checkpoint, commit markers and changelogs: whether they tell the same story."""

from __future__ import annotations

from collections.abc import Iterator

from state.changelog.log_end import check_end
from state.changelog.topics import changelog_topic, cleanup_policy
from state.changelog.trim import trim_notes
from state.commit.guards import check_nothing_written
from state.commit.marker import CommitMarker
from state.errors import CheckpointMismatchError, RestoreError
from state.kafka.topics import TopicPartition
from state.restore.plan import check_changelog_id
from state.restore.task_stores import target_of
from state.stores.spec import StoreSpec
from streams.application.adopt import unfinished_plan
from streams.application.doctor.findings import Finding, Place, Severity
from streams.application.doctor.inspection import Inspection, SubLook
from streams.checkpoint.compare import SubIdentity


def checkpoint(inspection: Inspection) -> Iterator[Finding]:
    """Compares the checkpoint with the commit markers, as a start does."""
    for look in inspection.subs:
        if look.wrong is not None:
            # Without markers, a new checkpoint has nothing to be made from.
            command = inspection.command("adopt", "--dry-run") if look.adoptable else None
            yield Finding(Severity.ERROR, str(look.wrong), command, Place(look.name))
        sub = _identity(inspection, look)
        if unfinished_plan(inspection.files, sub, look.markers) is not None:
            yield Finding(
                Severity.ERROR,
                "an adoption was interrupted: some tasks have markers for a checkpoint that is not in its place yet",
                inspection.command("adopt"),
                Place(look.name),
            )
        queries = sorted({marker.query_id for marker in look.found.values()})
        if len(queries) > 1:
            yield Finding(
                Severity.ERROR,
                f"the tasks have committed under different checkpoints ({', '.join(queries)}): an adoption was interrupted, or two "
                "applications use this application id. Stop everything that runs under it",
                inspection.command("adopt", "--dry-run"),
                Place(look.name),
            )


def half_committed(inspection: Inspection) -> Iterator[Finding]:
    """Looks for a micro-batch that some of its tasks have committed and others have not."""
    for look in inspection.subs:
        checkpoint, tasks = look.checkpoint, look.prepared.tasks
        batch = checkpoint.logged
        if look.wrong is not None or batch <= checkpoint.committed:
            continue
        start, end, ranges = checkpoint.start(batch), checkpoint.offsets.get(batch), checkpoint.ranges(batch)
        if start is None or end is None or ranges is None:
            continue
        owners = {each.partition % tasks for each in ranges} if start.tick == end.tick else set(range(tasks))
        done = sorted(task for task, marker in look.found.items() if marker.batch_id == batch)
        missing = sorted(owners - set(done))
        if done and missing:
            yield Finding(
                Severity.NOTE,
                f"micro-batch {batch} is committed by task {', '.join(map(str, done))}, and not yet by task "
                f"{', '.join(map(str, missing))}: it is under way, or its run was interrupted. A start of the same program "
                "completes it",
                inspection.command("run"),
                Place(look.name, missing[0]),
            )


def changelogs(inspection: Inspection) -> Iterator[Finding]:
    """Compares the changelogs with what the markers promise of them."""
    for look in inspection.subs:
        specs = [node.spec for node in look.prepared.sub.stores.values() if node.spec.logged]
        topics = {spec.name: changelog_topic(inspection.app, spec.name) for spec in specs}
        found = inspection.admin.describe_topics(sorted(topics.values()))
        places = [(name, number) for name, info in found.items() for number in range(info.partitions)]
        begins, ends = inspection.admin.begin_offsets(places), inspection.admin.end_offsets(places)
        for spec in specs:
            topic = topics[spec.name]
            if topic not in found:
                continue
            for task, marker in look.found.items():
                if (place := (topic, task)) in ends:
                    range_ = (begins[place], ends[place])
                    yield from _changelog(inspection, look, spec, place, range_, marker, found[topic].topic_id)
        yield from _unmarked(inspection, look, topics, ends)


def _changelog(
    inspection: Inspection,
    look: SubLook,
    spec: StoreSpec,
    place: TopicPartition,
    range_: tuple[int, int],
    marker: CommitMarker,
    topic_id: str,
) -> Iterator[Finding]:
    begin, end = range_
    where = Place(look.name, marker.task, *place)
    promised = marker.changelog_ends.get(spec.name, 0)
    try:
        check_changelog_id(spec.name, topic_id, target_of(marker))
        check_end(spec.name, end, marker.version, promised)
    except RestoreError as error:
        yield Finding(Severity.ERROR, str(error), f"streams reset {inspection.app} --dry-run", where)
        return
    lost = begin if cleanup_policy(spec) == "compact" else 0
    notes = trim_notes(marker.operator_state).get(spec.name, ())
    if notes and begin > max(first for _, first in notes):
        lost = begin
    if lost:
        at = Place(look.name, marker.task, *place, begin)
        yield Finding(
            Severity.ERROR,
            f"records of store {spec.name!r} before offset {begin} are gone, and the task still needs them: they were deleted by "
            "retention, by DeleteRecords or by hand. A host with the local state goes on; a restore would lack rows. Check the "
            "topic's retention and its rights, keep the state_dir of every host, and restore the topic from a backup",
            f"kafka-configs.sh --bootstrap-server HOST:PORT --describe --entity-type topics --entity-name {place[0]}",
            at,
        )


def _unmarked(
    inspection: Inspection, look: SubLook, topics: dict[str, str], ends: dict[TopicPartition, int]
) -> Iterator[Finding]:
    """Looks for changelogs with records of tasks that have no marker."""
    sub = _identity(inspection, look)
    for task in range(look.prepared.tasks):
        if look.markers.get(task) is not None:
            continue
        places = {store: (topic, task) for store, topic in topics.items() if (topic, task) in ends}
        try:
            check_nothing_written(sub.task(task, ""), inspection.kafka, places, ends)
        except CheckpointMismatchError as error:
            yield Finding(
                Severity.ERROR, str(error), f"streams reset {inspection.app} --dry-run", Place(look.name, task)
            )


def _identity(inspection: Inspection, look: SubLook) -> SubIdentity:
    sub = look.prepared.sub
    return SubIdentity(inspection.app, sub.name, look.prepared.tasks, sub.topology_hash)
