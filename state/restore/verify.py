"""Restores a task's stores from their changelogs on demand: `rebuild_task`, and `verify_task`, which compares.

Kafka is only read, so the application may run meanwhile. The folders have the layout of a state directory, and an application can
continue from them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from state.changelog import changelog_topic, commits_topic, rescale_topic
from state.commit.marker import RESCALED, CommitMarker, read_last_marker
from state.errors import RestoreError
from state.restore.copies import DATABASE
from state.restore.directory import StateDirectory
from state.restore.place import TaskPlace
from state.restore.plan import Action
from state.restore.restorer import RestoreListener, RestoreReport
from state.restore.snapshots import NO_SNAPSHOTS, SnapshotSettings
from state.restore.task_stores import StoreSource, TaskStateManager
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import TaskStore
from state.tables.files import make_private
from state.tables.open_tables import copy_linked
from state.tables.table import Row


@dataclass(frozen=True, slots=True)
class RebuiltTask:
    """A rebuilt task.

    Attributes:
        version: Number of the step that the stores hold; 0 = the task has never committed, and there is nothing.
        report: Records, rows, bytes and seconds of each store.
        disk_bytes: Size of the folder.
    """

    place: TaskPlace
    version: int
    report: RestoreReport
    disk_bytes: int


def rebuild_task(
    source: StoreSource,
    place: TaskPlace,
    specs: Sequence[StoreSpec],
    into: Path,
    listener: RestoreListener | None = None,
    snapshots: SnapshotSettings = NO_SNAPSHOTS,
) -> RebuiltTask:
    """Restores the stores of a task up to its last commit marker.

    Raises:
        RestoreError: The changelogs lack records that belong to the marker, or the marker is from another topology or number of
            tasks.
        KafkaClientError: Reading failed.
    """
    marker = last_marker(source, place)
    if marker is None:
        return RebuiltTask(place, 0, RestoreReport(place.task, ()), 0)
    stores = TaskStateManager(source, place.identity(marker), specs, into, listener=listener, snapshots=snapshots)
    with stores.open() as store:
        stores.restore_to(store, marker)
    assert stores.report is not None, "restore_to leaves a report"
    return RebuiltTask(place, marker.version, stores.report, stores.directory.size_bytes)


def last_marker(source: StoreSource, place: TaskPlace) -> CommitMarker | None:
    """The last marker of a task; None if it has never committed.

    Raises:
        RestoreError: The marker is from another topology, or of another number of tasks.
    """
    found = read_last_marker(source, (commits_topic(place.application_id, place.sub_topology), place.task))
    if found is not None:
        check_marker(place, found.marker)
    return None if found is None else found.marker


def check_marker(place: TaskPlace, marker: CommitMarker) -> None:
    """Refuses stores of another structure, which would be read with wrong kinds and serdes, and stores of other tasks."""
    if marker.topology_hash != place.topology_hash:
        raise RestoreError(
            f"{place}: the state was written by another topology (hash {marker.topology_hash}, now "
            f"{place.topology_hash}): operators, windows or stores have changed (`streams diff` shows which). Restore with "
            f"the program that wrote it"
        )
    if marker.tasks != place.tasks:
        raise _rescaled(place, marker.tasks)


def check_not_rescaled(source: StoreSource, *places: TaskPlace) -> None:
    """Refuses to follow an application that is being rescaled, or was; sends one request for a task of each sub-topology."""
    topics = {
        place: [make(place.application_id, place.sub_topology) for make in (commits_topic, rescale_topic)]
        for place in places
    }
    found = source.describe_topics([topic for pair in topics.values() for topic in pair])
    for place, (commits, notes) in topics.items():
        if notes in found:
            raise _being_rescaled(place)
        if commits in found and found[commits].partitions != place.tasks:
            raise _rescaled(place, found[commits].partitions)


def check_not_closed(place: TaskPlace, marker: CommitMarker) -> None:
    """Refuses to follow the marker by which a rescale keeps a task from committing, which is not a commit.

    It names another query, so the rows would be thrown away, and read again from changelogs that are being replaced. If the rescale
    is undone, it writes the earlier marker once more.
    """
    if marker.query_id.endswith(RESCALED):
        raise _being_rescaled(place)


def _being_rescaled(place: TaskPlace) -> RestoreError:
    return RestoreError(
        f"{place}: the application is being rescaled. Start this command again when that has come to its end"
    )


def _rescaled(place: TaskPlace, tasks: int) -> RestoreError:
    return RestoreError(
        f"{place}: the application has {tasks} tasks now, it was rescaled. Start this command again: it then knows them all"
    )


# --- `verify_task`: proves that a task's local state is what its changelogs give, row by row.
#
# The local database is linked into a scratch folder, where it is brought to the task's last commit as every step does it, while
# the changelogs are restored from their start into another folder, to the same commit. The application may keep running, because it
# uses neither folder. If a later step writes a key, compaction may remove the key's older record while it is being read. A
# difference in such a key proves nothing, and is left out.

_SEGMENT_BYTES = 8
_MOST_KEYS = 10_000
"""The number of differing keys of a store that are looked up in the changelog; further differences are not explained one by one."""
LINKED = ".local"
"""The name of the folder below `into` with the links to the local state; it is useless once a verification has ended."""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One key whose values differ.

    Attributes:
        key: Its bytes, as in the changelog.
        local: The value in the local state, None = none.
        rebuilt: The value from the changelog, None = none.
        offset: Offset of the key's last changelog record up to the commit; None if there is none.
    """

    key: bytes
    local: bytes | None
    rebuilt: bytes | None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class VerifiedStore:
    """The comparison of one store.

    Attributes:
        store: Its name.
        rows: The number of rows from the changelog.
        distrust: The reason why the local rows were not compared; the next step would delete them and restore the store.
        differences: The number of keys that differ.
        first: The first differences.
    """

    store: str
    rows: int = 0
    distrust: str = ""
    differences: int = 0
    first: tuple[RowDifference, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifiedTask:
    """The comparison of one task.

    Attributes:
        version: The step to which both were brought; 0 = the task has never committed.
        here: Whether this host has a local database of the task.
        report: The restore from the changelogs.
        stores: The comparisons; none without a local database.
    """

    place: TaskPlace
    version: int
    here: bool
    report: RestoreReport
    stores: tuple[VerifiedStore, ...] = field(default=())


def verify_task(
    source: StoreSource,
    place: TaskPlace,
    specs: Sequence[StoreSpec],
    state_dir: Path,
    into: Path,
    listener: RestoreListener | None = None,
    shown: int = 5,
) -> VerifiedTask:
    """Compares a task's local state with a restore from its changelogs.

    Raises:
        RestoreError: The changelogs lack records that belong to the last marker.
        StateCorruptedError: The local database is damaged.
        KafkaClientError: Reading failed; another call with the same folder resumes.
    """
    specs = [spec for spec in specs if spec.logged and spec.persistent]
    local = StateDirectory(state_dir).task(place.application_id, place.sub_topology, place.task).path / DATABASE
    linked = StateDirectory(into / LINKED).task(place.application_id, place.sub_topology, place.task)
    here = (local / "CURRENT").exists()
    if here:
        # Before the marker is read, so that Kafka is never behind the linked files.
        make_private(linked.path)
        copy_linked(local, linked.path / DATABASE)
    marker = last_marker(source, place)
    if marker is None:
        return VerifiedTask(place, 0, here, RestoreReport(place.task, ()))
    rebuilt = TaskStateManager(source, place.identity(marker), specs, into, listener=listener)
    try:
        with rebuilt.open() as whole:
            rebuilt.restore_to(whole, marker)
            assert rebuilt.report is not None, "restore_to leaves a report"
            if not here:
                return VerifiedTask(place, marker.version, here, rebuilt.report)
            compared = _compare_all(source, place, specs, into, marker, whole, shown)
            return VerifiedTask(place, marker.version, here, rebuilt.report, compared)
    finally:
        shutil.rmtree(linked.path, ignore_errors=True)


def _compare_all(
    source: StoreSource,
    place: TaskPlace,
    specs: Sequence[StoreSpec],
    into: Path,
    marker: CommitMarker,
    whole: TaskStore,
    shown: int,
) -> tuple[VerifiedStore, ...]:
    """Brings the linked state to the marker, and compares each store whose local rows can be trusted."""
    stores = TaskStateManager(source, place.identity(marker), specs, into / LINKED)
    found = []
    with stores.open() as local:
        stores.restore_to(local, marker)
        assert stores.report is not None, "restore_to leaves a report"
        why = {one.store: one.reason for one in stores.report.stores if one.action is Action.FROM_START}
        for spec in specs:
            if spec.name in why:
                found.append(VerifiedStore(spec.name, distrust=why[spec.name]))
                continue
            topic = changelog_topic(place.application_id, spec.name)
            log = _Log(source, topic, place.task, marker.changelog_ends.get(spec.name, 0))
            found.append(_compare(spec, local, whole, log, shown))
    return tuple(found)


@dataclass(frozen=True)
class _Log:
    """A changelog partition, and the end of the commit in it."""

    source: StoreSource
    topic: str
    partition: int
    end: int

    def last_offsets(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Key -> the offset of its last record in the whole partition, which may be after the commit."""
        place = (self.topic, self.partition)
        wanted = pa.array(sorted(set(keys)), pa.binary())
        found: dict[bytes, int] = {}
        begin, end = self.source.begin_offset(place), self.source.end_offsets([place])[place]
        for columns in self.source.read(self.topic, self.partition, begin, end):
            mine = pc.is_in(columns.keys.cast(pa.binary()), value_set=wanted).to_numpy(zero_copy_only=False)
            found |= zip(columns.keys.filter(pa.array(mine)).to_pylist(), columns.offsets[mine].tolist(), strict=True)
        return found


def _compare(spec: StoreSpec, local: TaskStore, whole: TaskStore, log: _Log, shown: int) -> VerifiedStore:
    key_of = _changelog_key(spec)
    rows = _Counted(whole.local_rows(spec.name))
    differing = ((key_of(key), one, other) for key, one, other in _differences(local.local_rows(spec.name), rows))
    first = list(islice(differing, _MOST_KEYS))
    more = sum(1 for _ in differing)
    if not first:
        return VerifiedStore(spec.name, rows.count)
    last = log.last_offsets([key for key, _, _ in first])
    settled = [one for one in first if last.get(one[0], -1) < log.end]
    described = tuple(RowDifference(*one, last.get(one[0])) for one in settled[:shown])
    return VerifiedStore(spec.name, rows.count, differences=len(settled) + more, first=described)


class _Counted:
    """An iterator over rows that counts them."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.count += 1
            yield row


def _differences(local: Iterator[Row], whole: _Counted) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Key, local value and restored value for each difference; both sides are in the order of their keys."""
    rebuilt = iter(whole)
    one, other = next(local, None), next(rebuilt, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield one[0], one[1], None
            one = next(local, None)
        elif one is None or other[0] < one[0]:
            yield other[0], None, other[1]
            other = next(rebuilt, None)
        else:
            if one[1] != other[1]:
                yield one[0], one[1], other[1]
            one, other = next(local, None), next(rebuilt, None)


def _changelog_key(spec: StoreSpec) -> Callable[[bytes], bytes]:
    """A function that turns a local key into the key of a changelog record."""
    if spec.kind.segmented:
        return lambda key: key[_SEGMENT_BYTES:]
    if spec.kind is StoreKind.VERSIONED:
        return lambda key: key[:-8]
    return lambda key: key
