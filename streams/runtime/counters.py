"""Counters of one step, with flat names, so that they can be added up over tasks and printed.

Names: `in:<node>`, `out:<node>`, `dropped:<node>:<reason>`, `skipped:<stage>`, `dead_letters:<stage>`;
`one_by_one:<node>:<reason>`: records of steps that a node should have processed together, but could not; of `enrich`:
`calls:<node>`, `retries:<node>` (repeated calls), `failures:<node>` (failed calls), `call_ms:<node>` (their total duration).
`restored_from_copy`: 1 if the step had to restore its stores and began with a snapshot or a replica's copy.
`early:<source>`: rows from outside Kafka with a time before 1970.
`moved`, which the driver counts: steps on another host than the step of the task before.
"""

from __future__ import annotations

from typing import Final

ONE_BY_ONE: Final = "one_by_one:"


class Counters(dict[str, int]):
    """Name -> count; a name without counts is absent."""

    def add(self, name: str, count: int = 1) -> None:
        if count:
            self[name] = self.get(name, 0) + count
