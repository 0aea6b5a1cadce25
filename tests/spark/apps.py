"""Small topologies that tests start in processes of their own: by `streams run`, and by spark-submit as this file.

Topics begin with `$APPS_PREFIX.`, so that each test has its own.
"""

from __future__ import annotations

import os

from streams import Grouped, Materialized, StreamsBuilder
from streams.topology.graph import Topology


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


if __name__ == "__main__":
    from streams.cli.run import run_main

    run_main(counts, "apps")
