"""Devices that have sent fewer heartbeats than they should, told once per minute.

Shows: final results of windows (`suppress`), a filter on a table, the window's key in the output.
"""

from datetime import timedelta

from streams import StreamsBuilder, Suppressed, TimeWindows, Topology

EXPECTED = 3


def build() -> Topology:
    """Counts `heartbeats` per device and minute; writes those below the expected number to `silent-devices`."""
    builder = StreamsBuilder()
    (
        builder.stream("heartbeats")
        .group_by_key()
        .windowed_by(TimeWindows.of_size_and_grace(timedelta(minutes=1), timedelta(seconds=10)))
        .count("heartbeats-per-minute")
        .suppress(Suppressed.until_window_closes(), named="closed-minutes")
        .filter(lambda count: count < EXPECTED)
        .to_stream(lambda key, count: key.key)
        .filter(lambda count: count is not None)
        .to("silent-devices")
    )
    return builder.build()
