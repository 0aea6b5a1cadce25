"""A case: what the file says, checked, as one object; and where cases are found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_CONFIG = {"optimize", "store", "emit_interval_ms", "wall_clock_start_ms", "batch"}
_ABOUT = {"source", "note", "cross_checked", "family", "dropped_records", "expected_at", "expected_in_memory"}


class CaseError(Exception):
    """A case holds something that the runner does not know: a failure, never a skip."""


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        name: as in the file.
        topology: the nodes, in order.
        records: what is piped in, marks (``advance_wall_clock_ms``, ``step``, ``restart``) among them.
        expected: the rows to come out, for the mode in which the case is run.
        error: ``{"type", "record"}`` where processing must fail.
        mode: ``strict`` for cases that say so, else None.
        compare: how rows are compared: ``order`` (oracle cases), ``multiset``, ``last`` or ``per_key_order``.
        batch: records between two marks form one step.
        dropped_late: how many records must be counted as late; None: not checked.
        config: the rest of the configuration.
    """

    name: str
    topology: Sequence[dict[str, Any]]
    records: Sequence[dict[str, Any]]
    expected: Sequence[dict[str, Any]]
    error: dict[str, Any] | None = None
    mode: str | None = None
    compare: str = "order"
    batch: bool = False
    dropped_late: int | None = None
    config: dict[str, Any] = field(default_factory=dict)


def read_cases(paths: Sequence[Path]) -> Iterator[Case]:
    """All cases of files (JSON, or JSON lines) and of folders, in order of their paths; and those that lists (.txt) name.

    A line of a list is a file, relative to the list, and the name of a case in it.
    """
    for path in paths:
        if path.is_dir():
            yield from read_cases(sorted([*path.rglob("*.json"), *path.rglob("*.jsonl")]))
        elif path.suffix == ".txt":
            yield from _listed(path)
        elif path.suffix == ".jsonl":
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    if line.strip():
                        yield parse(json.loads(line))
        else:
            yield parse(json.loads(path.read_text(encoding="utf-8")))


def _listed(path: Path) -> Iterator[Case]:
    files: dict[str, dict[str, Case]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        file, _, name = line.partition(" ")
        if file not in files:
            files[file] = {case.name: case for case in read_cases([path.parent / file])}
        if name not in files[file]:
            raise CaseError(f"{path}: {file} has no case {name!r}")
        yield files[file][name]


def parse(given: dict[str, Any]) -> Case:
    """The case of a JSON object.

    ``expected_long_retention`` wins where it is there: what state must be kept for as long as it can matter.

    Raises:
        CaseError: a field that is unknown.
    """
    given = {name: value for name, value in given.items() if name not in _ABOUT}
    config = dict(given.pop("config", {}))
    unknown = set(config) - _CONFIG
    expected = given.pop("expected", [])
    case = Case(
        name=given.pop("name", "without a name"),
        topology=given.pop("topology"),
        records=given.pop("records"),
        expected=given.pop("expected_long_retention", expected),
        error=given.pop("error", None),
        mode=given.pop("mode", None),
        compare=given.pop("compare", "order"),
        batch=config.pop("batch", False),
        dropped_late=given.pop("dropped_late", None),
        config=config,
    )
    if unknown or given:
        raise CaseError(f"{case.name}: unknown fields {sorted(unknown | set(given))}")
    return case
