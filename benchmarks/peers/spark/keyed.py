"""The workloads as functions of one key's state and new rows: what users of Spark write by hand today.

`applyInPandasWithState` and `transformWithStateInPandas` run the same functions. Each returns the key's new state, the results,
and when it wants to be called again without rows, in event time.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.peers.spark.run import EVENT, READING, Run

Row: TypeAlias = tuple[Any, ...]
State: TypeAlias = Any


class Answer(NamedTuple):
    """What a step gives: the new state (None: nothing to keep), keys and values for Kafka, and the next time to be called."""

    state: State
    results: list[tuple[str, str | None]]
    timer_ms: int | None = None


Step: TypeAlias = Callable[[str, State, Sequence[Row], int], Answer]
"""Called with key, state (None at first), rows in order of time (milliseconds, then the columns), and the watermark."""


@dataclass(frozen=True)
class Program:
    """A workload.

    Attributes:
        rows: The input, with `key`, `timestamp`, `ms`, and the columns that the step needs.
        step: Makes the step from the run's parameters, which travels to the workers.
        mode: Spark's output mode: `update` for tables, `append` for lists.
    """

    rows: Callable[[Run, SparkSession], DataFrame]
    step: Callable[[Mapping[str, int]], Step]
    mode: str = "update"


# Inputs.


def readings(run: Run, spark: SparkSession) -> DataFrame:
    """`value` and `t` of readings."""
    value = F.col("v")[0].alias("value")
    return _late(run, run.read(spark, "events", READING)).select("key", "timestamp", "ms", value, "t")


def events(run: Run, spark: SparkSession) -> DataFrame:
    """`v` of events."""
    return _late(run, run.read(spark, "events", EVENT)).select("key", "timestamp", "ms", "v")


def all_events(run: Run, spark: SparkSession) -> DataFrame:
    """`v` of events, without a watermark."""
    return run.read(spark, "events", EVENT).select("key", "timestamp", "ms", "v")


def both_sides(run: Run, spark: SparkSession) -> DataFrame:
    """`role` and `n` of the events of two topics."""
    return _late(run, run.read_both(spark, "left", "right", EVENT)).select("key", "timestamp", "ms", "role", "n")


def events_and_table(run: Run, spark: SparkSession) -> DataFrame:
    """`role`, `n` and `version`."""
    records = run.read_both(spark, "events", "table", f"{EVENT}, version long")
    return records.select("key", "timestamp", "ms", "role", "n", "version")


def rows_and_probes(run: Run, spark: SparkSession) -> DataFrame:
    """`role`, `n` and `p`."""
    return run.read_both(spark, "rows", "probes", f"{EVENT}, p long").select("key", "timestamp", "ms", "role", "n", "p")


def _late(run: Run, rows: DataFrame) -> DataFrame:
    return rows.withWatermark("timestamp", run.milliseconds("grace_ms"))


# Steps.


def tumbling(parameters: Mapping[str, int]) -> Step:
    """Count, mean and largest `t` in tumbling windows, one Python call for each row."""
    size = parameters["window_ms"]

    def step(key: str, state: State, rows: Sequence[Row], watermark: int) -> Answer:
        windows = state or {}
        changed = set()
        for ms, value, t in rows:
            start = ms - ms % size
            if start + size > watermark:
                windows[start] = _added(windows.get(start, (0, 0.0, 0)), value, t)
                changed.add(start)
        results = [(f"{key}|{start}", _mean_and_time(*windows[start])) for start in sorted(changed)]
        return Answer({start: kept for start, kept in windows.items() if start + size > watermark} or None, results)

    return step


def totals(parameters: Mapping[str, int]) -> Step:
    """Count and mean without windows."""

    def step(key: str, state: State, rows: Sequence[Row], watermark: int) -> Answer:
        count, total = state or (0, 0.0)
        count, total = count + len(rows), total + sum(value for _, value in rows)
        return Answer((count, total), [(key, _mean(count, total))])

    return step


def sessions(parameters: Mapping[str, int]) -> Step:
    """Count and mean in sessions; a session that grows is deleted under its old key."""
    gap = parameters["gap_ms"]

    def step(key: str, state: State, rows: Sequence[Row], watermark: int) -> Answer:
        opened: list[tuple[int, int, int, float]] = state or []
        before = set(opened)
        for ms, value in rows:
            if ms + gap <= watermark:
                continue
            start, end, count, total = ms, ms, 1, value
            apart = []
            for other in opened:
                if other[1] + gap < ms or other[0] > ms + gap:
                    apart.append(other)
                else:
                    start, end = min(start, other[0]), max(end, other[1])
                    count, total = count + other[2], total + other[3]
            opened = sorted([*apart, (start, end, count, total)])
        gone = {one[:2] for one in before} - {one[:2] for one in opened}
        results: list[tuple[str, str | None]] = [(f"{key}|{start}|{end}", None) for start, end in sorted(gone)]
        results += [(f"{key}|{one[0]}|{one[1]}", _mean(one[2], one[3])) for one in opened if one not in before]
        return Answer([one for one in opened if one[1] + gap > watermark] or None, results)

    return step


def sliding(parameters: Mapping[str, int]) -> Step:
    """Count and mean in sliding windows as Kafka Streams has them: one ends at each record, one begins just after each."""
    difference = parameters["difference_ms"]

    def step(key: str, state: State, rows: Sequence[Row], watermark: int) -> Answer:
        taken = [(ms, value) for ms, value in rows if ms + difference > watermark]
        kept = sorted((state or []) + taken)
        times = [ms for ms, _ in kept]
        starts = set()
        for ms, _ in taken:
            near = times[bisect_left(times, ms - difference - 1) : bisect_right(times, ms + difference)]
            starts |= {start for at in near for start in (at - difference, at + 1) if start <= ms <= start + difference}
            if bisect_right(times, ms + difference + 1) > bisect_right(times, ms):
                starts.add(ms + 1)
        results = []
        for start in sorted(starts):
            values = [value for _, value in kept[bisect_left(times, start) : bisect_right(times, start + difference)]]
            results.append((f"{key}|{start}", _mean(len(values), sum(values))))
        return Answer(kept[bisect_left(times, watermark - 2 * difference - 1) :] or None, results)

    return step


def join_inner(parameters: Mapping[str, int]) -> Step:
    """Inner join of two streams."""
    return _join(parameters, unmatched=False)


def join_left(parameters: Mapping[str, int]) -> Step:
    """Left join of two streams; unmatched left records are emitted once the watermark has passed their windows."""
    return _join(parameters, unmatched=True)


def _join(parameters: Mapping[str, int], unmatched: bool) -> Step:
    before, after = parameters["before_ms"], parameters["after_ms"]

    def step(key: str, state: State, rows: Sequence[Row], watermark: int) -> Answer:
        left, right = state or ([], [])
        results: list[tuple[str, str | None]] = []
        for ms, role, n in rows:
            if role == "left":
                near = [other for other in right if ms - before <= other[0] <= ms + after]
                results += [(key, _pair(n, other[1])) for other in near]
                left.append([ms, n, bool(near)])
            else:
                near = [other for other in left if other[0] - before <= ms <= other[0] + after]
                results += [(key, _pair(other[1], n)) for other in near]
                right.append([ms, n])
                for other in near:
                    other[2] = True
        if unmatched:
            results += [(key, _pair(n, None)) for ms, n, matched in left if ms + after < watermark and not matched]
        left = [one for one in left if one[0] + after >= watermark]
        right = [one for one in right if one[0] + before >= watermark]
        ends = [ms + after for ms, _, _ in left] + [ms + before for ms, _ in right]
        return Answer((left, right) if ends else None, results, min(ends) + 1 if ends else None)

    return step


def table_join(parameters: Mapping[str, int]) -> Step:
    """Left join of events with the newest row of a table."""

    def step(key: str, state: State, rows: Sequence[Row], watermark: int) -> Answer:
        version, results = state, []
        for _, role, n, new in rows:
            if role == "table":
                version = new
            else:
                results.append((key, json.dumps({"n": n, "version": version})))
        return Answer(version, results)

    return step


def table_fill(parameters: Mapping[str, int]) -> Step:
    """A table, and probes that read it."""

    def step(key: str, state: State, rows: Sequence[Row], watermark: int) -> Answer:
        row, results = state, []
        for _, role, n, p in rows:
            if role == "rows":
                row = n
            elif row is not None:
                results.append((key, json.dumps({"p": p, "n": row})))
        return Answer(row, results)

    return step


def count(parameters: Mapping[str, int]) -> Step:
    """A counter."""

    def step(key: str, state: State, rows: Sequence[Row], watermark: int) -> Answer:
        counted = (state or 0) + len(rows)
        return Answer(counted, [(key, json.dumps({"count": counted}))])

    return step


def _added(window: tuple[int, float, int], value: float, t: int) -> tuple[int, float, int]:
    count, total, latest = window
    return count + 1, total + value, max(latest, t)


def _mean(count: int, total: float) -> str:
    return json.dumps({"count": count, "mean": total / count})


def _mean_and_time(count: int, total: float, t: int) -> str:
    return json.dumps({"count": count, "mean": total / count, "t": t})


def _pair(left: int, right: int | None) -> str:
    return json.dumps({"l": left, "r": right})


PROGRAMS: Final[Mapping[str, Program]] = {
    "windows": Program(readings, tumbling),
    "windows-python": Program(readings, tumbling),
    "counts": Program(all_events, totals),
    "latency": Program(readings, tumbling),
    "recovery": Program(readings, tumbling),
    "sessions": Program(events, sessions),
    "sliding": Program(events, sliding),
    "join-inner": Program(both_sides, join_inner, "append"),
    "join-python": Program(both_sides, join_inner, "append"),
    "join-3d": Program(both_sides, join_inner, "append"),
    "join-left": Program(both_sides, join_left, "append"),
    "table-join": Program(events_and_table, table_join, "append"),
    "table-fill": Program(rows_and_probes, table_fill, "append"),
    "shuffle": Program(Run.consumers, count),
}
