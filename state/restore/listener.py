"""Listeners of restores, and the reports of finished ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from state.restore.plan import Action


class RestoreListener(Protocol):
    """Gets notified of the progress of restores (Kafka Streams: `StateRestoreListener`)."""

    def on_start(self, store: str, task: int, offsets: int) -> None:
        """Called before a store is read."""

    def on_batch(self, store: str, task: int, records: int, bytes_: int, remaining: int) -> None:
        """Called after some changelog records were loaded."""


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The restore of one store.

    Attributes:
        store: Its name.
        action: What was read: nothing, the tail, or everything from the start.
        reason: Why.
        records: Changelog records read.
        rows: Rows written; superseded and expired records are left out.
        bytes: Bytes of the keys and values read.
        seconds: Wall-clock time.
    """

    store: str
    action: Action
    reason: str
    records: int = 0
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The restore of one task.

    Attributes:
        task: Number of the task.
        stores: The restore of each store.
        copy: The copy that the restore began with, a snapshot or a replica's; empty = none.
    """

    task: int
    stores: tuple[StoreReport, ...]
    copy: str = ""

    @property
    def records(self) -> int:
        return sum(store.records for store in self.stores)

    @property
    def bytes(self) -> int:
        return sum(store.bytes for store in self.stores)

    @property
    def seconds(self) -> float:
        return sum(store.seconds for store in self.stores)
