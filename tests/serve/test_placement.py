"""Reads of served stores whose keys are in the tasks of another function than murmur2, or in any task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from state.errors import KafkaClientError
from state.kafka.key_hash import partition_for_key
from state.kafka.placement import Placement
from streams import Consumed, Int64Serde, Materialized, StreamsBuilder, StringSerde, TimeWindows
from streams.application.rescale.plan import UsersChoices
from streams.cluster.records import Outgoing
from streams.errors import QueryError, StoreNotReadyError
from streams.serve.app import Api
from streams.serve.http.security import Guard, Security
from streams.serve.local import LocalStore
from streams.serve.requests import Limits
from streams.serve.scans import Scan
from streams.serve.served import Served
from streams.serve.server import _Placements
from streams.serve.topics import Topics
from streams.testing import TopologyTestDriver
from streams.testing.query import rescaler_of

TASKS = 3
NAMES = [f"k{number:03d}" for number in range(40)]


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    builder = StreamsBuilder()
    by_key = builder.stream("clicks", Consumed(StringSerde(), Int64Serde())).group_by_key()
    by_key.count(Materialized("counts"))
    by_key.windowed_by(TimeWindows.of_size_with_no_grace(10_000)).count(Materialized("windows"))
    with TopologyTestDriver(builder.build(), partitions={"clicks": TASKS}) as driver:
        with driver.batch():
            for name in NAMES:
                driver.create_input_topic("clicks").pipe_input(name, 1, 1_000)
        yield driver


@pytest.fixture(params=[Placement.MURMUR2, Placement.CRC32, Placement.FNV1A, Placement.PARTITION])
def served(driver: TopologyTestDriver, request: pytest.FixtureRequest) -> Served:
    """Stores whose rows have moved to where a function puts their keys; or that could be anywhere."""
    if request.param is Placement.PARTITION:
        served = driver.served()
        served._placement_of = lambda sub: Placement.PARTITION
        return served
    rescaler_of(driver._queries, "test", driver._kafka, TASKS, UsersChoices(), request.param).run()
    return driver.served()


def test_every_way_to_read_finds_the_rows_of_a_key(served: Served) -> None:
    store = served.store("counts")
    keys = [name.encode() for name in NAMES]
    assert [store.get([key]).rows[0].value for key in keys] == [1] * len(keys)
    assert len(store.get_all(keys).rows) == len(keys)
    assert store.get([b"absent"]).rows == ()
    local: LocalStore[str, int] = LocalStore(served, "counts", 1.0)
    assert local.get("k007") == 1
    assert local.get_all([*NAMES, "absent"]) == dict.fromkeys(NAMES, 1)
    windows = served.store("windows")
    assert [row.value for row in windows.scan(Scan(key=keys[7], from_ms=0, to_ms=9_999)).rows] == [1]


def test_http_finds_them_too(served: Served) -> None:
    api = Api(served, Guard(Security()), Limits()).application()
    http = TestClient(api, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 1))
    assert http.get("/v1/stores/counts/keys/k007").json()["value"] == 1
    assert http.get("/v1/stores/counts/keys/absent").status_code == 404
    rows = http.post("/v1/stores/counts/keys:batch", json={"keys": NAMES}).json()["rows"]
    assert [row["value"] for row in rows] == [1] * len(NAMES)


def test_the_task_of_a_record_that_is_written_is_known_only_by_a_function(served: Served) -> None:
    topics = Topics(served, lambda topic, record: (0, 0))
    record: tuple[str, Any] = ("clicks", Outgoing(b"k007", b"1"))
    placement = served.placement_of_topic("clicks")
    if placement is Placement.PARTITION:
        with pytest.raises(QueryError, match="read with the position"):
            topics.awaited(served.store("counts"), record, None)
    else:
        task, key = topics.awaited(served.store("counts"), record, None)
        assert (task, key) == (partition_for_key(b"k007", TASKS, placement), b"k007")


def test_what_gives_keys_to_tasks_is_asked_for_beside_the_reads():
    """Brokers that are away would hold up every read: the loop that answers waits for nobody."""
    answers = iter([KafkaClientError("the broker is away"), None, Placement.PARTITION])

    def ask(sub):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    placements = _Placements(ask, ["orders"])
    with pytest.raises(StoreNotReadyError, match="not asked yet"):
        placements.of("orders")
    assert placements.look()
    with pytest.raises(StoreNotReadyError, match="the broker is away"):
        placements.of("orders")
    assert placements.look()
    assert placements.of("orders") is None
    assert not placements.look()
    assert not placements.look()
    assert placements.of("orders") is Placement.PARTITION
