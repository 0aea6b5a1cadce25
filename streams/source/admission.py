"""How much of a backlog a micro-batch takes: at most `limit` offsets, aligned in time.

Taking the same number of records from every partition would let a small partition run days ahead of a large one, and what
comes from the large one would be late. So a time is chosen and every partition ends at its first record past it: a replay
sees the partitions in the order of their timestamps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

TopicPartition = tuple[str, int]
Positions = Mapping[TopicPartition, int]

GOOD_ENOUGH = 0.75
"""The search ends when a batch takes at least this share of the limit."""


def admit(
    start: Positions,
    end: Positions,
    limit: int,
    newest_ms: Mapping[TopicPartition, int],
    oldest_ms: int,
    offsets_at: Callable[[int], Positions],
) -> dict[TopicPartition, int]:
    """Chooses where a micro-batch ends.

    Args:
        start: next offset of each partition.
        end: where each partition ends now.
        limit: offsets that may be taken, over all partitions.
        newest_ms: largest timestamp of each partition, ms.
        oldest_ms: a time that everything up to is known to be admissible (the last choice), ms.
        offsets_at: first offset of each partition whose timestamp is >= a time (its end if there is none).

    Returns:
        The chosen end of each partition: start <= chosen <= end.
    """
    backlog = {tp: max(0, end[tp] - start[tp]) for tp in end}
    if sum(backlog.values()) <= limit:
        return {tp: max(start[tp], end[tp]) for tp in end}
    best: dict[TopicPartition, int] | None = None
    low, high = oldest_ms, max((newest_ms[tp] for tp in end if backlog[tp]), default=oldest_ms) + 1
    taken_low, taken_high = 0, sum(backlog.values())
    while high - low > 1:
        at = _probe(low, high, taken_low, taken_high, limit)
        found = offsets_at(at)
        chosen = {tp: min(max(found[tp], start[tp]), max(end[tp], start[tp])) for tp in end}
        taken = sum(chosen[tp] - start[tp] for tp in end)
        if taken > limit:
            high, taken_high = at, taken
            continue
        low, taken_low = at, taken
        if taken:
            best = chosen
        if taken >= limit * GOOD_ENOUGH:
            break
    return best or _in_proportion(start, backlog, limit)


def _probe(low: int, high: int, taken_low: int, taken_high: int, limit: int) -> int:
    """Where to look next: by interpolation towards a little less than the limit, kept off the ends so that it halves."""
    share = (limit * (1 + GOOD_ENOUGH) / 2 - taken_low) / max(1, taken_high - taken_low)
    share = min(max(share, 0.05), 0.95)
    return min(max(low + int((high - low) * share), low + 1), high - 1)


def _in_proportion(start: Positions, backlog: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """One timestamp has more records than the limit: time cannot cut there, so each partition gives one and its share."""
    waiting = sum(1 for left in backlog.values() if left)
    spare, rest = max(0, limit - waiting), max(1, sum(backlog.values()) - waiting)
    return {tp: start[tp] + 1 + (left - 1) * spare // rest if left else start[tp] for tp, left in backlog.items()}
