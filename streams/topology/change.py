"""One difference between two programs, and what it means: for the state, and for the start of the new program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

REFUSED = (
    "The engine refuses to start: the old program goes on with this state, and this one begins anew under an application id of "
    "its own, or after a reset"
)


class Severity(str, Enum):
    """What becomes of the state, from the least to the worst."""

    SAFE = "safe"
    NEEDS_MIGRATION = "needs migration"
    LOSES_STATE = "loses state"


_ORDER = list(Severity)


@dataclass(frozen=True, slots=True)
class TopologyChange:
    """One difference.

    Attributes:
        severity: What it does to the state.
        where: The sub-topology.
        what: The thing, such as `store 'counts'`.
        says: What is different, and what to do where it is not safe.
        refused: The engine does not start a program with this change.
        depends: Whether it is refused depends on what Kafka holds at the start, as `says` tells.
    """

    severity: Severity
    where: str
    what: str
    says: str
    refused: bool = False
    depends: bool = False

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.where}: {self.what} {self.says}"


def safe(where: str, what: str, says: str) -> TopologyChange:
    """A change after which the engine goes on, and nothing is lost."""
    return TopologyChange(Severity.SAFE, where, what, says)


def refused(where: str, what: str, says: str) -> TopologyChange:
    """A change with which the engine does not start; it says so, and what to do."""
    return TopologyChange(Severity.NEEDS_MIGRATION, where, what, f"{says}. {REFUSED}", refused=True)


def worst_first(changes: Iterable[TopologyChange]) -> list[TopologyChange]:
    """The changes, the worst first; of the same severity in the order in which they came."""
    return sorted(changes, key=lambda change: -_ORDER.index(change.severity))


def worst(changes: Iterable[TopologyChange]) -> Severity:
    """The worst of the changes; safe if there is none."""
    return max((change.severity for change in changes), key=_ORDER.index, default=Severity.SAFE)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What two sets of settings differ in."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name)} -> {new.get(name)}" for name in names)
