"""How many records joins have looked up, and how many they have not found, since the application began.

The driver alone knows the counters, and they begin at zero with each start. So a task also adds these counts to its state, which is
in its commit markers: `streams status` and `streams doctor` read them there, from any host, even if the application does not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from streams.engine.graph.settings import LOOKED_UP, UNMATCHED
from streams.wording import counted

STATE: Final = "joins"
"""The name of these counts in the state of a task: node -> `looked_up` and, by reason, how many were not found."""
_ALL: Final = "looked_up"
_REASONS: Final = {
    "no_row": "whose key the table did not have then",
    "no_reference": "to which no row referred then",
    "no_left_record": "of the right side for which no left one came in time",
    "no_right_record": "of the left side for which no right one came in time",
    "null_key": "without a key",
    "null_foreign_key": "without a foreign key",
}
_FEWEST: Final = 100
_NEARLY_ALL: Final = 0.9


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The look-ups of one node of a join: one side of a join of tables, or both sides of a join of streams.

    Attributes:
        number: The number of records that it has looked up on the other side.
        missing: Reason -> how many of them found no match there.
    """

    node: str
    number: int = 0
    missing: Mapping[str, int] = field(default_factory=dict)

    @property
    def found_nothing(self) -> int:
        return sum(self.missing.values())

    @property
    def finds_hardly_any(self) -> bool:
        """Whether it finds so little that the two sides may not fit together."""
        return self.number >= _FEWEST and self.found_nothing > _NEARLY_ALL * self.number

    def says(self, where: str = "") -> str:
        """Says in one line how many records found no match, and why. `where` names the table."""
        why = ", ".join(
            f"{count:,} {_REASONS.get(reason, reason)}" for reason, count in sorted(self.missing.items()) if count
        )
        found = f"found nothing in {where!r}" if where else "found nothing"
        return f"join {self.node!r}: {self.found_nothing:,} of {counted(self.number, 'record')} {found} ({why})"


def looked_up_in(counters: Mapping[str, int]) -> list[LookedUp]:
    """Reads the look-ups from the counters of a sub-topology."""
    return _read(_of_nodes(counters))


def looked_up_by(states: Iterable[Mapping[str, Any]]) -> list[LookedUp]:
    """Reads the look-ups from the states of the tasks of a sub-topology."""
    return _read(merged([state.get("task", {}).get(STATE, {}) for state in states]))


def note_looked_up(operator_state: dict[str, Any], counters: Mapping[str, int]) -> None:
    """Adds the look-ups of a step to the state of its task."""
    if found := _of_nodes(counters):
        of_task = operator_state.setdefault("task", {})
        of_task[STATE] = merged([of_task.get(STATE, {}), found])


def merged(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """Adds up several states."""
    sums: dict[str, dict[str, int]] = {}
    for part in parts:
        for node, counts in part.items():
            mine = sums.setdefault(node, {})
            for name, count in counts.items():
                mine[name] = mine.get(name, 0) + count
    return sums


def _of_nodes(counters: Mapping[str, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for node, name, count in _counts(counters):
        found.setdefault(node, {})[name] = count
    return found


def _counts(counters: Mapping[str, int]) -> Iterator[tuple[str, str, int]]:
    for name, count in counters.items():
        if name.startswith(LOOKED_UP):
            yield name.removeprefix(LOOKED_UP), _ALL, count
        elif name.startswith(UNMATCHED):
            node, _, reason = name.removeprefix(UNMATCHED).rpartition(":")
            yield node, reason, count


def _read(nodes: Mapping[str, Mapping[str, int]]) -> list[LookedUp]:
    return [
        LookedUp(node, counts.get(_ALL, 0), {name: count for name, count in counts.items() if name != _ALL})
        for node, counts in sorted(nodes.items())
    ]
