"""A user's program as the subject: the order in which its copied input is written, and which results count."""

from __future__ import annotations

from pathlib import Path

import pytest

from state.kafka.topics import TopicSpec
from streams import Processor, Retry, StreamsBuilder
from streams.drills.topics import Read
from streams.drills.users_program import check_nothing_waits, last_per_key, merged
from streams.errors import ConfigError
from tests.doctor.world import World


def read(partition: int, offset: int, timestamp: int, key: bytes = b"k") -> Read:
    return Read(partition, offset, timestamp, key, b"%d" % timestamp)


def test_the_input_is_written_in_the_order_in_which_the_engine_merges_partitions() -> None:
    given = {
        "a": [read(0, 0, 10), read(0, 1, 5), read(0, 2, 30), read(1, 0, 20)],
        "b": [read(0, 0, 7), read(0, 1, 25)],
    }
    order = [(topic, one.partition, one.timestamp) for topic, one in merged(given)]
    # The record of time 5 comes with the one that is before it in its partition.
    assert order == [("b", 0, 7), ("a", 0, 10), ("a", 0, 5), ("a", 1, 20), ("b", 0, 25), ("a", 0, 30)]


def test_the_last_result_of_a_key_is_that_of_the_highest_offset_in_any_order_of_arrival() -> None:
    first, second = read(0, 0, 1), read(0, 1, 2)
    assert last_per_key({"out": [first, second]}) == last_per_key({"out": [second, first]}) == {("out", b"k"): b"2"}


def test_a_program_that_retries_is_compared_only_if_nothing_waits_at_the_end(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    retry = Retry((60_000,), dead_letters="dead")
    builder.stream("in").process_values(Processor, named="ship", on_error=retry).to("out")
    world, topic = World(tmp_path, topology=builder.build()), "app-ship-retry-1-repartition"
    world.kafka.create_topics([TopicSpec("dead", 1), TopicSpec(topic, 2)])
    check_nothing_waits(world.plan()[0], world.kafka)  # type: ignore[arg-type]
    world.kafka.append(topic, b"key", b"value", partition=1)
    with pytest.raises(ConfigError, match=f"retries them later: they wait in {topic}, so there are no final results"):
        check_nothing_waits(world.plan()[0], world.kafka)  # type: ignore[arg-type]
    world.kafka.groups["app"] = {(topic, 1): 1}
    check_nothing_waits(world.plan()[0], world.kafka)  # type: ignore[arg-type]
