"""The figures of an application on real Spark: served while it runs, and every query of the dashboard has data."""

from __future__ import annotations

import asyncio
import re
import shutil
import urllib.request
from collections.abc import Mapping, Sequence

import orjson
from prometheus_client.parser import text_string_to_metric_families

from streams import Materialized, StreamsBuilder, Topology
from streams.config.settings import Address
from streams.metrics.application import MicroBatchFigures
from streams.metrics.export import MetricsServer
from streams.spark.runner import StreamsApplication
from tests.metrics.queries import alert_queries, dashboard_queries
from tests.spark.harness import Harness, RecordedProgress, Sent

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
    # The joiner fails for all records of a step together, and then for the one at fault.
    found = builder.stream(source).enrich(looked_up, named="lookup").join(table, joined)
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


def run(harness: Harness, topology: Topology, letters: str) -> RecordedProgress:
    """A run that is scraped while it lasts."""
    progress = RecordedProgress(harness.application_id)
    scraped: list[Samples] = []

    def look(batch: MicroBatchFigures) -> None:
        (url,) = re.findall(r"http://\S+/metrics", progress.console.file.getvalue())  # type: ignore[attr-defined]
        scraped.append(series(scrape(url)))
        assert scrape(url.replace("/metrics", "/health")) == "alive\n"
        assert "running" in scrape(url.replace("/metrics", "/ready"))

    progress.metrics.listen(look)
    config = harness.config(metrics="0", tasks=1, deserialization="skip", processing="dlq", dead_letter_topic=letters)
    StreamsApplication(topology, config, progress).run(harness.spark)
    assert scraped[-1]["streams_records_in_total"]
    return progress


def test_every_query_of_the_dashboard_and_the_alerts_has_data(harness: Harness) -> None:
    source, factors, target, letters = (harness.topic(name, 1) for name in ("in", "factors", "out", "letters"))
    good = [Sent(b"k%d" % (n % 3), orjson.dumps(n), 1000 + n) for n in range(20)]
    bad = [Sent(b"a", b"{no", 1100), Sent(b"a", b"-1", 1101), Sent(None, b"1", 1102)]
    topology = sums(source, factors, target)
    harness.send(factors, [Sent(key, b"2", 1) for key in (b"k0", b"k1", b"k2", b"a")])
    harness.send(source, good)
    run(harness, topology, letters)
    # The next run restores, and has every sort of record.
    shutil.rmtree(harness.folder / "state")
    harness.send(source, good + bad)
    progress = run(harness, topology, letters)

    (sub,) = progress.subs.values()
    (task,) = sub.tasks.values()
    assert task.restored.records >= task.restored.rows >= 3
    assert task.state is not None
    assert task.state.disk_bytes > 0
    assert task.state.stores["sums"].rows == 3
    assert sub.partitions[source, 0].event_time_ms == 1102
    assert sub.lag == 0
    assert (sub.skipped, sub.dead_letters) == ({"deserialization": 1}, {"processing": 1})
    assert set(task.durations) == {"fence", "decide", "restore", "process", "commit", "apply", "total"}

    with MetricsServer(Address("127.0.0.1", 0), progress.metrics) as server:
        found = series(scrape(f"http://{server.address}/metrics"))
    for query in [*dashboard_queries(), *alert_queries()]:
        for name, matched in query.metrics.items():
            assert found.get(name), f"{query.where}: no series of {name}"
            assert matched | query.labels <= set(found[name][0]), query.where
