"""A broker that is killed under a running application, and comes back on the same data and port: nothing but time is lost.

`BROKER_AWAY_S=75` keeps it away for so many seconds; without it, for as long as it takes the application to notice.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from streams import StreamsBuilder
from streams.broker import EmbeddedBroker, fetch_jars
from streams.spark import reports
from streams.spark.progress import Progress
from streams.spark.runner import StreamsApplication
from tests.spark.harness import Harness, Sent, last_per_key
from tests.spark.live import eventually, running_in_thread

AWAY_S = float(os.environ.get("BROKER_AWAY_S", "0"))


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker of these tests' own."""
    fetch_jars()
    folder = tmp_path_factory.mktemp("mortal")
    with EmbeddedBroker(folder, die_with_parent=True, start_timeout_s=240) as broker:
        yield broker


@dataclass
class Counts:
    """An application that counts values; whoever comes to the value `held` waits until `gate` is there."""

    broker: EmbeddedBroker
    spark: SparkSession
    folder: Path
    shown: io.StringIO = field(default_factory=io.StringIO)

    def __post_init__(self) -> None:
        self.harness = Harness(self.broker.bootstrap_servers, self.spark, self.folder, "broker-away")
        self.source, self.target = self.harness.topic("source", 2), self.harness.topic("target", 2)
        gate, entered = self.folder / "gate", self.folder / "entered"

        def held(key: str, count: int) -> int:
            while key == "held" and not gate.exists():
                entered.touch()
                time.sleep(0.05)
            return count

        builder = StreamsBuilder()
        counts = builder.stream(self.source).group_by(lambda key, value: value).count()
        counts.to_stream().map_values(held).to(self.target)
        progress = Progress("away", Console(file=self.shown, width=1000))
        config = self.harness.config(available_now=False, transaction_timeout_ms=2_000)
        self.application = StreamsApplication(builder.build(), config, progress)
        self.gate, self.entered = gate, entered

    def send(self, *words: str) -> None:
        """Writes values."""
        records = [Sent(None, b'"%s"' % word.encode(), 1_000, n % 2) for n, word in enumerate(words)]
        self.harness.send(self.source, records)

    def counted(self, **expected: int) -> bool:
        """Whether these are the counts."""
        found = last_per_key(self.harness.read(self.target))
        return found == {word.encode(): b"%d" % count for word, count in expected.items()}

    def said(self, text: str, times: int = 1) -> bool:
        """Whether the user was told something so often."""
        return self.shown.getvalue().count(text) >= times

    def each_once(self) -> bool:
        """Whether no result was written twice."""
        found = [(record.key, record.value) for record in self.harness.read(self.target)]
        return len(set(found)) == len(found)


@pytest.fixture
def counts(
    mortal: EmbeddedBroker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Counts]:
    # Who is silent is asked about soon: that waiting is what takes the time of these tests.
    monkeypatch.setattr(reports, "QUIET_S", 2.0)
    monkeypatch.setattr(reports, "_REQUEST_S", 2.0)
    yield Counts(mortal, spark, tmp_path)
    mortal.start()


def test_a_broker_that_is_killed_within_a_step(counts: Counts) -> None:
    with running_in_thread(counts.application, counts.spark) as check:
        counts.send("a", "b", "a")
        eventually(lambda: check() or counts.counted(a=2, b=1), "the first counts")
        counts.send("a", "held")
        eventually(lambda: check() or counts.entered.exists(), "a task is in the middle of a step")
        # Not within a commit of the other task: Kafka 4.3 may leave such a transaction hanging (KAFKA-20734).
        time.sleep(1)
        counts.broker.kill()
        gone = time.monotonic()
        counts.gate.touch()
        # The task fails in each of its attempts, and the query with it.
        eventually(lambda: check() or counts.said("starts again by itself after: "), "the query has failed")
        while time.monotonic() - gone < AWAY_S:
            time.sleep(0.5)
            check()
        counts.broker.start()
        counts.send("b", "c")
        eventually(lambda: check() or counts.counted(a=3, b=2, c=1, held=1), "all counts")
    assert counts.said("waiting for the broker at ")
    assert counts.said(" answers again after ")
    assert counts.each_once()


def test_a_broker_that_is_killed_while_nothing_happens_and_a_stop_meanwhile(counts: Counts) -> None:
    with running_in_thread(counts.application, counts.spark) as check:
        counts.send("a", "b", "a")
        eventually(lambda: check() or counts.counted(a=2, b=1), "the first counts")
        counts.broker.kill()
        gone = time.monotonic()
        eventually(lambda: check() or counts.said("waiting for the broker at "), "it is said")
        while time.monotonic() - gone < AWAY_S:
            time.sleep(0.5)
            check()
        counts.broker.start()
        counts.send("b", "c")
        eventually(lambda: check() or counts.counted(a=2, b=2, c=1), "all counts")
        assert counts.each_once()
        eventually(lambda: check() or counts.said(" answers again after "), "it is said that it is over")
        counts.broker.kill()
        eventually(lambda: check() or counts.said("waiting for the broker at ", 2), "it is said again")
    # The application has ended, and the broker is still away.
    assert not counts.said(" answers again after ", 2)
