"""One difference between two programs, and its consequences for the state and for the start of the new program."""

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
    """The consequence for the state, from the least to the worst."""

    SAFE = "safe"
    NEEDS_MIGRATION = "needs migration"
    LOSES_STATE = "loses state"


_ORDER = list(Severity)


@dataclass(frozen=True, slots=True)
class TopologyChange:
    """One difference.

    Attributes:
        severity: The consequence for the state.
        where: The sub-topology.
        what: What has changed, such as `store 'counts'`.
        says: What is different, and what to do if the change is not safe.
        refused: Whether the engine refuses to start a program with this change.
        depends: Whether the refusal depends on the contents of Kafka at the start, as `says` explains.
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
    """A change after which the engine continues, and nothing is lost."""
    return TopologyChange(Severity.SAFE, where, what, says)


def refused(where: str, what: str, says: str) -> TopologyChange:
    """A change with which the engine refuses to start, with an error that says what to do."""
    return TopologyChange(Severity.NEEDS_MIGRATION, where, what, f"{says}. {REFUSED}", refused=True)


def worst_first(changes: Iterable[TopologyChange]) -> list[TopologyChange]:
    """The changes, worst first; those of the same severity stay in order."""
    return sorted(changes, key=lambda change: -_ORDER.index(change.severity))


def worst(changes: Iterable[TopologyChange]) -> Severity:
    """The worst severity of the changes; `safe` if there are none."""
    return max((change.severity for change in changes), key=_ORDER.index, default=Severity.SAFE)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The differences between two sets of settings."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name)} -> {new.get(name)}" for name in names)
