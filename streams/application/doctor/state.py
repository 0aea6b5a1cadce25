"""Whether checkpoint, commit markers, changelogs, local state and snapshots belong together."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from state.changelog import changelog_topic, check_end, cleanup_policy, trim_notes
from state.commit.guards import check_nothing_written
from state.commit.marker import CommitMarker
from state.errors import CheckpointMismatchError, RestoreError, SnapshotError, StateError
from state.kafka.topics import TopicPartition, partitions_of
from state.restore.directory import StateDirectory, TaskDirectory
from state.restore.plan import LogRange, check_changelog_id, distrust
from state.restore.snapshot_location import open_location
from state.restore.snapshots import Snapshot, TaskSnapshots
from state.restore.task_stores import target_of
from state.stores.dump import read_task_store
from state.stores.spec import StoreSpec
from streams.application.adopt import unfinished_plan
from streams.application.doctor.inspection import Finding, Inspection, Place, Severity, SubLook
from streams.checkpoint.compare import SubIdentity
from streams.config.settings import age_in_words
from streams.wording import counted


def checkpoint(inspection: Inspection) -> Iterator[Finding]:
    for look in inspection.subs:
        if look.wrong is not None:
            # Without markers, a new checkpoint cannot be made.
            command = inspection.command("adopt", "--dry-run") if look.adoptable else None
            yield Finding.error(str(look.wrong), command, Place(look.name))
        sub = _identity(inspection, look)
        if unfinished_plan(inspection.files, sub, look.markers) is not None:
            yield Finding.error(
                "an adoption was interrupted: some tasks have markers for a checkpoint that is not in its place yet",
                inspection.command("adopt"),
                Place(look.name),
            )
        queries = sorted({marker.query_id for marker in look.found.values()})
        if len(queries) > 1:
            yield Finding.error(
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
            yield Finding.note(
                f"micro-batch {batch} is committed by task {', '.join(map(str, done))}, and not yet by task "
                f"{', '.join(map(str, missing))}: it is in progress, or its run was interrupted. Start the same program to "
                f"complete it",
                inspection.command("run"),
                Place(look.name, missing[0]),
            )


def changelogs(inspection: Inspection) -> Iterator[Finding]:
    for look in inspection.subs:
        specs = [node.spec for node in look.prepared.sub.stores.values() if node.spec.logged]
        topics = {spec.name: changelog_topic(inspection.app, spec.name) for spec in specs}
        found = inspection.admin.describe_topics(sorted(topics.values()))
        places = partitions_of(found)
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
        yield Finding.error(str(error), f"streams reset {inspection.app} --dry-run", where)
        return
    lost = begin if cleanup_policy(spec) == "compact" else 0
    notes = trim_notes(marker.operator_state).get(spec.name, ())
    if notes and begin > max(first for _, first in notes):
        lost = begin
    if lost:
        at = Place(look.name, marker.task, *place, begin)
        yield Finding.error(
            f"records of store {spec.name!r} before offset {begin} are gone, and the task still needs them: they were deleted by "
            "retention, by DeleteRecords or by hand. A host with the local state continues; a restore would lack rows. Check the "
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
            yield Finding.error(str(error), f"streams reset {inspection.app} --dry-run", Place(look.name, task))


def _identity(inspection: Inspection, look: SubLook) -> SubIdentity:
    sub = look.prepared.sub
    return SubIdentity(inspection.app, sub.name, look.prepared.tasks, sub.topology_hash)


# --- Local state on this host: whose it is, where it comes from, and whether the disk has room.

_FREE = 0.05
_MIB = 1024 * 1024


def disk(inspection: Inspection) -> Iterator[Finding]:
    """Checks that the state folder has room, and belongs to the user who runs this."""
    state_dir = inspection.config.state_dir
    folder = next(one for one in (state_dir, *state_dir.parents) if one.exists())
    usage = shutil.disk_usage(folder)
    size = sum(task.size_bytes for task in StateDirectory(inspection.config.state_dir).tasks(inspection.app))
    if usage.free < max(_FREE * usage.total, size):
        yield Finding.warning(
            f"{folder} has {usage.free // _MIB:,} MiB free of {usage.total // _MIB:,}; the local state of {inspection.app} has "
            f"{size // _MIB:,} MiB, and a restore or a compaction may need as much again. Free space, or move the state: it is "
            "restored in an empty folder",
            inspection.command("run", "--set state_dir=FOLDER"),
        )
    for path in [inspection.config.state_dir, inspection.config.state_dir / inspection.app]:
        if path.exists() and (owner := path.stat().st_uid) != os.getuid():
            yield Finding(
                Severity.ERROR if not os.access(path, os.W_OK) else Severity.WARNING,
                f"{path} belongs to user {owner}, this is user {os.getuid()}: an application that runs as this user cannot open "
                "the stores, and folders with mode 0700 are the owner's only",
                f"chown -R {os.getuid()} {path}",
            )


def stores(inspection: Inspection) -> Iterator[Finding]:
    looks = {look.name: look for look in inspection.subs}
    for directory in StateDirectory(inspection.config.state_dir).tasks(inspection.app):
        look = looks.get(directory.sub_topology)
        where = Place(directory.sub_topology, directory.task)
        if look is None or directory.task >= look.prepared.tasks:
            yield Finding.note(
                f"local state of a task that the application no longer has, {counted(directory.size_bytes // _MIB, 'MiB')}: "
                f"{directory.path}. It may be deleted",
                f"rm -r {directory.path}",
                where,
            )
        elif look.prepared.sub.stores and (directory.path / "db" / "CURRENT").exists():
            yield from _task_store(inspection, look, directory, where)


def _task_store(inspection: Inspection, look: SubLook, directory: TaskDirectory, where: Place) -> Iterator[Finding]:
    marker = look.found.get(directory.task)
    specs = [node.spec for node in look.prepared.sub.stores.values()]
    places = {spec.name: (changelog_topic(inspection.app, spec.name), directory.task) for spec in specs if spec.logged}
    try:
        with read_task_store(directory.path, specs) as store:
            offsets, origins = store.offsets, store.origins
    except StateError as error:
        yield Finding.note(
            f"local state cannot be read ({error}): it is deleted and restored from the changelogs when the task starts here. "
            f"If this happens again, check the disk",
            place=where,
        )
        return
    if marker is None:
        yield Finding.note(
            f"local state without any commit of its task: {directory.path}. It is emptied when the task starts here",
            place=where,
        )
        return
    target = target_of(marker)
    found = inspection.admin.describe_topics({place[0] for place in places.values()})
    there = [place for place in places.values() if place[0] in found]
    begins, ends = inspection.admin.begin_offsets(there), inspection.admin.end_offsets(there)
    for spec in specs:
        place = places.get(spec.name)
        if place is None or place not in begins or spec.name not in offsets:
            continue
        end = marker.changelog_ends.get(spec.name, ends[place])
        log = LogRange(min(begins[place], end), end, found[place[0]].topic_id)
        why = distrust(spec, origins.get(spec.name), offsets[spec.name], target, log, inspection.now_ms())
        if why is not None and not inspection.has_moved(look, directory.task):
            yield Finding.note(
                f"store {spec.name!r} cannot continue with its local state: {why}. It is deleted and restored from its changelog "
                "when the task starts here; nothing is lost, but the first step takes longer",
                None,
                Place(look.name, directory.task, *place, offsets[spec.name]),
            )


# --- Snapshots of the tasks' stores: whether a restore could begin with one now, and whether they are still being
# taken.
#
# Snapshots only make a restore shorter, so nothing here is an error: without any, the changelogs are read. Files are
# not read; `streams snapshots --verify` does that.

_LATE = 3
"""After this many commit intervals without a snapshot, the doctor reports that snapshots are no longer taken."""


def snapshots(inspection: Inspection) -> Iterator[Finding]:
    """Looks at the snapshots of each task that has committed, if snapshots are taken at all."""
    if not inspection.config.snapshot_dir:
        return
    location = open_location(inspection.config.snapshot_dir)
    for look in inspection.subs:
        if any(node.spec.persistent and node.spec.logged for node in look.prepared.sub.stores.values()):
            for task in look.found:
                yield from _task_snapshots(
                    inspection, look, task, TaskSnapshots(location, inspection.app, look.name, task)
                )


def _task_snapshots(inspection: Inspection, look: SubLook, task: int, place: TaskSnapshots) -> Iterator[Finding]:
    where, whole = Place(look.name, task), []
    for name in place.names():
        try:
            whole.append(place.read(name))
        except SnapshotError as error:
            yield Finding.warning(
                f"the snapshot {name} in {place} is skipped by restores: {error}. The one before it is used; if this happens "
                f"again, check the disk. It is deleted once there are enough newer ones",
                inspection.command("snapshots", "--verify"),
                where,
            )
    reasons = [_unusable(inspection, look, task, one) for one in whole]
    fit = [one for one, reason in zip(whole, reasons, strict=True) if not reason]
    if not fit:
        if inspection.has_moved(look, task):
            # The ones that the running application has taken since are newer than the marker that was read.
            return
        why = (
            f"none of {counted(len(whole), 'snapshot')} fits; of the newest, {reasons[0]}" if whole else "there is none"
        )
        yield Finding.note(
            f"no snapshot of this task can be restored ({why}): a lost state is restored from the whole changelogs. The next one "
            "is taken after a step, by the worker that runs the task; if none comes, its log says why",
            inspection.command("snapshots"),
            where,
        )
        return
    behind_ms = look.found[task].now_ms - fit[0].written_ms
    if behind_ms > _LATE * inspection.config.snapshot_interval_ms:
        yield Finding.warning(
            f"the task has committed for {age_in_words(behind_ms)} since its newest usable snapshot (step {fit[0].version}), "
            f"though one is due every {age_in_words(inspection.config.snapshot_interval_ms)}: taking them fails, or the "
            "application runs without snapshot_dir. The logs of the workers show why; until it is fixed, restores take longer",
            inspection.command("snapshots"),
            where,
        )


def _unusable(inspection: Inspection, look: SubLook, task: int, snapshot: Snapshot) -> str:
    """Why a restore would not begin with this snapshot; empty: it would, unless there is a better snapshot."""
    if snapshot.tasks != look.prepared.tasks:
        return f"it has the state of {snapshot.tasks} tasks, and the application has {look.prepared.tasks}"
    marker = look.found[task]
    target = target_of(marker)
    stores = [node.spec for node in look.prepared.sub.stores.values()]
    # A store with an empty changelog has no snapshots.
    specs = [spec for spec in stores if spec.persistent and marker.changelog_ends.get(spec.name)]
    topics = {spec.name: changelog_topic(inspection.app, spec.name) for spec in specs}
    known = inspection.admin.describe_topics(topics.values())
    for spec in specs:
        place = (topics[spec.name], task)
        if place[0] not in known:
            return f"the changelog of store {spec.name!r} does not exist"
        begin, end = inspection.kafka.begin_offset(place), marker.changelog_ends[spec.name]
        log = LogRange(min(begin, end), end, known[place[0]].topic_id)
        origin, offset = snapshot.origins.get(spec.name), snapshot.offsets.get(spec.name)
        if why := distrust(spec, origin, offset, target, log, inspection.now_ms()):
            return f"store {spec.name!r}: {why}"
    return ""
