"""Foreign-key joins write the bytes that Kafka Streams writes, and read those of releases before.

`tests/golden/kafka-streams-foreign-key.jsonl` has the topics of a join that Kafka Streams 4.3.1 ran in its `TopologyTestDriver`:
employees refer to departments. A line is a record: topic, key and value in hex, timestamp, headers.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from state.murmur3 import murmur3
from streams import Consumed, JsonSerde, Materialized, StreamsBuilder, StringSerde, Topology
from streams.errors import SerdeError
from streams.model.record import Response, Subscription
from streams.operators.join import foreign_key
from streams.serdes.internal import ResponseSerde, SubscriptionSerde
from streams.testing import TopologyTestDriver

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-streams-foreign-key.jsonl"
LEFT = [
    ("e1", b'{"name":"Eva","dept":"d1"}'),
    ("e2", b'{"name":"Max","dept":"d2"}'),
    ("e3", b'{"name":"Ida","dept":"d9"}'),
    ("e4", b'{"name":"Tom","dept":"d1"}'),
]


def golden(topic: str) -> list[tuple[bytes, bytes]]:
    """Keys and values of the records of a topic, in order."""
    records = map(json.loads, GOLDEN.read_text().splitlines())
    return [(bytes.fromhex(one["k"]), bytes.fromhex(one["v"])) for one in records if one["topic"] == f"x-{topic}"]


def department(employee: Any) -> str:
    return str(employee["dept"])


def placed(employee: Any, name: Any) -> str:
    return f"{employee['name']}@{name}"


def program() -> Topology:
    builder = StreamsBuilder()
    employees = builder.table("in-emp", Consumed(StringSerde(), JsonSerde()), Materialized(name="emp"))
    departments = builder.table("in-dept", Consumed(StringSerde(), StringSerde()), Materialized(name="dept"))
    joined = employees.join(departments, placed, foreign_key=department, named="fk")
    joined.to_stream().to("out")
    return builder.build()


def play(driver: TopologyTestDriver) -> None:
    """What Kafka Streams was given: the employees refer to departments, one of which does not exist."""
    departments = driver.create_input_topic("in-dept", StringSerde(), StringSerde())
    departments.pipe_input("d1", "Eng", 1)
    departments.pipe_input("d2", "Ops", 1)
    employees = driver.create_input_topic("in-emp", StringSerde(), JsonSerde())
    for key, value in LEFT:
        employees.pipe_input(key, json.loads(value), 2)


def test_the_hash_is_kafka_streams_own() -> None:
    theirs = [value[2:18] for _, value in golden("fk-subscription-store-changelog")]
    assert [value for _, value in golden("emp-changelog")] == [value for _, value in LEFT]
    assert murmur3(pa.array([value for _, value in LEFT], pa.binary())) == theirs


def test_the_hash_of_each_length() -> None:
    cells = pa.array([bytes(range(size)) for size in range(40)], pa.binary())
    found = murmur3(cells)
    assert len(set(found)) == 40
    assert [murmur3(cells[size : size + 1])[0] for size in range(40)] == found
    assert murmur3(pa.array([None, b"x", None], pa.binary()))[::2] == [None, None]
    assert murmur3(pa.nulls(2, pa.binary())) == [None, None]


def test_messages_are_written_as_kafka_streams_writes_them() -> None:
    serde = SubscriptionSerde(StringSerde())
    for _, data in golden("fk-subscription-registration-topic"):
        read = serde.deserialize("t", data)
        assert read is not None
        assert read.partition == 0
        assert read.primary_key in dict(LEFT)
        assert serde.serialize("t", read) == data
    answers = ResponseSerde(StringSerde())
    for _, data in golden("fk-subscription-response-topic"):
        assert answers.serialize("t", answers.deserialize("t", data)) == data


def test_the_store_of_subscriptions_has_kafka_streams_rows() -> None:
    with TopologyTestDriver(program(), "x", mode="compat") as driver:
        play(driver)
        rows = driver._kafka.log("x-fk-subscription-store-changelog", 0).readable()
        assert sorted((row.key, row.value) for row in rows) == sorted(golden("fk-subscription-store-changelog"))


def test_subscriptions_of_releases_before_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of version 0 with another hash stay in the store until the left row changes."""

    def before(cells: pa.BinaryArray) -> list[bytes | None]:
        return [None if one is None else hashlib.blake2b(one, digest_size=16).digest() for one in cells.to_pylist()]

    with TopologyTestDriver(program(), "x", mode="compat") as driver:
        with monkeypatch.context() as former:
            former.setattr(foreign_key, "murmur3", before)
            former.setattr(foreign_key, "Subscription", lambda *fields: Subscription(*fields[:3]))
            play(driver)
        rows = driver._kafka.log("x-fk-subscription-store-changelog", 0).readable()
        assert {row.value[0] for row in rows} == {0}
        out = driver.create_output_topic("out", StringSerde(), JsonSerde())
        out.read_records_to_list()
        driver.restart(wipe_state=True)
        driver.create_input_topic("in-dept", StringSerde(), StringSerde()).pipe_input("d1", "Engineering", 3)
        assert {record.key: record.value for record in out.read_records_to_list()} == {
            "e1": "Eva@Engineering",
            "e4": "Tom@Engineering",
        }


@pytest.mark.parametrize(
    ("data", "says"), [(b"\x02\x00" + bytes(30), "version 2"), (b"\x7f\x00" + bytes(30), "version 127")]
)
def test_versions_that_are_not_known(data: bytes, says: str) -> None:
    with pytest.raises(SerdeError, match=says):
        SubscriptionSerde(StringSerde()).deserialize("t", data)


def test_a_version_of_responses_that_is_not_known() -> None:
    with pytest.raises(SerdeError, match="version 1 of responses"):
        ResponseSerde(StringSerde()).deserialize("t", b"\x01" + bytes(16) + b"v")
    assert ResponseSerde(StringSerde()).deserialize("t", b"\xc0") == Response(None, None)
