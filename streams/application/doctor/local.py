"""Local state on this host: whose it is, where it comes from, and whether the disk has room."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from state.changelog.topics import changelog_topic
from state.errors import StateError
from state.restore.directory import StateDirectory, TaskDirectory
from state.restore.plan import LogRange, distrust
from state.restore.task_stores import target_of
from state.stores.read_only import read_task_store
from streams.application.doctor.findings import Finding, Place, Severity
from streams.application.doctor.inspection import Inspection, SubLook
from streams.wording import counted

_FREE = 0.05
_MIB = 1024 * 1024


def disk(inspection: Inspection) -> Iterator[Finding]:
    """Checks that the state folder has room, and belongs to the user who runs this."""
    folder = _existing(inspection.config.state_dir)
    usage = shutil.disk_usage(folder)
    size = sum(task.size_bytes for task in StateDirectory(inspection.config.state_dir).tasks(inspection.app))
    if usage.free < max(_FREE * usage.total, size):
        yield Finding(
            Severity.WARNING,
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


def _existing(folder: Path) -> Path:
    return next(one for one in (folder, *folder.parents) if one.exists())


def stores(inspection: Inspection) -> Iterator[Finding]:
    """Compares the local stores of this host with the last commits."""
    looks = {look.name: look for look in inspection.subs}
    for directory in StateDirectory(inspection.config.state_dir).tasks(inspection.app):
        look = looks.get(directory.sub_topology)
        where = Place(directory.sub_topology, directory.task)
        if look is None or directory.task >= look.prepared.tasks:
            yield Finding(
                Severity.NOTE,
                f"local state of a task that the application no longer has, {counted(directory.size_bytes // _MIB, 'MiB')}: "
                f"{directory.path}. It may be deleted",
                f"rm -r {directory.path}",
                where,
            )
        elif look.prepared.sub.stores and (directory.path / "db" / "CURRENT").exists():
            yield from _task(inspection, look, directory, where)


def _task(inspection: Inspection, look: SubLook, directory: TaskDirectory, where: Place) -> Iterator[Finding]:
    marker = look.found.get(directory.task)
    specs = [node.spec for node in look.prepared.sub.stores.values()]
    places = {spec.name: (changelog_topic(inspection.app, spec.name), directory.task) for spec in specs if spec.logged}
    try:
        with read_task_store(directory.path, specs) as store:
            offsets, origins = store.offsets, store.origins
    except StateError as error:
        yield Finding(
            Severity.NOTE,
            f"local state cannot be read ({error}): it is deleted and restored from the changelogs when the task starts here. If "
            "it comes again, check the disk",
            place=where,
        )
        return
    if marker is None:
        yield Finding(
            Severity.NOTE,
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
            yield Finding(
                Severity.NOTE,
                f"store {spec.name!r} cannot go on with its local state: {why}. It is deleted and restored from its changelog "
                "when the task starts here; nothing is lost, but the first step takes longer",
                None,
                Place(look.name, directory.task, *place, offsets[spec.name]),
            )
