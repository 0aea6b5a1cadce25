"""Latency: what an input record waits for until a result that contains it has arrived; and the load that is sent when it is due."""

import numpy as np
import orjson

from benchmarks.generators.paced import Paced
from benchmarks.generators.records import Columns
from benchmarks.harness.reader import latencies


def columns(**parts: list[float]) -> Columns:
    return Columns({name: np.array(part) for name, part in parts.items()})


def test_a_record_waits_for_the_first_result_that_contains_it() -> None:
    inputs = columns(key=[1, 1, 1, 2], timestamp=[1_000, 1_500, 2_100, 1_000])
    results = columns(
        key=[1, 1, 1, 2],
        start=[1_000, 1_000, 2_000, 1_000],
        t=[1_000, 1_500, 2_100, 1_000],
        at=[1_200.0, 1_800.0, 2_150.0, 1_900.0],
    )
    assert latencies(inputs, results, 1_000).tolist() == [200, 300, 50, 900]


def test_a_result_with_later_records_contains_the_earlier_ones_of_its_window_only() -> None:
    inputs = columns(key=[1, 1, 1], timestamp=[1_100, 1_200, 2_000])
    results = columns(key=[1], start=[1_000], t=[1_900], at=[2_000.0])
    found = latencies(inputs, results, 1_000)
    assert found[:2].tolist() == [900, 800]
    assert np.isnan(found[2])


def test_a_paced_reading_says_when_it_was_due_and_has_160_bytes() -> None:
    load = Paced(start_ms=1_800_000_000_000, rate=2_000)
    batch = load.batch("events", 3_999, 4_002)
    value = batch.values[1].as_py()
    assert len(value) == 160
    reading = orjson.loads(value)
    assert reading["t"] == batch.timestamps[1] == 1_800_000_002_000
    assert reading["d"].encode() == batch.keys[1].as_py()
    assert round(reading["v"][0] * 1_000) == load.columns(4_000, 4_001)["milli"][0]


def test_every_device_has_the_same_share_of_a_paced_load() -> None:
    keys = Paced(start_ms=0, rate=2_000).columns(5_000, 7_000)["key"]
    assert np.bincount(keys).tolist() == [2] * 1_000
