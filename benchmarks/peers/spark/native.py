"""Spark's native operators: windows, session windows and stream-stream joins of the DataFrame API.

python -m benchmarks.peers.spark.native CONFIG
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.peers.spark import nexmark
from benchmarks.peers.spark.run import EVENT, READING, Run, as_json, joined_key, main

BID: Final = "auction long, bidder long, price long"


def passthrough(run: Run, spark: SparkSession) -> None:
    """B1: a filter and a projection."""
    kept = run.read(spark, "events", READING).where("s % 2 = 0")
    run.write(kept.select("key", as_json(s="s", f=F.col("v")[0] * 1.8 + 32)))


def windows(run: Run, spark: SparkSession) -> None:
    """Count and mean in tumbling windows, emitted at each update."""
    counted = _readings(run, spark).groupBy("key", _window(run)).agg(*_count_and_mean(F.col("v")[0]))
    run.write(counted.select(_window_key(), as_json(count="count", mean="mean")), mode="update")


def counts(run: Run, spark: SparkSession) -> None:
    """Count and mean without windows."""
    counted = run.read(spark, "events", EVENT).groupBy("key").agg(*_count_and_mean(F.col("v")))
    run.write(counted.select("key", as_json(count="count", mean="mean")), mode="update")


def latency(run: Run, spark: SparkSession) -> None:
    """The same with the largest `t`."""
    counted = _readings(run, spark).groupBy("key", _window(run))
    counted = counted.agg(*_count_and_mean(F.col("v")[0]), F.max("t").alias("t"))
    run.write(counted.select(_window_key(), as_json(count="count", mean="mean", t="t")), mode="update")


def devices(run: Run, spark: SparkSession) -> None:
    """B2: three queries, because one query has one output."""
    for role, size in (("stats_1s", "1 second"), ("stats_10s", "10 seconds")):
        _statistics(run, spark, role, size)
    seen = run.read(spark, "events", READING).groupBy("key")
    missing = seen.agg((F.max("s") - F.min("s") + 1 - F.count("s")).alias("missing"))
    run.write(missing.select("key", F.col("missing").cast("string").alias("value")), "gaps", "update")


def _statistics(run: Run, spark: SparkSession, role: str, size: str) -> None:
    sensor = F.col("v")[0]
    readings = run.read(spark, "events", READING).withWatermark("timestamp", "2 seconds")
    found = readings.groupBy("key", F.window("timestamp", size)).agg(
        F.count("*").alias("readings"),
        F.mean(sensor).alias("mean"),
        F.min(sensor).alias("min"),
        F.max(sensor).alias("max"),
        # A key is in one partition, so the largest offset is the last record.
        F.max_by(sensor, "offset").alias("last"),
    )
    names = ("readings", "mean", "min", "max", "last")
    value = as_json(window_start=F.unix_millis("window.start"), **{name: name for name in names})
    run.write(found.select(_window_key(), value), role, "update")


def shuffle(run: Run, spark: SparkSession) -> None:
    """B3: a counter for each consumer."""
    counted = run.consumers(spark).groupBy("key").count()
    run.write(counted.select("key", as_json(count="count")), mode="update")


def sessions(run: Run, spark: SparkSession) -> None:
    """Count and mean in session windows, which Spark emits only after they have closed."""
    counted = _sessions(run, run.read(spark, "events", EVENT), *_count_and_mean(F.col("v")))
    run.write(counted.select(_session_key(run), as_json(count="count", mean="mean")))


def join_inner(run: Run, spark: SparkSession) -> None:
    """The inner join of two streams."""
    _join(run, spark, "inner")


def join_left(run: Run, spark: SparkSession) -> None:
    """The left join of two streams."""
    _join(run, spark, "left_outer")


def hot_items(run: Run, spark: SparkSession) -> None:
    """Nexmark 5: an aggregate of an aggregate, which Spark emits only after the windows have closed."""
    window = F.window("timestamp", run.milliseconds("window_ms"), run.milliseconds("hop_ms"))
    counted = _bids(run, spark).groupBy("auction", window).count()
    largest = counted.groupBy("window").agg(F.max("count").alias("count"))
    run.write(largest.select(_start().cast("string").alias("key"), as_json(count="count")))


def highest_bid(run: Run, spark: SparkSession) -> None:
    """Nexmark 7."""
    highest = _bids(run, spark).groupBy(_window(run)).agg(F.max("price").alias("price"))
    run.write(highest.select(_start().cast("string").alias("key"), as_json(price="price")), mode="update")


def user_sessions(run: Run, spark: SparkSession) -> None:
    """Nexmark 11."""
    counted = _sessions(run, run.read(spark, "events", BID), F.count("*").alias("count"))
    run.write(counted.select(_session_key(run), as_json(count="count")))


def _readings(run: Run, spark: SparkSession) -> DataFrame:
    return run.read(spark, "events", READING).withWatermark("timestamp", run.milliseconds("grace_ms"))


def _bids(run: Run, spark: SparkSession) -> DataFrame:
    return run.read(spark, "events", BID).withWatermark("timestamp", run.milliseconds("grace_ms"))


def _window(run: Run) -> Column:
    return F.window("timestamp", run.milliseconds("window_ms"))


def _start() -> Column:
    return F.unix_millis("window.start")


def _window_key() -> Column:
    return joined_key("key", _start())


def _sessions(run: Run, events: DataFrame, *aggregates: Column) -> DataFrame:
    session = F.session_window("timestamp", run.milliseconds("gap_ms")).alias("session")
    late = events.withWatermark("timestamp", run.milliseconds("grace_ms"))
    return late.groupBy("key", session).agg(*aggregates)


def _session_key(run: Run) -> Column:
    # Spark's end is the gap after the last record.
    end = F.unix_millis("session.end") - run.parameters["gap_ms"]
    return joined_key("key", F.unix_millis("session.start"), end)


def _count_and_mean(value: Column) -> tuple[Column, Column]:
    return F.count("*").alias("count"), F.mean(value).alias("mean")


def _join(run: Run, spark: SparkSession, how: str) -> None:
    sides = [
        run.read(spark, role, EVENT).withWatermark("timestamp", run.milliseconds("grace_ms"))
        for role in ("left", "right")
    ]
    left, right = sides[0].alias("left"), sides[1].alias("right")
    before, after = run.milliseconds("before_ms"), run.milliseconds("after_ms")
    condition = F.expr(
        "left.key = right.key "
        f"AND right.timestamp >= left.timestamp - INTERVAL {before} AND right.timestamp <= left.timestamp + INTERVAL {after}"
    )
    joined = left.join(right, condition, how)
    run.write(joined.select(F.col("left.key").alias("key"), as_json(l=F.col("left.n"), r=F.col("right.n"))))


WORKLOADS: Final[Mapping[str, Callable[[Run, SparkSession], None]]] = {
    "passthrough": passthrough,
    "devices": devices,
    "windows": windows,
    "counts": counts,
    "latency": latency,
    "recovery": latency,
    "sessions": sessions,
    "join-inner": join_inner,
    "join-3d": join_inner,
    "join-left": join_left,
    "shuffle": shuffle,
    "nexmark-q5": hot_items,
    "nexmark-q7": highest_bid,
    "nexmark-q11": user_sessions,
    **nexmark.WORKLOADS,
}

if __name__ == "__main__":
    sys.exit(main(WORKLOADS, sys.argv[1:]))
