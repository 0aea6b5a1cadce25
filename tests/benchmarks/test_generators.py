"""The generators: the same bytes for the same seed, in the formats that `benchmarks/README.md` promises."""

import numpy as np
import orjson
import pytest

from benchmarks.generators.events import Events
from benchmarks.workloads.base import PARTITIONS, closing_key, session_key, windowed_key
from benchmarks.workloads.catalogue import WORKLOADS
from state.kafka.partitioner import partition_for_key

JSON = [name for name in WORKLOADS if name != "shuffle"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_input_is_the_same_each_time(name: str) -> None:
    first, again = (
        [
            (batch.role, batch.keys, batch.values, batch.timestamps.tolist())
            for batch in WORKLOADS[name].batches("smoke")
        ]
        for _ in range(2)
    )
    assert first == again


@pytest.mark.parametrize("name", JSON)
def test_values_are_json_objects_and_keys_are_texts(name: str) -> None:
    for batch in WORKLOADS[name].batches("smoke"):
        assert set(batch.role.split()) <= set(WORKLOADS[name].inputs)
        for row in (0, len(batch) - 1):
            assert isinstance(orjson.loads(batch.values[row].as_py()), dict)
            assert b"-" in batch.keys[row].as_py()


def test_an_event_has_a_hundred_bytes_and_its_number() -> None:
    batch = next(Events(10, keys=5, rate=1_000).batches("events"))
    assert {len(value) for value in batch.values.to_pylist()} == {100}
    assert sorted(orjson.loads(value)["n"] for value in batch.values.to_pylist()) == list(range(10_000_000, 10_000_010))


def test_late_events_come_after_those_of_their_time_by_at_most_the_given_time() -> None:
    times = Events(20_000, keys=5, rate=10_000, late_share=0.01, late_ms=50).columns()["timestamp"]
    behind = np.maximum.accumulate(times) - times
    assert 100 < (behind > 0).sum() < 300
    assert behind.max() <= 50


def test_there_is_a_closing_key_for_each_partition() -> None:
    keys = [closing_key(partition, PARTITIONS) for partition in range(PARTITIONS)]
    assert [partition_for_key(key, PARTITIONS) for key in keys] == list(range(PARTITIONS))


def test_keys_of_windows_are_read_as_texts_and_as_kafka_streams_bytes() -> None:
    start, end = (1_700_000_000_000).to_bytes(8, "big"), (1_700_000_000_124).to_bytes(8, "big")
    assert windowed_key(b"k-0000017|1700000000000") == (17, 1_700_000_000_000)
    assert windowed_key(b"k-0000017" + start) == (17, 1_700_000_000_000)
    bar = int.from_bytes(start[:-2] + b"|5", "big")
    assert windowed_key(b"k-0000017" + start[:-2] + b"|5") == (17, bar)
    assert session_key(b"k-0000017|1700000000000|1700000000124") == (17, 1_700_000_000_000, 1_700_000_000_124)
    assert session_key(b"k-0000017" + end + start) == (17, 1_700_000_000_000, 1_700_000_000_124)
