"""An hour of a sub-topology in points of ten seconds: rate, lag, waiting times, dead letters, failed attempts and state.

The memory is bounded: `POINTS` points, each with the lags of at most `_PARTITIONS` partitions, 8 bytes each.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from state.kafka.topics import TopicPartition
from streams.metrics.application import SubTopologyMetrics

POINT_MS = 10_000
POINTS = 360
TROUBLE_MS = 600_000
"""How long dead letters and failed attempts are shown as trouble."""
_PARTITIONS = 256
_SHOWN = 32
"""The lags of this many partitions are shown, beginning with the one furthest behind."""
_UNKNOWN = -1

Percentiles = tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """What has gone wrong lately, while the application kept running."""

    dead_letters: int = 0
    failed_attempts: int = 0

    def plus(self, other: Trouble) -> Trouble:
        return Trouble(self.dead_letters + other.dead_letters, self.failed_attempts + other.failed_attempts)

    def since(self, before: Trouble) -> Trouble:
        return Trouble(
            max(0, self.dead_letters - before.dead_letters), max(0, self.failed_attempts - before.failed_attempts)
        )

    @classmethod
    def of(cls, sub: SubTopologyMetrics) -> Trouble:
        """What has gone wrong since the start."""
        return cls(sum(sub.dead_letters.values()), sum(one.failed_attempts for one in sub.tasks.values()))


NO_TROUBLE = Trouble()


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Ten seconds. Rates and counts are for the time since the point before, other figures for its end. None: unknown."""

    at_ms: int
    records_per_s: float | None
    arriving_per_s: float | None
    lag: int | None
    visible_ms: Percentiles
    trouble: Trouble
    state_bytes: int | None
    places: tuple[TopicPartition, ...]
    lags: array[int]


class FigureCurve:
    """The last hour of one sub-topology."""

    def __init__(self) -> None:
        self._points: deque[CurvePoint] = deque(maxlen=POINTS)
        # Totals count from the start of the process: what went wrong before the first look belongs to the first point.
        self._before: tuple[int, int | None, int | None] | None = None
        self._trouble = NO_TROUBLE
        self._places: tuple[TopicPartition, ...] = ()

    def add(
        self,
        at_ms: int,
        sub: SubTopologyMetrics,
        ends: tuple[int | None, int | None],
        visible: Callable[[], Percentiles],
    ) -> None:
        """Takes the current figures; a point is added once ten seconds have passed since the last one.

        `ends` has the sum of the next offsets and the sum of the end offsets. `visible` computes the percentiles of waiting times.
        """
        before = self._before
        if before is not None and at_ms // POINT_MS <= before[0] // POINT_MS:
            return
        self._before = (at_ms, *ends)
        if before is None:
            return
        places = tuple(sorted(sub.partitions)[:_PARTITIONS])
        # One tuple for all points with the same partitions.
        self._places = self._places if places == self._places else places
        trouble, self._trouble = Trouble.of(sub).since(self._trouble), Trouble.of(sub)
        sizes = [one.state.disk_bytes for one in sub.tasks.values() if one.state is not None]
        lags = (sub.partitions[place].lag for place in places)
        point = CurvePoint(
            at_ms,
            _per_s(before[1], ends[0], at_ms - before[0]),
            _per_s(before[2], ends[1], at_ms - before[0]),
            sub.lag,
            visible(),
            trouble,
            sum(sizes) if sizes else None,
            self._places,
            array("q", (_UNKNOWN if lag is None else lag for lag in lags)),
        )
        self._points.append(point)

    def trouble(self, at_ms: int, sub: SubTopologyMetrics) -> Trouble:
        """What has gone wrong in the last ten minutes."""
        found = Trouble.of(sub).since(self._trouble)
        for point in reversed(self._points):
            if point.at_ms <= at_ms - TROUBLE_MS:
                break
            found = found.plus(point.trouble)
        return found

    @property
    def as_json(self) -> dict[str, Any]:
        """One list for each curve, oldest first."""
        points = list(self._points)
        return {
            "at": [one.at_ms for one in points],
            "records_per_s": [one.records_per_s for one in points],
            "arriving_per_s": [one.arriving_per_s for one in points],
            "lag_records": [one.lag for one in points],
            "visible_after_p50_ms": [one.visible_ms[0] if one.visible_ms else None for one in points],
            "visible_after_p99_ms": [one.visible_ms[1] if one.visible_ms else None for one in points],
            "dead_letters": [one.trouble.dead_letters for one in points],
            "failed_attempts": [one.trouble.failed_attempts for one in points],
            "state_bytes": [one.state_bytes for one in points],
            "partitions": _partitions(points),
        }


def _partitions(points: Sequence[CurvePoint]) -> list[dict[str, Any]]:
    """The lags of the partitions that are furthest behind, furthest first."""
    last = points[-1] if points else None
    order = sorted(zip(last.lags, last.places, strict=True), key=lambda one: (-one[0], one[1])) if last else []
    # Points with the same partitions share the tuple of them.
    tuples = {id(point.places): point.places for point in points}
    at = {name: {place: index for index, place in enumerate(places)} for name, places in tuples.items()}

    def lag(point: CurvePoint, place: TopicPartition) -> int | None:
        index = at[id(point.places)].get(place)
        found = _UNKNOWN if index is None else point.lags[index]
        return None if found == _UNKNOWN else found

    return [
        {"topic": place[0], "partition": place[1], "lag_records": [lag(point, place) for point in points]}
        for _, place in order[:_SHOWN]
    ]


def _per_s(before: int | None, now: int | None, ms: int) -> float | None:
    return None if before is None or now is None else round(max(0, now - before) * 1000 / ms, 1)
