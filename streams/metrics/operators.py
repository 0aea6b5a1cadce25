"""The counters of a sub-topology by operator and by stage, from their flat names (`streams.runtime.counters`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streams.runtime.counters import ONE_BY_ONE

STAGES = ("deserialization", "processing", "production", "future")
"""The stages that have an error policy."""


@dataclass(slots=True)
class NodeMetrics:
    """The counters of one node, over all its tasks and readers.

    Attributes:
        records_in: The number of records received.
        records_out: The number of records forwarded; 0 for a sink.
        dropped: The number of records dropped, by reason.
        one_by_one: The number of records processed one by one although the node can process them together, by reason.
        other: Further counters of the operator by name, such as the calls of an `enrich`.
    """

    records_in: int = 0
    records_out: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    one_by_one: dict[str, int] = field(default_factory=dict)
    other: dict[str, int] = field(default_factory=dict)

    @property
    def skipped(self) -> int:
        """The number of dropped records that an error policy skipped or sent to the dead-letter topic."""
        return sum(self.dropped.get(stage, 0) for stage in STAGES)


def node_metrics(counters: Mapping[str, int]) -> dict[str, NodeMetrics]:
    """Counters by node, without those of whole stages and of tasks."""
    found: dict[str, NodeMetrics] = {}
    for name, count in counters.items():
        what, _, rest = name.partition(":")
        if not rest or what == "skipped" or (what == "dead_letters" and rest in STAGES):
            continue
        if what == "dropped":
            node, _, reason = rest.rpartition(":")
            found.setdefault(node, NodeMetrics()).dropped[reason] = count
        elif name.startswith(ONE_BY_ONE):
            node, _, reason = rest.partition(":")
            found.setdefault(node, NodeMetrics()).one_by_one[reason] = count
        elif what == "in":
            found.setdefault(rest, NodeMetrics()).records_in = count
        elif what == "out":
            found.setdefault(rest, NodeMetrics()).records_out = count
        else:
            found.setdefault(rest, NodeMetrics()).other[what] = count
    return found


def by_stage(counters: Mapping[str, int], what: str) -> dict[str, int]:
    """The counts of `skipped` or `dead_letters` by the stage whose error policy applied."""
    return {stage: counters[name] for stage in STAGES if (name := f"{what}:{stage}") in counters}
