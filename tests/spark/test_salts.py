"""Salts put each task on its own shuffle partition, by Spark's own hash."""

import pytest

from streams.spark.shuffle import shuffle_keys, spark_hash


def test_spark_hash_equals_sparks() -> None:
    # SELECT hash(0), hash(1), hash(42)
    assert [spark_hash(value) for value in (0, 1, 42)] == [933211791, -559580957, 29417773]


@pytest.mark.parametrize("tasks", [1, 2, 3, 16, 200])
def test_each_task_has_its_own_partition(tasks: int) -> None:
    assert [spark_hash(salt) % tasks for salt in shuffle_keys(tasks)] == list(range(tasks))
