"""Snapshots as copies that a restore can take over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from state.snapshots.manifest import Snapshot
from state.snapshots.task_snapshots import TaskSnapshots
from state.stores.position import StoreOrigin


@dataclass(frozen=True)
class SnapshotCopy:
    """One snapshot of a task."""

    place: TaskSnapshots
    snapshot: Snapshot

    def __str__(self) -> str:
        return f"the snapshot of step {self.snapshot.version} in {self.place}"

    @property
    def offsets(self) -> Mapping[str, int]:
        return self.snapshot.offsets

    @property
    def origins(self) -> Mapping[str, StoreOrigin]:
        return self.snapshot.origins

    def fetch(self, into: Path) -> None:
        self.place.fetch(self.snapshot, into)


def snapshot_copies(place: TaskSnapshots) -> Iterator[SnapshotCopy]:
    """The snapshots of a task, the newest first."""
    return (SnapshotCopy(place, snapshot) for snapshot in place.readable())
