"""Counts words: the first example of every stream processor, and the README's.

Run it: streams run topologies.word_count:build --application-id word-count
"""

from streams import Grouped, Materialized, StreamsBuilder, Topology


def build() -> Topology:
    """Counts the words of the topic `lines` into the topic `counts`."""
    builder = StreamsBuilder()
    (
        builder.stream("lines")
        .flat_map_values(lambda line: line["text"].lower().split())
        .group_by(lambda word: word, Grouped(name="by-word"))
        .count(materialized=Materialized(name="word-counts"))
        .to_stream()
        .map_values(lambda count: {"count": count})
        .to("counts")
    )
    return builder.build()


if __name__ == "__main__":
    from streams.cli.run import run_main

    run_main(build, "word-count")
