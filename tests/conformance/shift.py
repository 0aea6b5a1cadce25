"""Moves a case away from the timestamp 0, which librdkafka takes for "now" and so cannot write.

All times of the input are moved on by a multiple of everything that is aligned to the epoch, and those of the output back;
so the case stays the same one, unless a window would begin before 0, or a function shows times as values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.conformance.case import Case, CaseError
from tests.conformance.compare import Row
from tests.conformance.json_values import canonical

_ALIGNED = {"size_ms", "interval_ms"}
_NOT_MOVABLE = ("hopping", "sliding", "window_start", "window_end", "pair_with_key", '"key"}', "punctuate_stream_time")


def away_from_zero(case: Case) -> tuple[Case, int]:
    """The case with its input moved, and by how much, ms: 0 where there is no need.

    Raises:
        CaseError: it cannot be moved.
    """
    if all(record.get("timestamp") != 0 for record in (*case.records, *case.expected)):
        return case, 0
    text = json.dumps(case.topology)
    if any(word in text for word in _NOT_MOVABLE):
        raise CaseError("not for Kafka: it has the timestamp 0, and its windows or values would not move with it")
    by = math.lcm(1000, *_aligned(list(case.topology)))
    records = [{**r, "timestamp": r["timestamp"] + by} if "timestamp" in r else r for r in case.records]
    return replace(case, records=records), by


def moved_back(row: Row, by: int) -> Row:
    """A row of a moved case, as the case expects it."""
    window = json.loads(row.window)
    if window is not None:
        window = {edge: time - by for edge, time in window.items()}
    return row._replace(timestamp=row.timestamp - by, window=canonical(window))


def _aligned(part: Any) -> Iterator[int]:
    if isinstance(part, dict):
        yield from (value for name, value in part.items() if name in _ALIGNED and value)
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from _aligned(one)
