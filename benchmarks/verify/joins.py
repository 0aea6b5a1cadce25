"""Expected results of joins: two streams within a time difference, and a stream with a table as of each record's time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.generators.records import Columns
from benchmarks.verify.compare import Table

Ints = npt.NDArray[np.int64]


def stream_join(left: Columns, right: Columns, before_ms: int, after_ms: int, *, outer: bool) -> Table:
    """The pairs of numbers `n` of records of one key, the right one from `before_ms` before to `after_ms` after the left one.

    Args:
        left: The left records: key, n, timestamp.
        right: The right ones.
        before_ms: How much earlier the right record may be.
        after_ms: How much later it may be.
        outer: Whether left records without a match are there with -1.
    """
    reach = before_ms + after_ms
    origin = int(min(left["timestamp"].min(), right["timestamp"].min())) - reach
    span = int(max(left["timestamp"].max(), right["timestamp"].max())) - origin + 2 * reach + 1
    places = right["key"] * span + right["timestamp"] - origin
    order = np.argsort(places, kind="stable")
    places = places[order]
    mine = left["key"] * span + left["timestamp"] - origin
    low = np.searchsorted(places, mine - before_ms, "left")
    matches = np.searchsorted(places, mine + after_ms, "right") - low
    lefts = np.repeat(left["n"], matches)
    within = np.arange(len(lefts)) - np.repeat(np.cumsum(matches) - matches, matches)
    rights = right["n"][order][np.repeat(low, matches) + within]
    if outer:
        alone = left["n"][matches == 0]
        lefts, rights = np.append(lefts, alone), np.append(rights, np.full(len(alone), -1))
    return {"l": lefts, "r": rights}


def as_of(stream: Columns, table: Columns, *, tie: str) -> Ints:
    """The version that each stream record joins with: the key's last one of its time; -1: none.

    Args:
        stream: key, timestamp.
        table: key, version, timestamp.
        tie: Whether a version of the same millisecond counts as earlier: `right` yes, `left` no.
    """
    origin = int(min(stream["timestamp"].min(), table["timestamp"].min()))
    span = int(max(stream["timestamp"].max(), table["timestamp"].max())) - origin + 2
    places = table["key"] * span + table["timestamp"] - origin
    order = np.argsort(places, kind="stable")
    mine = stream["key"] * span + stream["timestamp"] - origin
    at = np.searchsorted(places[order], mine, "right" if tie == "right" else "left") - 1
    found = order[np.maximum(at, 0)]
    known = (at >= 0) & (table["key"][found] == stream["key"])
    return np.where(known, table["version"][found], -1)
