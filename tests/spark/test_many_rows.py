"""A task whose rows come from Spark in several Arrow batches gets all of them."""

from __future__ import annotations

import pytest

from streams.spark.session import SPARK_SETTINGS
from tests.spark.harness import Harness, last_per_key
from tests.spark.test_counts import expected, lines, send_lines, word_topology

PARTITIONS = 24


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.spark
def test_rows_of_many_partitions_reach_one_task(harness: Harness) -> None:
    # Each partition gives the task a row with records, one with counters and one with a digest of the keys.
    assert 2 * int(SPARK_SETTINGS["spark.sql.execution.arrow.maxRecordsPerBatch"]) < 2 * PARTITIONS
    source, target = harness.topic("lines", PARTITIONS), harness.topic("counts", 1)
    sent = lines(3, 600)
    send_lines(harness, source, sent, 1_000_000)
    harness.run(word_topology(source, target), tasks=1)
    records = harness.read(target)
    assert last_per_key(records) == expected(sent)
