"""Delta's change data feed as a source, on real Delta, Spark and Kafka; in a process of its own, whose session has Delta."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from streams.broker import EmbeddedBroker
from streams.drills.topics import read_committed
from tests.conftest import TopicFactory


def test_the_changes_of_a_table_follow_its_rows_and_a_lost_checkpoint_is_made_again(
    broker: EmbeddedBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    target = topic(1)
    command = [sys.executable, "-m", "tests.spark.delta_feed", broker.bootstrap_servers, str(tmp_path), target]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the checkpoint of 'orders' was missing: made again up to batch 1" in done.stderr
    found = [(record.key, record.value) for record in read_committed(broker.bootstrap_servers, target)]
    assert sorted(found[:2]) == [(b"1", b'{"id":1,"amount":5.0}'), (b"2", b'{"id":2,"amount":7.5}')]
    assert found[2:] == [(b"1", b'{"id":1,"amount":6.0}'), (b"2", None)]
