"""A script with a class of its own, which its values are of on their way to a stateful step. Topics begin with `$APPS_PREFIX.`."""

from __future__ import annotations

import os
from dataclasses import dataclass

from streams import Materialized, StreamsBuilder
from streams.topology.topology import Topology


@dataclass(frozen=True)
class Word:
    """What the stream is made of."""

    text: str


def counts() -> Topology:
    """Counts words; a value that is no `Word` would make the aggregation fail."""
    prefix = os.environ["APPS_PREFIX"]
    builder = StreamsBuilder()
    (
        builder.stream(f"{prefix}.words")
        .map(lambda key, text: (text, Word(text)))
        .group_by_key()
        .aggregate(
            lambda: 0,
            lambda key, word, count: count + len({word, Word(key)}),
            materialized=Materialized(name="counts"),
        )
        .to_stream()
        .to(f"{prefix}.counts")
    )
    return builder.build()


if __name__ == "__main__":
    from streams.cli.run import run_main

    run_main(counts, "own-classes")
