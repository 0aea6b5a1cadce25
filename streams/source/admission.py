"""The part of a backlog that a micro-batch takes: at most `limit` offsets, aligned in time.

Taking the same number of records from every partition would let a small partition run days ahead of a large one, whose
records would then be late. So the planner chooses a time, and every partition ends at its first record past that time: a
replay sees the partitions in the order of their timestamps.

The planner finds that record by reading a few of the partition's own records between its position and its end. Kafka's
time index is of no use here: it includes control records, which carry the broker's clock, and it covers the whole log, so
that one record dated far ahead, read long ago, would hold its partition back until all others are at their ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from streams.source.sampling import NEAR_END, BacklogSamples, Curve, Positions, Samples, TopicPartition

ROUNDS = 6
"""Most rounds of sampling for one micro-batch. Three or four are usual; what earlier micro-batches have seen is reused."""
NEAR = 256
"""A cut is certain once a record near it was sampled: no further away than this fraction of the partition's share."""
BETWEEN = 32
"""Or once it lies between two samples that are no further apart than this fraction, because in between time is almost linear."""


def admit(
    start: Positions, end: Positions, limit: int, samples: BacklogSamples, latest_ms: int
) -> dict[TopicPartition, int]:
    """Chooses where a micro-batch ends."""
    waiting = [tp for tp in end if end[tp] > start[tp]]
    chosen = {tp: max(start[tp], end[tp]) for tp in end}
    if sum(end[tp] - start[tp] for tp in waiting) <= limit:
        return chosen
    last = {tp: max(start[tp], end[tp] - NEAR_END) for tp in waiting}
    samples.look({tp: start[tp] for tp in waiting}, end)
    samples.look({tp: last[tp] for tp in waiting if not _reaches(samples, tp, start[tp], limit)}, end)
    cuts: dict[TopicPartition, int] = {}
    for _ in range(ROUNDS):
        earliest = samples.earliest(waiting, latest_ms)
        curves = {tp: Curve.of(start[tp], end[tp], samples.of(tp), earliest, latest_ms) for tp in waiting}
        cuts = _cuts(curves, limit)
        # For a partition that is not to be read at all, the sample at its start is enough.
        places = {
            tp: _look_for(samples.of(tp), start[tp], cut, last[tp]) for tp, cut in cuts.items() if cut > start[tp]
        }
        uncertain = {tp: place for tp, place in places.items() if place is not None}
        if not uncertain:
            break
        samples.look(uncertain, end)
    return chosen | cuts


def _look_for(samples: Samples, start: int, cut: int, last: int) -> int | None:
    """Where a sample makes a cut more certain; None where it is certain.

    Interpolation alone comes nearer from one side only, ever more slowly. So where one neighbour is much nearer than the other,
    the next sample is as far on the other side of the cut: then the two are close together.
    """
    cut, share = min(cut, last), cut - start
    around = samples.around(cut)
    near = min((abs(place - cut) for place in around), default=share)
    far = max((abs(place - cut) for place in around), default=share)
    if near <= share // NEAR or (len(around) == 2 and near + far <= max(1, share // BETWEEN)):
        return None
    if len(around) == 2 and near * 4 < far:
        below, above = around
        return min(cut + near, last) if cut - below < above - cut else max(cut - near, start)
    return cut


def _reaches(samples: BacklogSamples, tp: TopicPartition, start: int, limit: int) -> bool:
    """Whether a record is known beyond everything that this micro-batch can take."""
    offsets = samples.of(tp).offsets
    return bool(offsets) and offsets[-1] >= start + limit


def _cuts(curves: Mapping[TopicPartition, Curve], limit: int) -> dict[TopicPartition, int]:
    """Cuts all partitions at the latest time that keeps them within the limit, and fills the rest of the limit."""
    times = [time for curve in curves.values() for time in curve.times]
    below, above = min(times, default=0) - 1, max(times, default=0)
    low = {tp: curve.start for tp, curve in curves.items()}
    high = {tp: curve.end for tp, curve in curves.items()}
    taken = 0
    while above - below > 1:
        middle = (below + above) // 2
        cuts = {tp: curve.cut(middle) for tp, curve in curves.items()}
        found = sum(cut - curves[tp].start for tp, cut in cuts.items())
        if found <= limit:
            below, low, taken = middle, cuts, found
        else:
            above, high = middle, cuts
    return _filled(low, high, limit - taken)


def _filled(low: Positions, high: Positions, spare: int) -> dict[TopicPartition, int]:
    """Fills the rest of the limit with records of the next instant, from each partition in proportion."""
    gap = {tp: high[tp] - low[tp] for tp in low}
    total = max(1, sum(gap.values()))
    share = {tp: left * spare // total for tp, left in gap.items()}
    rest = spare - sum(share.values())
    for tp in islice((tp for tp in sorted(gap) if share[tp] < gap[tp]), rest):
        share[tp] += 1
    return {tp: low[tp] + share[tp] for tp in low}
