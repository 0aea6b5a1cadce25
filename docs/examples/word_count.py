"""Word count: lines of text in, a running count per word out.

Shows: serdes of a topic, `flat_map_values`, grouping by a new key, a named store.
"""

from streams import Consumed, Int64Serde, Materialized, Produced, StreamsBuilder, StringSerde, Topology


def build() -> Topology:
    """Counts the words of `lines` into `word-counts`, whose values are 64-bit numbers."""
    builder = StreamsBuilder()
    lines = builder.stream("lines", Consumed(StringSerde(), StringSerde()))
    (
        lines.flat_map_values(lambda line: line.lower().split())
        .group_by(lambda word: word)
        .count(Materialized("counts"))
        .to_stream()
        .to("word-counts", Produced(StringSerde(), Int64Serde()))
    )
    return builder.build()


if __name__ == "__main__":
    from streams.cli.run import run_main

    run_main(build, "word-count")
