"""A thousand device streams multiplexed on one topic: statistics per device and second, and a search for lost readings.

Input `devices`: key = name of the device, value = JSON with its sequence number `s` and sensors `v` (see
`topologies.devices_data`), timestamp = event time.

Results:

* `device-stats-1s` and `device-stats-10s`: count, mean, smallest, largest and last value of the first sensor in
  each second and in every ten, by `device|window start`. A reading may be 2 s late.
* `device-gaps`: how many readings of a device are missing between its smallest and its largest sequence number, by
  device. Written when that number changes: a gap appears, grows, or is closed by late readings.

All records are keyed by the device, so this is one sub-topology. Only the fields of the four built-in aggregations are
decoded.

    spark-submit topologies/devices.py --bootstrap-servers localhost:9092
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from streams import KGroupedStream, Materialized, StreamsBuilder, TimeWindows, Topology, Windowed, agg

READINGS: Final = "devices"
STATS_1S: Final = "device-stats-1s"
STATS_10S: Final = "device-stats-10s"
GAPS: Final = "device-gaps"

GRACE: Final = timedelta(seconds=2)
SENSOR: Final = "v.0"


def build() -> Topology:
    """Statistics of each device per second and ten seconds, and the number of its lost readings."""
    builder = StreamsBuilder()
    devices = builder.stream(READINGS).group_by_key()
    write_statistics(devices, timedelta(seconds=1), STATS_1S)
    write_statistics(devices, timedelta(seconds=10), STATS_10S)
    write_gaps(devices)
    return builder.build()


def write_statistics(devices: KGroupedStream, size: timedelta, topic: str) -> None:
    """Statistics of one sensor in tumbling windows."""
    windows = TimeWindows.of_size_and_grace(size, GRACE)
    devices.windowed_by(windows).aggregate(
        readings=agg.count(),
        mean=agg.mean(SENSOR),
        min=agg.min(SENSOR),
        max=agg.max(SENSOR),
        last=agg.last(SENSOR),
        materialized=Materialized(name=topic),
    ).to_stream().map(with_window).to(topic)


def write_gaps(devices: KGroupedStream, topic: str = GAPS) -> None:
    """The number of missing readings of each device, at each change."""
    seen = devices.aggregate(
        readings=agg.count(), first=agg.min("s"), last=agg.max("s"), materialized=Materialized(name="device-sequences")
    )
    missing = seen.to_stream().map_values(missing_readings)
    # The key is still the device, so remembering the last number needs no repartitioning.
    remembered = missing.group_by_key().aggregate(
        lambda: {"missing": 0, "changed": False}, remember, materialized=Materialized(name=GAPS)
    )
    remembered.to_stream().filter(lambda state: state["changed"]).map_values(lambda state: state["missing"]).to(topic)


def with_window(key: Windowed, statistics: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A key and value that are readable without knowing the window's encoding."""
    start = key.window.start
    return f"{key.key}|{start}", {"window_start": start, **statistics}


def missing_readings(seen: dict[str, int]) -> int:
    """The number of sequence numbers between the smallest and the largest that were not seen."""
    return seen["last"] - seen["first"] + 1 - seen["readings"]


def remember(missing: int, state: dict[str, Any]) -> dict[str, Any]:
    """The new number, and whether it differs from the one before."""
    return {"missing": missing, "changed": missing != state["missing"]}


def main() -> None:
    """Runs the topology under spark-submit."""
    from streams.cli.run import run_main

    run_main(build, "devices")


if __name__ == "__main__":
    main()
