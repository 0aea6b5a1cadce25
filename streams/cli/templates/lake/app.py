"""Writes visits, and their number by page and hour, to Delta tables, each record exactly once."""

from datetime import timedelta

from streams import Materialized, StreamsBuilder, TimeWindows, Topology


def build() -> Topology:
    """Appends the records of the topic `visits` to one table, and keeps a row for each page and hour in another one."""
    builder = StreamsBuilder()
    visits = builder.stream("visits")
    visits.to_delta("lake/visits", key="page", schema={"user": str})
    (
        visits.group_by_key()
        .windowed_by(TimeWindows.of_size_with_no_grace(timedelta(hours=1)))
        .count(materialized=Materialized(name="visits-by-hour"))
        .to_delta("lake/visits_by_hour", key="page", value="visits")
    )
    return builder.build()


if __name__ == "__main__":
    from streams.cli.run import run_main

    run_main(build, "APPLICATION")
