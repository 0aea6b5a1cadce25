"""The counters of a driver by node: records in, records out, and records dropped by reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_POLICIES = ("deserialization", "processing", "production", "future")


@dataclass(slots=True)
class NodeMetrics:
    """The counters of one node, over all its tasks and readers.

    Attributes:
        records_in: The number of records received.
        records_out: The number of records forwarded; 0 for a sink.
        dropped: The number of records dropped, by reason.
        other: Further counters of the operator by name, such as the calls of an `enrich`.
    """

    records_in: int = 0
    records_out: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    other: dict[str, int] = field(default_factory=dict)

    @property
    def skipped(self) -> int:
        """The number of dropped records that an error policy skipped or sent to the dead-letter topic."""
        return sum(self.dropped.get(stage, 0) for stage in _POLICIES)


def node_metrics(counters: Mapping[str, int]) -> dict[str, NodeMetrics]:
    """Counters (`streams.runtime.counters`) by node, without those of whole stages."""
    found: dict[str, NodeMetrics] = {}
    for name, count in counters.items():
        what, _, rest = name.partition(":")
        if what in ("skipped", "dead_letters"):
            continue
        node, _, reason = rest.rpartition(":") if what == "dropped" else (rest, "", "")
        of = found.setdefault(node, NodeMetrics())
        if what == "in":
            of.records_in = count
        elif what == "out":
            of.records_out = count
        elif what == "dropped":
            of.dropped[reason] = count
        else:
            of.other[what] = count
    return found
