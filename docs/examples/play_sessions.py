"""Listening sessions: plays of one user belong together until half an hour passes without one.

Shows: `SessionWindows`, sessions that merge (the two that merge are deleted downstream), times of sessions in the output.
"""

from datetime import timedelta

from streams import Materialized, SessionWindows, StreamsBuilder, Topology


def build() -> Topology:
    """Counts the plays of each session of `plays` into `sessions`, keyed by `user@first-last` in seconds."""
    builder = StreamsBuilder()
    (
        builder.stream("plays")
        .group_by_key()
        .windowed_by(SessionWindows.of_inactivity_gap_and_grace(timedelta(minutes=30), timedelta(hours=1)))
        .count(Materialized("plays-per-session"))
        .to_stream(lambda key, count: f"{key.key}@{key.window.start // 1000}-{key.window.end // 1000}")
        .to("sessions")
    )
    return builder.build()
