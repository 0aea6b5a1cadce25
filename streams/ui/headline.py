"""The first line of the page: the state of an application in one sentence, and the figures in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from streams.config.settings import age_in_words
from streams.metrics.application import HISTORICAL_MS, ApplicationMetrics
from streams.ui.curves import NO_TROUBLE, TROUBLE_MS, Trouble
from streams.ui.history import OLD_MS

Level = Literal["ok", "busy", "bad"]
"""`ok`: it works and keeps up; `busy`: it does something that ends by itself; `bad`: a person has to look."""
_CAUGHT_UP_MS = 5_000
_USUAL = 3
"""An application keeps up if its lag is below this many micro-batches, or below `_CAUGHT_UP_MS`."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """The speed of an application, or of a part of it, and how far it is behind. None: unknown.

    Attributes:
        records_per_s: Offsets read in a second.
        arriving_per_s: Offsets that are added to its topics in a second.
        lag: Offsets that are left to read.
        lag_ms: The time lag, ms: how long ago the topics had the offsets being read now as their ends.
        visible_ms: How long records take to become visible: the median and the 99th percentile.
        event_time_lag_ms: How far the largest event time is behind the clock.
        usual_ms: How long a micro-batch takes; None: unknown, or live.
        falls_behind: Whether the lag has grown over the last minute.
        at_most: Whether `visible_ms` is an upper bound: the driver hears of live steps only once a second.
    """

    records_per_s: float | None = None
    arriving_per_s: float | None = None
    lag: int | None = None
    lag_ms: int | None = None
    visible_ms: tuple[float, float] | None = None
    event_time_lag_ms: int | None = None
    usual_ms: float | None = None
    falls_behind: bool = False
    at_most: bool = False

    @property
    def behind(self) -> bool:
        """Whether more is left to read than an application that keeps up has."""
        return bool(self.lag) and (
            self.lag_ms is None or self.lag_ms > max(_CAUGHT_UP_MS, _USUAL * (self.usual_ms or 0))
        )

    @property
    def caught_up_in_s(self) -> float | None:
        """The seconds until nothing is left to read at the current speed; 0: nothing is left; None: unknown, or never."""
        if self.lag == 0:
            return 0.0
        if self.lag is None or self.records_per_s is None or self.arriving_per_s is None:
            return None
        faster = self.records_per_s - self.arriving_per_s
        return self.lag / faster if faster > 0 else None


@dataclass(frozen=True, slots=True)
class Headline:
    state: str
    level: Level
    sentence: str
    pace: Throughput


def headline(
    app: ApplicationMetrics,
    paces: Mapping[str, Throughput],
    paused_since_ms: Mapping[str | None, int],
    trouble: Trouble = NO_TROUBLE,
    silent_s: float | None = None,
) -> Headline:
    """The headline of an application whose sub-topologies have these paces.

    `trouble` has gone wrong in the last ten minutes; for `silent_s` seconds the brokers have not answered (None: they do).
    """
    pace = _together(paces.values())
    ready = app.readiness
    if not ready.alive:
        return Headline("FAILED", "bad", ready.why, pace)
    if silent_s is not None:
        why = f"no answer from the brokers for {_ms(1000 * silent_s)}: the figures are from before"
        return Headline("WAITING", "bad", why if ready.ready else f"{ready.why}; {why}", pace)
    if paused_since_ms:
        names = sorted(name for name in paused_since_ms if name is not None)
        what = "everything" if None in paused_since_ms else ", ".join(names)
        since = age_in_words(app.at_ms - min(paused_since_ms.values()))
        return Headline("PAUSED", "busy", f"{what} is paused for {since} · {_lag(pace)}", pace)
    if not ready.ready:
        restoring = any(sub.running_restores for sub in app.sub_topologies.values())
        if not all(name == "start" or name.startswith("first ") for name in ready.obstacles):
            stops = "stop" in ready.obstacles
            return Headline("STOPPING" if stops else "WAITING", "busy" if stops else "bad", ready.why, pace)
        return Headline("RESTORING" if restoring else "STARTING", "busy", ready.why, pace)
    level: Level = "busy" if pace.behind or trouble != NO_TROUBLE else "ok"
    sentence = " · ".join((*_troubles(trouble), *_parts(pace)))
    return Headline("RUNNING", "bad" if pace.behind and pace.falls_behind else level, sentence, pace)


def _together(paces: Iterable[Throughput]) -> Throughput:
    """The pace of the whole application: the sums of records, and the longest waiting times."""
    found = list(paces)

    def total(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    lags = [one.lag for one in found if one.lag is not None]
    visible = [one.visible_ms for one in found if one.visible_ms is not None]
    return Throughput(
        total(one.records_per_s for one in found),
        total(one.arriving_per_s for one in found),
        sum(lags) if lags else None,
        max((one.lag_ms for one in found if one.lag_ms is not None), default=None),
        (max(one[0] for one in visible), max(one[1] for one in visible)) if visible else None,
        max((one.event_time_lag_ms for one in found if one.event_time_lag_ms is not None), default=None),
        max((one.usual_ms for one in found if one.usual_ms is not None), default=None),
        any(one.behind and one.falls_behind for one in found),
        any(one.at_most for one in found),
    )


def _troubles(trouble: Trouble) -> Iterable[str]:
    counts = (trouble.dead_letters, "dead letter"), (trouble.failed_attempts, "failed attempt")
    found = [f"{count:,} {what}{'' if count == 1 else 's'}" for count, what in counts if count]
    if found:
        yield f"{' and '.join(found)} in the last {TROUBLE_MS // 60_000} min"


def _parts(pace: Throughput) -> Iterable[str]:
    if pace.records_per_s is not None:
        yield f"{pace.records_per_s:,.0f} records read/s"
    if pace.visible_ms is not None:
        yield f"visible after {'at most ' if pace.at_most else ''}{_ms(pace.visible_ms[0])} (p50), {_ms(pace.visible_ms[1])} (p99)"
    elif pace.event_time_lag_ms is not None and OLD_MS < pace.event_time_lag_ms <= HISTORICAL_MS:
        yield f"event time is {age_in_words(pace.event_time_lag_ms)} behind the clock"
    yield _lag(pace)
    if not pace.behind:
        return
    ends_s = pace.caught_up_in_s
    if pace.falls_behind:
        arrive = "" if pace.arriving_per_s is None else f": {pace.arriving_per_s:,.0f} records/s arrive"
        yield f"falling behind for a minute{arrive}"
    elif ends_s is not None:
        yield f"caught up in {age_in_words(int(ends_s * 1000))}"


def _lag(pace: Throughput) -> str:
    if pace.lag is None:
        return "lag unknown"
    if pace.lag == 0:
        return "nothing left to read"
    age = "" if pace.lag_ms is None else f", {_ms(pace.lag_ms)}"
    return f"lag {pace.lag:,} records{age}"


def _ms(ms: float) -> str:
    """A short time: `62 ms`, `1.3 s`, `12 min`."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 120_000 else age_in_words(int(ms))
