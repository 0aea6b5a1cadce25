"""Counts the visits of each page by the minute."""

from datetime import timedelta

from streams import Materialized, StreamsBuilder, TimeWindows, Topology


def build() -> Topology:
    """Counts the records of the topic `visits`, by key and minute of their event time, into the topic `visits-by-minute`."""
    builder = StreamsBuilder()
    (
        builder.stream("visits")
        .group_by_key()
        .windowed_by(TimeWindows.of_size_and_grace(timedelta(minutes=1), timedelta(seconds=10)))
        .count(materialized=Materialized(name="visits-by-minute"))
        .to_stream()
        .map(lambda page, count: (page.key, {"minute": page.window.start, "visits": count}))
        .to("visits-by-minute")
    )
    return builder.build()


if __name__ == "__main__":
    from streams.cli.run import run_main

    run_main(build, "APPLICATION")
