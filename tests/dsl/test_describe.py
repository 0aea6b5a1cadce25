"""`describe()` against what Kafka Streams 4.3.1 printed for the same topology; `mermaid()` against the plan."""

import re
from pathlib import Path

from streams import (
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Produced,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
)

GOLDEN = Path(__file__).parent / "golden"


def test_text_of_the_same_program_in_kafka_streams():
    """Printed by Kafka Streams' own DSL, operator by operator the same program with the same names."""
    builder = StreamsBuilder()
    flights = builder.stream("flights", Consumed(name="flights-source"))
    carriers = builder.table("carriers", Consumed(name="carriers"), Materialized(name="carrier-names"))
    (
        flights.filter(lambda v: True, "late")
        .map_values(lambda v: v, "slim")
        .left_join(carriers, lambda left, right: left, Joined(name="with-carrier"))
        .to("late-flights", Produced(name="late-sink"))
    )
    (
        builder.stream(["weather"], Consumed(name="weather-source"))
        .group_by_key()
        .windowed_by(TimeWindows.of_size_with_no_grace(300_000))
        .count("hourly", Materialized(name="hourly-counts"))
        .to_stream("updates")
        .to("counts", Produced(name="counts-sink"))
    )
    assert builder.build().describe() == (GOLDEN / "describe_dsl.txt").read_text()


def attribution():
    builder = StreamsBuilder()
    views = builder.stream("views", Consumed(name="views-source"))
    clicks = builder.stream("clicks", Consumed(name="clicks-source"))
    (
        views.join(
            clicks,
            lambda view, click: view,
            JoinWindows.of_time_difference_with_no_grace(10),
            StreamJoined(name="attributed"),
        )
        .select_key(lambda value: value, "by-campaign")
        .group_by_key(Grouped(name="campaign"))
        .count("count", Materialized(name="per-campaign"))
        .to_stream("changes")
        .to("campaigns", Produced(name="campaigns-sink"))
    )
    return builder.build()


def test_text_of_the_same_graph_in_kafka_streams():
    """Printed by Kafka Streams' `Topology`, given the same sources, processors, stores and sinks."""
    assert attribution().describe() == (GOLDEN / "describe_repartition.txt").read_text()


def test_text_of_a_dynamic_sink_names_the_extractor():
    def by_carrier(value):
        return value

    builder = StreamsBuilder()
    builder.stream("in").to(by_carrier)
    assert "(extractor class: " in builder.build().describe()


def test_mermaid():
    chart = attribution().mermaid()
    lines = chart.splitlines()
    assert lines[0] == "flowchart LR"
    assert lines.count("  end") == 2
    assert sum(line.startswith("    subgraph") for line in lines) == sum(line == "    end" for line in lines)
    ids = dict(re.findall(r'(\w\d+)[(\[]+"([^"]+)"', chart))
    edges = {(ids[a], ids[b]) for a, b in re.findall(r"^  (\w\d+)\S* --> (\w\d+)", chart, re.MULTILINE)}
    assert {
        ("views", "views-source"),
        ("views-source", "attributed-this-join"),
        ("by-campaign", "campaign-repartition-sink"),
        ("campaign-repartition-sink", "campaign-repartition"),
        ("campaign-repartition", "campaign-repartition-source"),
        ("campaigns-sink", "campaigns"),
    } <= edges
    stores = {(ids[a], ids[b]) for a, b in re.findall(r"^  (\w\d+) -\.- (\w\d+)", chart, re.MULTILINE)}
    assert ("count", "per-campaign") in stores
    assert len(set(ids.values())) == len(ids)


def test_mermaid_tells_readers_from_tasks():
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda v: v, "kept").to("out")
    readers, tasks = builder.build().mermaid().split('["tasks"]')
    assert '"kept"' in readers
    assert '"KSTREAM-SINK-out"' in tasks
