"""A broker that is killed under a running application, and comes back on the same data and port: nothing but time is lost.

`BROKER_AWAY_S=75` keeps it away for so many seconds; without it, for as long as it takes the application to notice.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from streams import StreamsBuilder
from streams.broker import EmbeddedBroker, fetch_jars
from streams.spark.progress import Progress
from streams.spark.runner import StreamsApplication
from tests.spark.harness import Harness, Sent, last_per_key
from tests.spark.live import copy_topology, eventually, running_in_thread

AWAY_S = float(os.environ.get("BROKER_AWAY_S", "0"))


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker of this test's own."""
    fetch_jars()
    with EmbeddedBroker(tmp_path / "kafka", die_with_parent=True, start_timeout_s=240) as broker:
        yield broker


@pytest.mark.parametrize("when", ["within a step", "idle"])
def test_a_broker_that_is_killed_and_comes_back(
    mortal: EmbeddedBroker, spark: SparkSession, tmp_path: Path, when: str
) -> None:
    harness = Harness(mortal.bootstrap_servers, spark, tmp_path, "broker-away")
    source, target = harness.topic("source", 2), harness.topic("target", 2)
    gate, entered, shown = tmp_path / "open", tmp_path / "entered", io.StringIO()

    def held(key: str, count: int) -> int:
        while key == "held" and not gate.exists():
            entered.touch()
            time.sleep(0.05)
        return count

    builder = StreamsBuilder()
    counts = builder.stream(source).group_by(lambda key, value: value).count()
    counts.to_stream().map_values(held).to(target)
    config = harness.config(available_now=False, transaction_timeout_ms=2_000)
    application = StreamsApplication(builder.build(), config, Progress("away", Console(file=shown, width=1000)))

    def send(*words: str) -> None:
        harness.send(source, [Sent(None, b'"%s"' % word.encode(), 1_000, n % 2) for n, word in enumerate(words)])

    def counted(**expected: int) -> bool:
        return last_per_key(harness.read(target)) == {word.encode(): b"%d" % count for word, count in expected.items()}

    with running_in_thread(application, spark) as check:
        send("a", "b", "a")
        eventually(lambda: check() or counted(a=2, b=1), "the first counts")
        if when == "within a step":
            send("a", "held")
            eventually(entered.exists, "a task is in the middle of a step")
        mortal.kill()
        gone = time.monotonic()
        gate.touch()
        # A task that was about to commit fails in each of its attempts, the query with it; an idle query just waits.
        awaited = "starts again by itself" if when == "within a step" else "waiting for the broker"
        eventually(lambda: check() or awaited in shown.getvalue(), awaited)
        while time.monotonic() - gone < AWAY_S:
            time.sleep(0.5)
            check()
        mortal.start()
        send("b", "c")
        expected = {"a": 3, "b": 2, "c": 1, "held": 1} if when == "within a step" else {"a": 2, "b": 2, "c": 1}
        eventually(lambda: check() or counted(**expected), "all counts")
    said = shown.getvalue()
    assert "answers again after" in said
    print(said)
    found = [(record.key, record.value) for record in harness.read(target)]
    assert len(set(found)) == len(found)


def test_a_stop_does_not_wait_for_the_broker(mortal: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(mortal.bootstrap_servers, spark, tmp_path, "broker-away")
    source, target = harness.topic("source", 1), harness.topic("target", 1)
    shown = io.StringIO()
    progress = Progress("away", Console(file=shown, width=1000))
    application = StreamsApplication(copy_topology(source, target), harness.config(available_now=False), progress)
    with running_in_thread(application, spark) as check:
        harness.send(source, [Sent(b"k", b"v", 1_000)])
        eventually(lambda: check() or len(harness.read(target)) == 1, "a record")
        mortal.kill()
        eventually(lambda: check() or "waiting for the broker" in shown.getvalue(), "it is said")
        print("STOPPING", time.monotonic())
    print("STOPPED", time.monotonic())
    # It has ended, and the broker is still away.
    assert "answers again" not in shown.getvalue()
