"""Small topologies that tests start in processes of their own: by `streams run`, and by spark-submit as this file.

Topics begin with `$APPS_PREFIX.`, so that each test has its own.
"""

from __future__ import annotations

import os

from streams import Consumed, Grouped, JsonSerde, Materialized, StreamsBuilder, StringSerde
from streams.topology.topology import Topology

BLOCKS = "APPS_BLOCKS"
"""The variable with the topics of `blocks`."""


def counts() -> Topology:
    """Counts words; re-keys on the way, so that the head has work to do."""
    prefix = os.environ["APPS_PREFIX"]
    builder = StreamsBuilder()
    (
        builder.stream(f"{prefix}.words")
        .group_by(lambda key, word: word, Grouped(name="by-word"))
        .count(materialized=Materialized(name="counts"))
        .to_stream()
        .to(f"{prefix}.counts")
    )
    return builder.build()


def counts_and_sums(source: str, counts: str, sums: str) -> Topology:
    """Two stores and two outputs over the numbers of a topic."""
    builder = StreamsBuilder()
    grouped = builder.stream(source).group_by_key()
    grouped.count(materialized=Materialized("counts", caching=False)).to_stream().to(counts)
    summed = Materialized("sums", caching=False)
    grouped.aggregate(lambda: 0, lambda key, value, total: total + value, materialized=summed).to_stream().to(sums)
    return builder.build()


def blocks() -> Topology:
    """The same, over the topics that a drill names in the environment."""
    return counts_and_sums(*os.environ[BLOCKS].split())


ROWS = "APPS_ROWS"
"""The variable with the topic of `rows`."""


def rows() -> Topology:
    """A table of numbers by their text."""
    builder = StreamsBuilder()
    builder.table(os.environ[ROWS], Consumed(StringSerde(), JsonSerde()), Materialized("rows", caching=False))
    return builder.build()


if __name__ == "__main__":
    from streams.cli.run import run_main

    run_main(counts, "apps")
