"""What an application has done lately: rates, micro-batches, waiting times and events, kept in memory within fixed bounds.

`streams.metrics` has totals; rates and curves need them at several moments. The history takes a sample with each micro-batch, and
whenever somebody looks. Nothing here asks Kafka or Spark. Thread-safe.

A record's waiting time ("visible after") is the time from its timestamp until the driver knows of its commit. A step reports the
newest timestamp of each partition; the records before it are taken as evenly spread over the time in which they came. So the
figures mean something where timestamps are the clock's, and `event_time_lag_ms` shows where they are not. The driver hears of live
steps once a second (`streams.engine.live.slot`), so their waiting times are up to a second too long.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from math import log
from typing import Any

import orjson

from streams.logs.events import PAUSED, RESUMED, Event
from streams.metrics.application import ApplicationMetrics, MicroBatchFigures, StepFigures, SubTopologyMetrics
from streams.ui.curves import FigureCurve

RATE_OVER_MS = 10_000
"""The period that rates are averaged over."""
WAITS_OVER_MS = 60_000
"""The period whose waiting times count."""
OLD_MS = 600_000
"""Records that are older when they become visible are not counted: their age says nothing about the application."""
_SAMPLE_MS = 500
"""The shortest time between two samples."""
_ENDS = 1_200
_EVENTS = 500
_FOLLOWED = 500
_STEPS = 20_000
"""The most steps of a sub-topology that are kept: some megabytes."""
_MICRO_BATCHES = 240
_LIVE_REPORTS = 4_800
_POINTS = 5
"""The number of points that stand for the waiting times of a partition's records in a micro-batch."""
_WIDTH = 1.03
"""The ratio between the waiting times of two neighbouring buckets."""
_BUCKETS = 1 / log(_WIDTH)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """The totals of a sub-topology at one moment.

    Attributes:
        read: The sum of the next offsets of its partitions; None: unknown.
        end: The sum of their end offsets; None: unknown.
    """

    at_ms: int
    records_in: int
    records_out: int
    cpu_s: float
    counters: Mapping[str, int]
    read: int | None
    end: int | None

    @classmethod
    def of(cls, at_ms: int, sub: SubTopologyMetrics) -> Sample:
        known = [one for one in sub.partitions.values() if one.lag is not None]
        return cls(
            at_ms,
            sub.records_in,
            sub.records_out,
            sum(task.cpu_s for task in sub.tasks.values()),
            sub.counters,
            sum(one.position or 0 for one in known) if known else None,
            sum(one.end or 0 for one in known) if known else None,
        )


@dataclass(frozen=True, slots=True)
class StepPoint:
    """The figures of a step, or of the steps in a live report; durations are for one step.

    Milliseconds are rounded here, once, because the page shows each of them many times.
    """

    task: int
    records: int
    seconds: Mapping[str, float]
    total_s: float
    step_ms: float
    cpu_ms: float
    host: str
    attempt: int
    skipped: bool
    steps: int
    records_out: int

    @classmethod
    def of(cls, step: StepFigures) -> StepPoint:
        return cls(
            step.task,
            step.records_in,
            step.seconds,
            step.total_s,
            round(step.total_s * 1000, 1),
            round(step.cpu_s / step.steps * 1000, 1),
            step.host,
            step.attempt,
            step.skipped,
            step.steps,
            step.records_out,
        )


@dataclass(frozen=True, slots=True)
class FollowedRecord:
    """A sample of the followed key (`streams.engine.graph.following`), with the step that it comes from."""

    at_ms: int
    sub_topology: str
    task: int
    sample: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MicroBatchPoint:
    """The figures of a micro-batch, or of a task's live report."""

    batch_id: int
    at_ms: int
    began_ms: int | None
    steps: tuple[StepPoint, ...]
    live: bool = False


class _Waits:
    """The waiting times of the last `WAITS_OVER_MS`, counted in buckets that are a few per cent wide."""

    def __init__(self) -> None:
        self._added: deque[tuple[int, Counter[int]]] = deque()
        self._counts: Counter[int] = Counter()

    def add(self, at_ms: int, spans: Iterable[tuple[int, float, int]]) -> None:
        """Adds the records of a micro-batch: for each partition the shortest and longest waiting time, and their number."""
        added: Counter[int] = Counter()
        for shortest_ms, longest_ms, records in spans:
            points = min(_POINTS, records)
            step = (longest_ms - shortest_ms) / points
            for number in range(points):
                ms = shortest_ms + step * (number + 0.5)
                added[round(log(max(1.0, ms)) * _BUCKETS)] += records * _POINTS // points
        self._added.append((at_ms, added))
        self._counts.update(added)
        self.forget(at_ms)

    def forget(self, now_ms: int) -> None:
        while self._added and self._added[0][0] < now_ms - WAITS_OVER_MS:
            self._counts.subtract(self._added.popleft()[1])
            self._counts = +self._counts

    def percentiles_ms(self, shares: Sequence[float]) -> tuple[float, ...] | None:
        """The percentiles of the waiting times in ms; None: there were no records."""
        total, ordered = sum(self._counts.values()), sorted(self._counts.items())
        return tuple(_percentile(ordered, total * share) for share in shares) if total else None


def _percentile(ordered: Sequence[tuple[int, int]], wanted: float) -> float:
    passed = accumulate(count for _, count in ordered)
    bucket = next(bucket for (bucket, _), so_far in zip(ordered, passed, strict=True) if so_far >= wanted)
    return float(round(_WIDTH**bucket, 1))


@dataclass(frozen=True, slots=True)
class Work:
    """What a task has done over the last minute.

    Attributes:
        busy: The share of the time in which it had a step; in the rest it waited for records, or for other tasks.
        cpu: The share in which it used a core.
        in_per_s: Records to the task in a second.
        out_per_s: Records that it wrote in a second.
    """

    busy: float
    cpu: float
    in_per_s: float
    out_per_s: float


@dataclass
class SubHistory:
    """The history of one sub-topology.

    Attributes:
        samples: The samples of the last seconds, from which rates are computed.
        ends: (time, offsets read, end offsets) over the last minutes, at most one in `_SAMPLE_MS`.
        micro_batches: The last micro-batches, oldest first.
    """

    samples: deque[Sample] = field(default_factory=deque)
    ends: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_ENDS))
    micro_batches: deque[MicroBatchPoint] = field(default_factory=deque)
    curve: FigureCurve = field(default_factory=FigureCurve)
    _waits: _Waits = field(default_factory=_Waits)
    _newest: dict[tuple[str, int], int] = field(default_factory=dict)
    _step_count: int = 0

    def is_due(self, at_ms: int) -> bool:
        """Whether it is time for a sample."""
        return not self.samples or at_ms - self.samples[-1].at_ms >= _SAMPLE_MS

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)
        while len(self.samples) > 2 and self.samples[1].at_ms <= sample.at_ms - RATE_OVER_MS:
            self.samples.popleft()
        if sample.read is not None and sample.end is not None:
            self.ends.append((sample.at_ms, sample.read, sample.end))

    def measured(self, batch: MicroBatchFigures) -> None:
        before = self.micro_batches[-1] if self.micro_batches else None
        point = MicroBatchPoint(
            batch.batch_id,
            batch.at_ms,
            batch.began_ms,
            tuple(StepPoint.of(step) for step in batch.steps),
            any(step.live for step in batch.steps),
        )
        self._wait(batch, before)
        self.micro_batches.append(point)
        self._step_count += len(point.steps)
        most = _LIVE_REPORTS if point.live else _MICRO_BATCHES
        while len(self.micro_batches) > most or (self._step_count > _STEPS and len(self.micro_batches) > 1):
            self._step_count -= len(self.micro_batches.popleft().steps)

    def _wait(self, batch: MicroBatchFigures, before: MicroBatchPoint | None) -> None:
        spans = []
        times = [time for step in batch.steps if not step.skipped for time in step.event_times]
        share = max(1, round(batch.records_in / max(1, len(times))))
        for one in times:
            place, newest = (one.topic, one.partition), one.event_time_ms
            oldest = min(newest, max(self._newest.get(place, newest), _since(batch, before, newest)))
            self._newest[place] = newest
            if batch.at_ms - newest > OLD_MS:
                continue
            # Of n records that are evenly spread over the time (oldest, newest], the first is an nth of it away from its beginning.
            longest = batch.at_ms - newest + (newest - oldest) * (share - 1) / share
            spans.append((batch.at_ms - newest, longest, share))
        self._waits.add(batch.at_ms, spans)

    @property
    def live(self) -> bool:
        """Whether the sub-topology runs live now."""
        return bool(self.micro_batches) and self.micro_batches[-1].live

    def columns(self, most: int) -> list[MicroBatchPoint]:
        """The last micro-batches. The live reports that tasks send in the same second count as one."""
        found: list[MicroBatchPoint] = []
        for point in reversed(self.micro_batches):
            last = found[-1] if found else None
            if last and _together(point, last):
                found[-1] = replace(last, steps=(*point.steps, *last.steps))
            elif len(found) < most:
                found.append(point)
            else:
                break
        return found[::-1]

    def per_s(self, value: Callable[[Sample], float | None]) -> float | None:
        """The growth of a total per second; None: not known yet."""
        known = (one for one in self.samples if value(one) is not None)
        if (first := next(known, None)) is None or (last := self.samples[-1]) is first:
            return None
        return max(0.0, (value(last) or 0) - (value(first) or 0)) * 1000 / max(1, last.at_ms - first.at_ms)

    def waits_ms(self, now_ms: int, *shares: float) -> tuple[float, ...] | None:
        """Percentiles of the waiting times of records that became visible lately; None: there were none."""
        self._waits.forget(now_ms)
        return self._waits.percentiles_ms(shares)

    @property
    def usual_ms(self) -> float | None:
        """The median duration of the last micro-batches; None: the sub-topology runs live, or has had none yet."""
        took = sorted(one.at_ms - one.began_ms for one in self.micro_batches if one.began_ms is not None)
        return None if self.live or not took else took[len(took) // 2]

    def falls_behind(self, now_ms: int) -> bool:
        """Whether the lag grows: its minimum in the last third of a minute is above its maximum in the first third.

        A single moment does not show that, because the lag rises and falls with each micro-batch.
        """
        lags = [(now_ms - at, end - read) for at, read, end in self.ends if now_ms - at <= WAITS_OVER_MS]
        recent = [lag for age, lag in lags if age <= WAITS_OVER_MS / 3]
        before = [lag for age, lag in lags if age >= WAITS_OVER_MS * 2 / 3]
        return bool(recent and before) and min(recent) > max(before)

    def work(self, now_ms: int) -> dict[int, Work]:
        """The work of each task over the last minute, or since the first micro-batch."""
        first = self.micro_batches[0] if self.micro_batches else None
        if first is None:
            return {}
        began = first.at_ms if first.began_ms is None else first.began_ms
        since = max(now_ms - WAITS_OVER_MS, began)
        span_ms, done = max(1_000, now_ms - since), defaultdict(list)
        for batch in reversed(self.micro_batches):
            if batch.at_ms < since:
                break
            for step in batch.steps:
                done[step.task].append(step)
        return {
            task: Work(
                min(1.0, sum(one.step_ms * one.steps for one in steps) / span_ms),
                min(1.0, sum(one.cpu_ms * one.steps for one in steps) / span_ms),
                sum(one.records for one in steps if not one.skipped) * 1000 / span_ms,
                sum(one.records_out for one in steps if not one.skipped) * 1000 / span_ms,
            )
            for task, steps in done.items()
        }

    def lag_ms(self, now_ms: int) -> int | None:
        """The time since the topics' ends were where reading is now; None: the history does not reach back so far."""
        if not self.ends:
            return None
        _, read, end = self.ends[-1]
        if read >= end:
            return 0
        # End offsets only grow, but for topics that are made again.
        at = bisect_right(self.ends, read, key=lambda one: one[2])
        return now_ms - self.ends[at - 1][0] if at else None


def _together(one: MicroBatchPoint, later: MicroBatchPoint) -> bool:
    """Whether two are live reports of the same second and of different tasks."""
    tasks = {step.task for step in later.steps}
    same_second = one.live and later.live and one.at_ms // 1_000 == later.at_ms // 1_000
    return same_second and tasks.isdisjoint(step.task for step in one.steps)


def _since(batch: MicroBatchFigures, before: MicroBatchPoint | None, newest: int) -> int:
    """The earliest time at which the records of a micro-batch can have arrived; 0 if that is unknown.

    A micro-batch that began as soon as the previous one ended has the records that arrived while the previous one ran. Any other
    micro-batch waited for records, and took the first that arrived.
    """
    began = batch.began_ms
    if before is None or began is None or before.began_ms is None or newest < before.began_ms:
        return 0
    return before.began_ms if began - before.at_ms < RATE_OVER_MS / 10 else min(began, newest)


class History:
    """The history of one application.

    Attributes:
        letters_found: The number of dead letters of the last ten minutes in Kafka, if the application runs elsewhere, so that they
            are not counted here.
    """

    def __init__(self, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._subs: dict[str, SubHistory] = {}
        self._events: deque[Event] = deque(maxlen=_EVENTS)
        self._received: deque[FollowedRecord] = deque(maxlen=_FOLLOWED)
        self._dropped: deque[FollowedRecord] = deque(maxlen=_FOLLOWED)
        self._restores: dict[tuple[str, int, str], tuple[int, int]] = {}
        self._paused: dict[str | None, int] = {}
        self.letters_found = 0

    def happened(self, event: Event) -> None:
        """Notes an event. An `EventListener`."""
        with self._lock:
            self._events.append(event)
            if event.kind is PAUSED:
                self._paused[event.sub_topology] = int(event.fields.get("since_ms") or event.time_ms)
            elif event.kind is RESUMED:
                self._paused.pop(event.sub_topology, None)

    def measured(self, batch: MicroBatchFigures) -> None:
        """Notes a micro-batch. A `MetricsListener`."""
        with self._lock:
            self._subs.setdefault(batch.sub_topology, SubHistory()).measured(batch)
            for step in batch.steps:
                for text in step.followed:
                    sample = orjson.loads(text)
                    to = self._received if sample["dropped"] is None else self._dropped
                    to.append(FollowedRecord(batch.at_ms, batch.sub_topology, step.task, sample))

    def sample(self, app: ApplicationMetrics) -> None:
        """Takes a sample of the totals of an application."""
        with self._lock:
            for name, sub in app.sub_topologies.items():
                known = self._subs.setdefault(name, SubHistory())
                if known.is_due(app.at_ms):
                    now = Sample.of(app.at_ms, sub)
                    known.add(now)
                    known.curve.add(app.at_ms, sub, (now.read, now.end), partial(known.waits_ms, app.at_ms, 0.5, 0.99))
                for (task, store), one in sub.restores.items():
                    if one.remaining:
                        self._restores.setdefault((name, task, store), (app.at_ms, one.remaining))
                    else:
                        self._restores.pop((name, task, store), None)

    def restored_per_s(self, sub: str, task: int, store: str, now_ms: int, remaining: int) -> float | None:
        """How many changelog offsets a restore reads in a second; None: not known yet."""
        with self._lock:
            since = self._restores.get((sub, task, store))
        if since is None or now_ms <= since[0]:
            return None
        return max(0, since[1] - remaining) * 1000 / (now_ms - since[0])

    def paused_since_ms(self) -> dict[str | None, int]:
        """When each paused sub-topology was paused, in ms since 1970; the key None is the whole application."""
        with self._lock:
            return dict(self._paused)

    def events(self) -> list[Event]:
        """The last events, oldest first."""
        with self._lock:
            return list(self._events)

    def followed(self) -> tuple[list[FollowedRecord], list[FollowedRecord]]:
        """The last samples of the followed key, oldest first: the received ones, and the dropped ones."""
        with self._lock:
            return list(self._received), list(self._dropped)

    @contextmanager
    def reading(self) -> Iterator[Mapping[str, SubHistory]]:
        """The histories of the sub-topologies, for a `with` block during which nothing is added to them."""
        with self._lock:
            yield self._subs
