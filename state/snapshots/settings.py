"""`SnapshotSettings`: where snapshots are kept, how often they are taken, and how long they stay."""

from __future__ import annotations

from dataclasses import dataclass

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """See the module.

    Attributes:
        location: A folder, or a URL for fsspec; empty = no snapshots.
        interval_ms: Time between two snapshots of a task.
        steps: Steps between two snapshots of a task, whichever comes first; None = only the time counts.
        keep: How many snapshots of a task stay.
        grace_ms: How long a file stays that no snapshot names any more.
    """

    location: str = ""
    interval_ms: int = 10 * 60_000
    steps: int | None = None
    keep: int = 3
    grace_ms: int = HOUR_MS


NO_SNAPSHOTS = SnapshotSettings()
