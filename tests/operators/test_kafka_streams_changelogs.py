"""The changelogs of eleven kinds of state have the names, keys and values that Kafka Streams writes.

`tests/golden/kafka-streams-changelogs.jsonl` has the changelogs of Kafka Streams 4.3.1 (`TopologyTestDriver`, without a cache) for
the records of `tests/golden/input.tsv`, whose columns are topic, format and text of the key, of the value, and the timestamp.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streams import (
    Consumed,
    Grouped,
    Int64Serde,
    Joined,
    JoinWindows,
    JsonSerde,
    Materialized,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
)
from streams.testing import TopologyTestDriver

GOLDEN = Path(__file__).parents[1] / "golden"
S, L, J = StringSerde(), Int64Serde(), JsonSerde()
TEXTS = Consumed(S, S)
MINUTE, GRACE = timedelta(minutes=1), timedelta(seconds=10)


def stored(name: str, key: Any = S, value: Any = L, **more: Any) -> Materialized:
    return Materialized(name=name, key_serde=key, value_serde=value, caching=False, **more)


def grouped(builder: StreamsBuilder, topic: str) -> Any:
    return builder.stream(topic, TEXTS).group_by_key(Grouped(S, S))


def count(builder: StreamsBuilder) -> None:
    grouped(builder, "in-kv").count(stored("kv-count"))


def reduced(builder: StreamsBuilder) -> None:
    numbers = builder.stream("in-red", Consumed(L, L)).group_by_key(Grouped(L, L))
    numbers.reduce(lambda total, value: total + value, stored("red-sum", L, L))


def aggregated(builder: StreamsBuilder) -> None:
    values = builder.stream("in-agg", Consumed(S, J)).group_by_key(Grouped(S, J))
    values.aggregate(
        lambda: {"n": 0, "sum": 0},
        lambda value, total: {"n": total["n"] + 1, "sum": total["sum"] + value["x"]},
        stored("agg-json", S, J),
    )


def table(builder: StreamsBuilder) -> None:
    names = builder.table("in-tab", TEXTS, stored("names", S, S))
    builder.stream("in-ev", TEXTS).left_join(
        names, lambda event, name: f"{event}/{name}", Joined(S, S, name="named")
    ).to("out", Produced(S, S))


def grouped_by_value(builder: StreamsBuilder) -> None:
    builder.stream("in-rep", TEXTS).group_by(lambda key, value: value, Grouped(S, S, name="by-val")).count(
        stored("rep-count")
    )


def grouped_table(builder: StreamsBuilder) -> None:
    teams = builder.table("in-tg", Consumed(S, J), stored("tg-table", S, J)).group_by(
        lambda key, value: (value["team"], value["points"]), Grouped(S, L, name="by-team")
    )
    teams.aggregate(lambda: 0, lambda value, total: total + value, lambda value, total: total - value, stored("tg-sum"))


def tumbling(builder: StreamsBuilder) -> None:
    grouped(builder, "in-win").windowed_by(TimeWindows.of_size_and_grace(MINUTE, GRACE)).count(stored("win-count"))


def sliding(builder: StreamsBuilder) -> None:
    windows = SlidingWindows.of_time_difference_and_grace(timedelta(seconds=20), GRACE)
    grouped(builder, "in-win").windowed_by(windows).count(stored("sld-count"))


def sessions(builder: StreamsBuilder) -> None:
    windows = SessionWindows.of_inactivity_gap_and_grace(timedelta(seconds=30), GRACE)
    grouped(builder, "in-sess").windowed_by(windows).count(stored("sess-count"))


def versioned(builder: StreamsBuilder) -> None:
    prices = builder.table(
        "in-price",
        TEXTS,
        Materialized(name="prices", key_serde=S, value_serde=S, history_retention=timedelta(minutes=10)),
    )
    builder.stream("in-order", TEXTS).join(prices, lambda order, price: order + price, Joined(S, S, name="priced")).to(
        "out", Produced(S, S)
    )


def joined(builder: StreamsBuilder) -> None:
    left, right = builder.stream("in-l", TEXTS), builder.stream("in-r", TEXTS)
    windows = JoinWindows.of_time_difference_and_grace(MINUTE, GRACE)
    how = StreamJoined(S, S, S, name="ij", store_name="ij")
    left.join(right, lambda one, other: one + other, windows, how).to("out", Produced(S, S))


KINDS: dict[str, tuple[Callable[[StreamsBuilder], None], list[str]]] = {
    "count": (count, ["kv-count"]),
    "reduce": (reduced, ["red-sum"]),
    "aggregate": (aggregated, ["agg-json"]),
    "table": (table, ["names"]),
    "grouped by value": (grouped_by_value, ["rep-count"]),
    "grouped table": (grouped_table, ["tg-table", "tg-sum"]),
    "tumbling windows": (tumbling, ["win-count"]),
    "sliding windows": (sliding, ["sld-count"]),
    "sessions": (sessions, ["sess-count"]),
    "versioned table": (versioned, ["prices"]),
    "inner join of streams": (joined, ["ij-this-join-store", "ij-other-join-store"]),
}


def bytes_of(form: str, text: str) -> bytes | None:
    if text == "\\N":
        return None
    return struct.pack(">q", int(text)) if form == "l" else text.encode()


def records(topics: set[str]) -> Iterator[tuple[str, bytes | None, bytes | None, int]]:
    for line in (GOLDEN / "input.tsv").read_text().splitlines():
        topic, key_form, key, value_form, value, time = line.split("\t")
        if topic in topics:
            yield topic, bytes_of(key_form, key), bytes_of(value_form, value), int(time)


def theirs(topic: str) -> list[tuple[bytes, bytes | None]]:
    """What Kafka Streams wrote to a changelog, in order."""
    lines = map(json.loads, (GOLDEN / "kafka-streams-changelogs.jsonl").read_text().splitlines())
    return [
        (bytes.fromhex(one["k"]), None if one["v"] is None else bytes.fromhex(one["v"]))
        for one in lines
        if one["topic"] == topic
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_of_changelogs_are_kafka_streams_own(kind: str) -> None:
    program, stores = KINDS[kind]
    builder = StreamsBuilder()
    program(builder)
    with TopologyTestDriver(builder.build(), "x", mode="compat") as driver:
        kafka = driver._kafka
        topics = {str(topic) for query in driver._queries for topic in query.sub.topics}
        for topic, key, value, time in records(topics):
            kafka.append(topic, key, value, time, None, 0)
            driver._run()
        for store in stores:
            topic = f"x-{store}-changelog"
            mine = [(row.key, row.value) for row in kafka.log(topic, 0).readable()]
            expected = theirs(topic)
            assert expected, topic
            if store.startswith("ij-"):
                # The last 4 bytes tell rows of equal key and time apart: Kafka Streams counts over the whole store.
                mine, expected = ([(key[:-4], value) for key, value in rows] for rows in (mine, expected))
            # The order of rows within a step is not Kafka Streams', and expired ones are trimmed.
            assert set(mine) <= set(expected)
            assert kind == "sliding windows" or dict(mine) == dict(expected)
