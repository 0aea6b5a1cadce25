"""Snapshots of the tasks' stores: whether a restore could begin with one now, and whether they are still being taken.

Snapshots only make a restore shorter, so nothing here is an error: without any, the changelogs are read. Files are not read;
`streams snapshots --verify` does that.
"""

from __future__ import annotations

from collections.abc import Iterator

from state.changelog.topics import changelog_topic
from state.errors import SnapshotError
from state.restore.plan import LogRange, distrust
from state.restore.task_stores import target_of
from state.snapshots.location import open_location
from state.snapshots.manifest import Snapshot
from state.snapshots.task_snapshots import TaskSnapshots
from streams.application.doctor.findings import Finding, Place, Severity
from streams.application.doctor.inspection import Inspection, SubLook
from streams.config.durations import age_in_words
from streams.wording import counted

_LATE = 3
"""After this many intervals of commits without a snapshot, snapshots are no longer taken."""


def snapshots(inspection: Inspection) -> Iterator[Finding]:
    """Looks at the snapshots of each task that has committed, if snapshots are taken at all."""
    if not inspection.config.snapshot_dir:
        return
    location = open_location(inspection.config.snapshot_dir)
    for look in inspection.subs:
        if any(node.spec.persistent and node.spec.logged for node in look.prepared.sub.stores.values()):
            for task in look.found:
                yield from _task(inspection, look, task, TaskSnapshots(location, inspection.app, look.name, task))


def _task(inspection: Inspection, look: SubLook, task: int, place: TaskSnapshots) -> Iterator[Finding]:
    where, whole = Place(look.name, task), []
    for name in place.names():
        try:
            whole.append(place.read(name))
        except SnapshotError as error:
            yield Finding(
                Severity.WARNING,
                f"the snapshot {name} in {place} is left out by restores: {error}. The one before is taken; if it comes again, "
                "check the disk. It is deleted once enough newer ones are there",
                inspection.command("snapshots", "--verify"),
                where,
            )
    reasons = [_unusable(inspection, look, task, one) for one in whole]
    fit = [one for one, reason in zip(whole, reasons, strict=True) if not reason]
    if not fit:
        if inspection.has_moved(look, task):
            # Those that the running application has taken since are newer than the marker that was read.
            return
        why = (
            f"none of {counted(len(whole), 'snapshot')} fits; of the newest, {reasons[0]}" if whole else "there is none"
        )
        yield Finding(
            Severity.NOTE,
            f"no snapshot of this task can be restored ({why}): a lost state is restored from the whole changelogs. The next one "
            "is taken after a step, by the worker that runs the task; if none comes, its log says why",
            inspection.command("snapshots"),
            where,
        )
        return
    behind_ms = look.found[task].now_ms - fit[0].written_ms
    if behind_ms > _LATE * inspection.config.snapshot_interval_ms:
        yield Finding(
            Severity.WARNING,
            f"the task has committed for {age_in_words(behind_ms)} since its newest usable snapshot (step {fit[0].version}), "
            f"though one is due every {age_in_words(inspection.config.snapshot_interval_ms)}: taking them fails, or the "
            "application runs without snapshot_dir. The workers' logs say why; a restore reads more and more meanwhile",
            inspection.command("snapshots"),
            where,
        )


def _unusable(inspection: Inspection, look: SubLook, task: int, snapshot: Snapshot) -> str:
    """Why a restore would not begin with this snapshot; empty: it would, unless there is a better one."""
    if snapshot.tasks != look.prepared.tasks:
        return f"it is of {snapshot.tasks} tasks, and the application has {look.prepared.tasks}"
    marker = look.found[task]
    target = target_of(marker)
    stores = [node.spec for node in look.prepared.sub.stores.values()]
    # A store without records in its changelog has nothing to come from.
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
