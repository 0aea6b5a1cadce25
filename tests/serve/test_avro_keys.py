"""Keys of Avro: what is shown of them is what they are asked for by, whatever their schema has."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from streams import (
    AvroSerde,
    Consumed,
    Int64Serde,
    Materialized,
    SchemaRegistry,
    SerdeError,
    StreamsBuilder,
    TupleSerde,
)
from streams.serdes.json_shown import reader_of, shown_json, written, written_of_text
from streams.serdes.json_text import loads
from streams.serve.app import Api
from streams.serve.client import StoreClient
from streams.serve.http.security import Guard, Security
from streams.testing import TopologyTestDriver
from tests.budget import up_to
from tests.serdes.registry_server import running
from tests.serdes.test_avro_properties import Making
from tests.serdes.test_registry import QUICK

UTC = timezone.utc
A_UUID = uuid.UUID("7b0e2c5a-3a63-4f0e-9d6f-0c4a3a5a1b2c")


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def record(name: str, **types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in types.items()]}


LEVEL = {"type": "enum", "name": "Level", "symbols": ["low", "high"]}
KEYS: dict[str, tuple[Any, list[Any]]] = {
    "day": (logical("int", "date"), [date(2024, 5, 1), date(1, 1, 1)]),
    "uuid": (logical("string", "uuid"), [A_UUID]),
    "millis": (logical("long", "timestamp-millis"), [datetime(2024, 5, 1, 10, 0, 0, 5000, UTC)]),
    "local": (logical("long", "local-timestamp-micros"), [datetime(2024, 5, 1, 10, 0, 0, 5)]),  # noqa: DTZ001
    "hour": (logical("int", "time-millis"), [time(23, 59, 1, 7000)]),
    "bytes": ("bytes", [b"\xff\x00", b"ff00", b""]),
    "fixed": ({"type": "fixed", "name": "Two", "size": 2}, [b"\xff\x00"]),
    "number": (
        {"type": "fixed", "name": "Number", "size": 4, **logical("fixed", "decimal", precision=8, scale=2)},
        [Decimal("1.50")],
    ),
    "double": ("double", [1.0, -0.25, float("inf")]),
    "long": ("long", [7, -(2**63)]),
    "text": ("string", ["7", "a/b", '"', "2024-05-01"]),
    "either": (["null", "long", logical("int", "date"), LEVEL], [7, date(2024, 5, 1), "high"]),
    "record": (
        record(
            "Key",
            day=["null", logical("int", "date")],
            id=logical("string", "uuid"),
            raw="bytes",
            parts={"type": "array", "items": record("Part", price=logical("bytes", "decimal", precision=8, scale=2))},
            more={"type": "map", "values": "Part"},
        ),
        [
            {
                "day": day,
                "id": A_UUID,
                "raw": b"\xff",
                "parts": [{"price": Decimal("1.50")}],
                "more": {"a": {"price": Decimal("-0.25")}},
            }
            for day in (None, date(2024, 5, 1))
        ],
    ),
}


@dataclass(frozen=True)
class Order:
    day: date
    id: uuid.UUID


ORDER = json.dumps(record("Order", day=logical("int", "date"), id=logical("string", "uuid")))


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with running() as fake:
        yield SchemaRegistry(fake.url, QUICK)


@pytest.fixture(scope="module")
def serdes(registry: SchemaRegistry) -> dict[str, AvroSerde]:
    return {name: AvroSerde(registry, json.dumps(schema), is_key=True) for name, (schema, _) in KEYS.items()}


@pytest.fixture(scope="module")
def http(registry: SchemaRegistry, serdes: dict[str, AvroSerde]) -> Iterator[TestClient]:
    """A table of keys of each kind, whose values are their numbers."""
    builder = StreamsBuilder()
    orders = AvroSerde(registry, ORDER, to_dict=asdict, from_dict=lambda found: Order(**found), is_key=True)
    given: dict[str, tuple[AvroSerde, list[Any]]] = {name: (serdes[name], keys) for name, (_, keys) in KEYS.items()}
    given["orders"] = (orders, [Order(date(2024, 5, 1), A_UUID)])
    for name, (serde, _) in given.items():
        builder.table(f"t-{name}", Consumed(serde, Int64Serde()), Materialized(name))
    with TopologyTestDriver(builder.build()) as driver:
        for name, (_, keys) in given.items():
            for number, key in enumerate(keys):
                driver.create_input_topic(f"t-{name}").pipe_input(key, number, 1)
        api = Api(driver.served(), Guard(Security()))
        yield TestClient(api.application(), client=("127.0.0.1", 1), base_url="http://localhost")


@pytest.mark.parametrize("name", [*KEYS, "orders"])
def test_a_key_is_found_by_what_is_shown_of_it(http: TestClient, name: str) -> None:
    rows = http.get(f"/v1/stores/{name}/range?limit=100").json()["rows"]
    assert len(rows) == (1 if name == "orders" else len(KEYS[name][1]))
    for row in rows:
        key = shown_json(row["key"])
        found = http.get(f"/v1/stores/{name}/keys/{quote(key.decode(), safe='')}?keys=json")
        assert (found.status_code, found.json()["value"]) == (200, row["value"]), found.text
        batch = http.post(
            f"/v1/stores/{name}/keys:batch",
            content=b'{"keys":[%b]}' % key,
            headers={"content-type": "application/json"},
        )
        assert [one["value"] for one in batch.json()["rows"]] == [row["value"]]
        typed = key.decode() if not isinstance(row["key"], str) else row["key"]
        assert http.get(f"/v1/stores/{name}/keys/{quote(typed, safe='')}").json()["value"] == row["value"]


def test_the_typed_client_asks_for_dates_and_uuids(http: TestClient) -> None:
    days: StoreClient[date, int] = StoreClient("", "day", key=date, value=int, http=http)
    assert days.get_all([date(2024, 5, 1), date(2000, 1, 1)]) == {date(2024, 5, 1): 0}
    ids: StoreClient[uuid.UUID, int] = StoreClient("", "uuid", key=uuid.UUID, value=int, http=http)
    assert ids.get(A_UUID) == 0
    raw: StoreClient[bytes, int] = StoreClient("", "bytes", key=bytes, value=int, http=http)
    assert [raw.get(key) for key in (b"\xff\x00", b"ff00", b"")] == [0, 1, 2]
    orders: StoreClient[Order, int] = StoreClient("", "orders", key=Order, value=int, http=http)
    assert orders.get(Order(date(2024, 5, 1), A_UUID)) == 0
    assert [row.key for row in orders.range()] == [Order(date(2024, 5, 1), A_UUID)]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("day", "2024-13-01", "date"),
        ("day", "7", "date"),
        ("uuid", "x", "uuid"),
        ("bytes", "bob!", "base64"),
        ("long", '"7"', "int"),
        ("double", "9007199254740993", "digits"),
        ("hour", "10:00:00+01:00", "zone"),
        ("millis", "2024-05-01T10:00:00.000001Z", "milliseconds"),
        ("record", '{"day":null}', "missing"),
        ("record", '{"day":"x","id":"","raw":"","parts":[],"more":{}}', "day"),
        ("either", '"2024"', "none of these"),
    ],
)
def test_what_is_no_key_is_refused(http: TestClient, name: str, text: str, why: str) -> None:
    answer = http.get(f"/v1/stores/{name}/keys/{quote(text, safe='')}")
    assert (answer.status_code, answer.json()["error"]) == (400, "QueryError")
    assert why in answer.json()["message"]
    assert "AskedFor" not in answer.json()["message"]


def test_of_two_branches_that_are_shown_alike_none_is_taken(registry: SchemaRegistry) -> None:
    """The texts of a date and of a text are the same, and so would be the rows of both."""
    serde = AvroSerde(registry, json.dumps(["string", logical("int", "date")]), is_key=True)
    assert written(serde, "alike", "a") == serde.serialize("alike", "a")
    with pytest.raises(SerdeError, match="several of these are shown so"):
        written(serde, "alike", "2024-05-01")


def test_the_newest_schema_of_a_subject_says_what_a_key_is(registry: SchemaRegistry) -> None:
    serde = AvroSerde(registry, json.dumps(logical("int", "date")), is_key=True)
    data = serde.serialize("newest", date(2024, 5, 1))
    newest = AvroSerde(registry, is_key=True)
    assert written_of_text(newest, "newest", "2024-05-01") == data
    parts = TupleSerde(newest, Int64Serde())
    assert written(parts, "newest", ["2024-05-01", 7]) == parts.serialize("newest", (date(2024, 5, 1), 7))


@up_to(120, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_what_is_shown_of_any_value_is_written_as_it_is_or_refused(
    registry: SchemaRegistry, data: st.DataObject
) -> None:
    making = Making(data.draw)
    schema = making.schema()
    serde = AvroSerde(registry, json.dumps(schema)).kept()
    try:
        stored = serde.serialize("t", making.value(schema))
    except SerdeError:
        return
    asked = loads(shown_json(reader_of(serde, "t")(stored)))
    if asked is None:
        return
    try:
        assert written(serde, "t", asked) == stored
    except SerdeError as error:
        if "several of these" not in str(error):
            raise
