"""`KafkaStreams` on real Spark and Kafka: an application that runs while the program goes on."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from state.kafka.admin import KafkaAdmin, LateAdmin
from streams import (
    BytesSerde,
    JoinWindows,
    JsonSerde,
    KafkaStreams,
    Materialized,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from streams.config.settings import Address
from streams.driver import reports
from streams.driver.runner import StreamsApplication
from streams.errors import ConfigError
from streams.metrics.application import MicroBatchFigures
from streams.metrics.export import metrics_served
from tests.metrics.test_dashboard import alert_queries, dashboard_queries
from tests.spark.harness import Harness, RecordedProgress, Sent

WAIT_S = 120.0


def test_an_application_runs_in_the_background_until_it_is_stopped(harness: Harness) -> None:
    source, target = harness.topic("in"), harness.topic("out")
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    builder.stream(source).to(target)
    changes: list[str] = []
    running = threading.Event()

    def listener(new: str, old: str) -> None:
        changes.append(new)
        if new is KafkaStreams.State.RUNNING:
            running.set()

    streams = KafkaStreams(builder.build(), harness.config(available_now=False))
    streams.set_state_listener(listener)
    events: list[str] = []
    streams.set_event_listener(lambda event: events.append(event.name))
    with streams.start(harness.spark):
        assert running.wait(WAIT_S)
        harness.send(source, [Sent(b"a", b"1", 5)])
        while not harness.read(target):
            assert not streams.await_termination(timeout=0.2)
    assert changes == ["STARTING", "RUNNING", "STOPPING", "STOPPED"]
    # A busy machine's broker may be away for a moment.
    own = [name for name in dict.fromkeys(events) if not name.startswith("broker_")]
    assert own == ["starting", "topics_created", "running", "stopping", "stopped"]
    assert [(record.key, record.value) for record in harness.read(target)] == [(b"a", b"1")]
    # The session that was given goes on.
    assert harness.spark.range(1).count() == 1


def open_clients() -> int:
    """How many clients of librdkafka are open in this process: each one has a thread of this name while it lives."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        # A thread may end while it is looked at.
        with suppress(FileNotFoundError, ProcessLookupError):
            count += task.joinpath("comm").read_text().strip() == "rdk:main"
    return count


def test_an_application_that_has_ended_leaves_no_client_and_no_thread(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = harness.topic("in"), harness.topic("out")
    harness.send(source, [Sent(b"a", b"1", 5)])
    monkeypatch.setattr(reports, "LOOK_S", 0.01)
    monkeypatch.setattr(reports, "_WATCH_S", 0.01)
    opened: list[KafkaAdmin] = []
    late = LateAdmin.__call__
    monkeypatch.setattr(LateAdmin, "__call__", lambda one: opened.append(late(one)) or opened[-1])
    ended: list[KafkaStreams] = []
    left = []
    for run in range(3):
        builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
        builder.stream(source).to(target)
        # Still referred to afterwards, as in a notebook: nothing is left to the collection of garbage.
        ended.append(KafkaStreams(builder.build(), harness.config()).start(harness.spark))
        ended[-1].await_termination()
        for thread in threading.enumerate():
            if thread.name in ("broker-watch", "pause-events", "streams-instance", "restore-reports"):
                thread.join(WAIT_S)
        # A client closes in a thread of its own, and clients that earlier tests left to the collector may close meanwhile.
        until = time.monotonic() + WAIT_S
        while run and open_clients() > left[0] and time.monotonic() < until:
            time.sleep(0.05)
        left.append(open_clients())
    assert len(set(map(id, opened))) >= 6, "both watches have asked in each run"
    # What the first one leaves is shared by all of this process: one admin client for a cluster.
    assert left[0] >= max(left[1:]), left


# --- Stores as DataFrames, on real Spark and Kafka: the committed rows of all tasks, by SQL, with the position they show.


def topology(source: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(source, value_serde=JsonSerde())
    flights = stream.group_by_key()
    flights.aggregate(dict, lambda key, flight, total: {"sum": total.get("sum", 0) + flight}, Materialized(name="sums"))
    flights.windowed_by(TimeWindows.of_size_with_no_grace(3_600_000)).count(Materialized(name="hourly"))
    minutes = stream.map_values(lambda flight: {"minutes": flight}).group_by_key()
    minutes.mean("minutes", materialized=Materialized(name="means"))
    return builder.build()


def test_a_store_is_read_by_sql_as_of_the_last_commits(harness: Harness) -> None:
    source = harness.topic("in", 2)
    hour = 3_600_000
    harness.send(source, [Sent(b"UA", b"3", 5), Sent(b"UA", b"4", 6), Sent(b"DL", b"7", hour + 1)])
    harness.run(topology(source))
    streams = KafkaStreams(topology(source), harness.config())
    streams.store_dataframe("sums", harness.spark, value_schema="struct<sum:bigint>").createOrReplaceTempView("sums")
    streams.store_dataframe("hourly", harness.spark, value_schema="bigint").createOrReplaceTempView("hourly")
    sums = harness.spark.sql(
        "SELECT key, value.sum AS sum, timestamp, window_start, _version FROM sums ORDER BY key"
    ).collect()
    assert [(row.key, row.sum, row.window_start) for row in sums] == [("DL", 7, None), ("UA", 7, None)]
    assert all(row._version >= 1 for row in sums)
    hourly = harness.spark.sql(
        "SELECT key, unix_millis(window_start) AS start, unix_millis(window_end) AS end, value, _changelog_offset AS at "
        "FROM hourly ORDER BY key"
    ).collect()
    assert [(row.key, row.start, row.end, row.value) for row in hourly] == [
        ("DL", hour, 2 * hour, 1),
        ("UA", 0, hour, 2),
    ]
    assert all(row.at > 0 for row in hourly)

    # The store of the means has sums and counts.
    means = streams.store_dataframe("means", harness.spark, value_schema="struct<mean:double>")
    assert {row.key: row["mean"] for row in means.select("key", "value.mean").collect()} == {"UA": 3.5, "DL": 7.0}

    # The view follows the application: each query reads what is committed by then.
    harness.send(source, [Sent(b"DL", b"1", hour + 2)])
    harness.run(topology(source))
    assert harness.spark.sql("SELECT sum(value.sum) AS sum FROM sums").collect()[0].sum == 15


def test_a_store_that_does_not_exist_is_named(harness: Harness) -> None:
    streams = KafkaStreams(topology("in"), harness.config())
    with pytest.raises(ConfigError, match=r"no store 'hourley'; it has: hourly, means, sums.*hourly"):
        streams.store_dataframe("hourley", harness.spark)


# --- The figures of an application on real Spark: served while it runs, and every query of the dashboard has data.

Samples = Mapping[str, Sequence[Mapping[str, str]]]


async def looked_up(value: int) -> int:
    # Calls are counted in whole milliseconds.
    await asyncio.sleep(0.005)
    return value


def joined(value: int, factor: int) -> int:
    if value < 0:
        raise ValueError("negative")
    return value * factor


def sums(source: str, factors: str, target: str) -> Topology:
    builder = StreamsBuilder()
    table = builder.table(factors, materialized=Materialized(name="factors"))
    numbers = builder.stream(source)
    # Where a joiner of two streams fails, the records go one by one.
    numbers.join(numbers, joined, JoinWindows.of_time_difference_and_grace(1, 0)).to(target)
    found = numbers.enrich(looked_up, named="lookup").join(table, joined)
    summed = found.group_by_key().aggregate(
        lambda: 0, lambda n, total: total + n, materialized=Materialized(name="sums")
    )
    summed.to_stream().to(target)
    return builder.build()


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.status == 200
        return str(answer.read().decode())


def series(text: str) -> Samples:
    """Served name -> the labels of its series."""
    found: dict[str, list[Mapping[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def run(harness: Harness, topology: Topology, letters: str, **place: str) -> RecordedProgress:
    """A run that is scraped while it lasts."""
    progress = RecordedProgress(harness.application_id)
    scraped: list[Samples] = []

    def look(batch: MicroBatchFigures) -> None:
        (url,) = re.findall(r"http://\S+/metrics", progress.console.file.getvalue())  # type: ignore[attr-defined]
        scraped.append(series(scrape(url)))
        assert scrape(url.replace("/metrics", "/health")) == "alive\n"
        assert "running" in scrape(url.replace("/metrics", "/ready"))

    progress.metrics.listen(look)
    policies = {"deserialization": "skip", "processing": "dlq", "dead_letter_topic": letters}
    config = harness.config(metrics="0", tasks=1, **policies, **place)
    StreamsApplication(topology, config, progress).run(harness.spark)
    assert scraped[-1]["streams_records_in_total"]
    return progress


@pytest.mark.micro_batches("the dashboard has all parts of a step; a live one has fewer")
def test_every_query_of_the_dashboard_and_the_alerts_has_data(harness: Harness) -> None:
    source, factors, target, letters = (harness.topic(name, 1) for name in ("in", "factors", "out", "letters"))
    good = [Sent(b"k%d" % (n % 3), orjson.dumps(n), 1000 + n) for n in range(20)]
    bad = [Sent(b"a", b"{no", 1100), Sent(b"a", b"-1", 1101), Sent(None, b"1", 1102)]
    topology = sums(source, factors, target)
    harness.send(factors, [Sent(key, b"2", 1) for key in (b"k0", b"k1", b"k2", b"a")])
    harness.send(source, good)
    run(harness, topology, letters)
    # The next run has every sort of record. As on another host it restores, and measures the sizes of its stores.
    harness.send(factors, [Sent(b"k0", b"2", 2)])
    harness.send(source, good + bad)
    progress = run(harness, topology, letters, state_dir=str(harness.folder / "elsewhere"))

    (sub,) = progress.subs.values()
    (task,) = sub.tasks.values()
    assert task.restored.records >= task.restored.rows >= 3
    assert task.state is not None
    assert task.state.disk_bytes > 0
    assert task.state.stores["sums"].rows == 3
    assert sub.partitions[source, 0].event_time_ms == 1102
    assert sub.lag == 0
    assert (sub.skipped, sub.dead_letters) == ({"deserialization": 1}, {"processing": 2})
    assert set(task.durations) == {"fence", "decide", "restore", "process", "commit", "apply", "total"}

    with metrics_served(progress.metrics, Address("127.0.0.1", 0)) as address:
        found = series(scrape(f"http://{address}/metrics"))
    for query in [*dashboard_queries(), *alert_queries()]:
        for name, matched in query.metrics.items():
            if name.startswith(("streams_serve_", "streams_replica_")):
                continue  # those of other processes
            assert found.get(name), f"{query.where}: no series of {name}"
            assert matched | query.labels <= set(found[name][0]), query.where
