"""A program reads the stores of the application that it runs, on real Spark and Kafka."""

from __future__ import annotations

import socket

import httpx2
import pytest

from state.kafka.admin import KafkaAdmin
from state.kafka.key_hash import partition_for_key
from streams import ConfigError, KafkaStreams, Materialized, StreamsBuilder
from streams.errors import QueryError
from streams.serve.local import LocalStore
from tests.spark.harness import Harness, Sent
from tests.spark.live import eventually

TASKS = 2


def test_a_program_reads_the_stores_of_the_application_that_it_runs(harness: Harness) -> None:
    source = harness.topic("in", TASKS)
    builder = StreamsBuilder()
    builder.stream(source).group_by_key().count(Materialized("counts"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    streams = KafkaStreams(builder.build(), harness.config(available_now=False, serve=url.rpartition(":")[2]))
    with pytest.raises(ConfigError, match="does not run"):
        streams.store("counts")
    with streams.start(harness.spark):
        assert streams.wait_until_running(300)
        counts: LocalStore[str, int] = streams.store("counts", wait_s=240)
        with pytest.raises(QueryError, match="no store 'sums'"):
            streams.store("sums")
        harness.send(source, [Sent(key, b"1", 5) for key in (b"ann", b"bob", b"ann")])
        with KafkaAdmin({"bootstrap.servers": harness.servers}) as admin:
            ends = admin.end_offsets([(source, task) for task in range(TASKS)])
        positions = {key: f"{source}-{task}={ends[source, task]}" for key in ("ann", "bob") for task in (task_of(key),)}
        assert [counts.get(key, position=positions[key]) for key in ("ann", "bob")] == [2, 1]
        assert counts.get("cid") is None
        assert counts.get_all(["bob", "cid", "ann"]) == {"bob": 1, "ann": 2}
        assert [(row.key, row.value) for row in counts.range("ann", "azz")] == [("ann", 2)]
        assert [row.key for row in counts.range(reverse=True)] == ["bob", "ann"]
        with pytest.raises(QueryError, match="neither windows nor sessions"):
            list(counts.windows("ann"))
        eventually(lambda: answers(f"{url}/v1/health"), "the stores are served")
        assert httpx2.get(f"{url}/v1/stores/counts/keys/ann").json()["value"] == 2
    assert not answers(f"{url}/v1/health")
    with pytest.raises(ConfigError, match="does not run"):
        streams.store("counts")


def task_of(key: str) -> int:
    return partition_for_key(key.encode(), TASKS)


def answers(url: str) -> bool:
    try:
        return httpx2.get(url).status_code == 200
    except httpx2.TransportError:
        return False
