"""One program for each kind of state, with in-order results per key or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams import (
    BufferConfig,
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    agg,
)

DISORDER = 10
LEFT, RIGHT = SIDES = ("left", "right")
NEAR = JoinWindows.of_time_difference_and_grace(20, DISORDER)
HOPPING = TimeWindows.of_size_and_grace(20, DISORDER).advance_by(7)
SESSIONS = SessionWindows.of_inactivity_gap_and_grace(15, DISORDER)


def pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def both(builder: StreamsBuilder) -> tuple[Any, Any]:
    return builder.stream(LEFT), builder.stream(RIGHT)


def refers_to(value: Any) -> str | None:
    return "abcdef"[value["v"] % 6] if value["v"] % 5 else None


def count(builder: StreamsBuilder) -> Any:
    return builder.stream(LEFT).group_by_key().count().to_stream()


def count_by_new_key(builder: StreamsBuilder) -> Any:
    return builder.stream(LEFT).group_by(lambda key, value: f"g{value['v'] % 5}").count().to_stream()


def windows(builder: StreamsBuilder) -> Any:
    return builder.stream(LEFT).group_by_key().windowed_by(HOPPING).count().to_stream()


def windows_on_close(builder: StreamsBuilder) -> Any:
    grouped = builder.stream(LEFT).group_by_key().windowed_by(HOPPING)
    return grouped.emit_strategy(EmitStrategy.on_window_close()).count().to_stream()


def windows_suppressed(builder: StreamsBuilder) -> Any:
    counts = builder.stream(LEFT).group_by_key().windowed_by(HOPPING).count()
    return counts.suppress(Suppressed.until_window_closes()).to_stream()


def windows_by_column(builder: StreamsBuilder) -> Any:
    return builder.stream(LEFT).group_by_key().windowed_by(HOPPING).aggregate(total=agg.sum("v")).to_stream()


def table_of_windows(builder: StreamsBuilder) -> Any:
    """A table whose keys are windowed, kept once more."""
    counts = builder.stream(LEFT).group_by_key().windowed_by(HOPPING).count()
    return counts.filter(lambda n: n % 2 == 0, materialized=Materialized(name="even")).to_stream()


def counts_of_windows(builder: StreamsBuilder) -> Any:
    """Windowed keys cross a topic, and are grouped as they are."""
    counts = builder.stream(LEFT).group_by_key().windowed_by(HOPPING).count().to_stream()
    return counts.map(lambda key, n: (str(key.window.start), n)).group_by_key().count().to_stream()


def sliding(builder: StreamsBuilder) -> Any:
    slides = SlidingWindows.of_time_difference_and_grace(15, DISORDER)
    return builder.stream(LEFT).group_by_key().windowed_by(slides).count().to_stream()


def sessions(builder: StreamsBuilder) -> Any:
    return builder.stream(LEFT).group_by_key().windowed_by(SESSIONS).count().to_stream()


def sessions_on_close(builder: StreamsBuilder) -> Any:
    grouped = builder.stream(LEFT).group_by_key().windowed_by(SESSIONS)
    return grouped.emit_strategy(EmitStrategy.on_window_close()).count().to_stream()


def stream_join(kind: str) -> Callable[[StreamsBuilder], Any]:
    def build(builder: StreamsBuilder) -> Any:
        left, right = both(builder)
        return getattr(left, kind)(right, pair, NEAR, StreamJoined(name="joined"))

    return build


def self_join(builder: StreamsBuilder) -> Any:
    stream = builder.stream(LEFT)
    return stream.left_join(stream, pair, NEAR, StreamJoined(name="itself"))


def join_all(builder: StreamsBuilder) -> Any:
    left, right = both(builder)
    near = JoinWindows.of_time_difference_and_grace(20, DISORDER)
    others = {RIGHT: right, "even": right.filter(lambda value: value["v"] % 2 == 0)}
    return left.join_all(others, lambda values: list(values.values()), near, StreamJoined(name="j"), this=LEFT)


def as_of(builder: StreamsBuilder) -> Any:
    left, right = both(builder)
    return left.as_of_join(right, pair, within=30, grace=DISORDER + 1, left=True)


def deduplicate(builder: StreamsBuilder) -> Any:
    return builder.stream(LEFT).deduplicate(10, by=lambda value: value["v"] % 3, grace=DISORDER)


def stream_table(builder: StreamsBuilder) -> Any:
    return builder.stream(LEFT).left_join(builder.table(RIGHT), pair)


def stream_table_with_grace(builder: StreamsBuilder) -> Any:
    table = builder.table(RIGHT, materialized=Materialized(history_retention=100_000_000))
    return builder.stream(LEFT).left_join(table, pair, Joined(grace=DISORDER + 1))


def table_join(builder: StreamsBuilder) -> Any:
    return builder.table(LEFT).outer_join(builder.table(RIGHT), pair).to_stream()


def foreign_key(builder: StreamsBuilder) -> Any:
    return builder.table(LEFT).left_join(builder.table(RIGHT), pair, foreign_key=refers_to).to_stream()


def grouped_table(builder: StreamsBuilder) -> Any:
    grouped = builder.table(LEFT).group_by(lambda key, value: (f"g{value['v'] % 4}", value["v"]))
    return grouped.reduce(lambda one, two: one + two, lambda one, two: one - two).to_stream()


def top(builder: StreamsBuilder) -> Any:
    grouped = builder.table(LEFT).group_by(lambda key, value: (f"g{value['v'] % 4}", value))
    return grouped.top(2, by=lambda value: value["v"]).to_stream()


def distinct(builder: StreamsBuilder) -> Any:
    return builder.stream(LEFT).group_by_key().aggregate(n=agg.count_distinct("v")).to_stream()


def distinct_in_windows(builder: StreamsBuilder) -> Any:
    windowed = builder.stream(LEFT).group_by_key().windowed_by(HOPPING)
    return windowed.aggregate(n=agg.count_distinct("v")).to_stream()


def distinct_on_close(builder: StreamsBuilder) -> Any:
    windowed = builder.stream(LEFT).group_by_key().windowed_by(HOPPING)
    closing = windowed.emit_strategy(EmitStrategy.on_window_close())
    return closing.aggregate(n=agg.count_distinct("v")).to_stream()


def top_of_windows(builder: StreamsBuilder) -> Any:
    # Tasks may be far apart: an update is late by the time of the fastest.
    windows = TimeWindows.of_size_and_grace(20, 10_000)
    counts = builder.stream(LEFT).group_by_key().windowed_by(windows).count()
    return counts.group_by_window().top(2, by=lambda n: n).to_stream()


def sums_of_windows(builder: StreamsBuilder) -> Any:
    windows = TimeWindows.of_size_and_grace(20, 10_000)
    counts = builder.stream(LEFT).group_by_key().windowed_by(windows).count()
    add = (lambda n, total: total + n), (lambda n, total: total - n)
    return counts.group_by_window().aggregate(lambda: 0, *add).to_stream()


def time_limit(builder: StreamsBuilder) -> Any:
    limit = Suppressed.until_time_limit(10, BufferConfig(max_records=1000, emit_early=True))
    return builder.table(LEFT).suppress(limit).to_stream()


def expiring(builder: StreamsBuilder) -> Any:
    return builder.table(LEFT, materialized=Materialized(ttl=40)).to_stream()


BY_UPDATE: dict[str, Callable[[StreamsBuilder], Any]] = {
    "count": count,
    "count by a new key": count_by_new_key,
    "windows": windows,
    "windows by column": windows_by_column,
    "a table of windows": table_of_windows,
    "counts of windows": counts_of_windows,
    "sliding windows": sliding,
    "sessions": sessions,
    "inner join": stream_join("join"),
    "join of all": join_all,
    "deduplicate": deduplicate,
    "stream and table": stream_table,
    "tables": table_join,
    "by foreign key": foreign_key,
    "grouped table": grouped_table,
    "top": top,
    "distinct": distinct,
    "distinct in windows": distinct_in_windows,
    "top of windows": top_of_windows,
    "sums of windows": sums_of_windows,
}
"""Results come with the record that makes them: their order per key is the same with any number of tasks."""

BY_TIME: dict[str, Callable[[StreamsBuilder], Any]] = {
    "windows on close": windows_on_close,
    "windows suppressed": windows_suppressed,
    "distinct on close": distinct_on_close,
    "sessions on close": sessions_on_close,
    "left join": stream_join("left_join"),
    "outer join": stream_join("outer_join"),
    "self-join": self_join,
    "as-of join": as_of,
    "stream and table with grace": stream_table_with_grace,
    "time limit": time_limit,
    "expiring": expiring,
}
"""Results come when the time of a task moves on, which depends on the other keys of the task."""

COALESCING = {"time limit", "expiring"}
"""How many results there are depends on when time moves on, with any number of tasks."""
