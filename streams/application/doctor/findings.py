"""Findings of the doctor: a sentence, the place that it is about, and the command that mends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum


class Severity(str, Enum):
    """How bad a finding is; the values are in the order of their weight."""

    OK = "ok"
    NOTE = "note"
    """Nothing has to be done."""
    WARNING = "warning"
    """A start succeeds, but data or the guarantees are in danger."""
    ERROR = "error"
    """A start is refused, or fails, or data is lost already."""

    @property
    def weight(self) -> int:
        """A number that is larger for what is worse."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Place:
    """The place that a finding is about; None: the finding is not about one of these.

    Attributes:
        sub_topology: The sub-topology's name.
        task: The task's number.
        topic: The topic.
        partition: The topic's partition.
        offset: The offset in the partition.
    """

    sub_topology: str | None = None
    task: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        named = [(one.name.replace("_", "-"), getattr(self, one.name)) for one in fields(self)]
        return ", ".join(f"{name} {value}" for name, value in named if value is not None)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        severity: How bad it is.
        says: What was found and what it means, as sentences.
        command: The command that mends it, or shows more; None: the sentences say what to do, or there is nothing to do.
        place: What it is about.
    """

    severity: Severity
    says: str
    command: str | None = None
    place: Place = Place()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The findings of one check; a single one of severity `OK` if all is well.

    Attributes:
        check: The check's name.
        findings: At least one.
    """

    check: str
    findings: tuple[Finding, ...]


def worst(results: Iterable[CheckResult]) -> Severity:
    """The severity of the worst finding."""
    found = (finding.severity for result in results for finding in result.findings)
    return max(found, key=lambda severity: severity.weight, default=Severity.OK)
