"""Integers beyond 64 bits are exact in keys, values and answers: over HTTP, in SQL, in the clients and on the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from streams import Consumed, JsonSerde, Materialized, StreamsBuilder
from streams.cli.output import print_json_line
from streams.driver.store_frame import _text
from streams.serdes.json_shown import shown_json
from streams.serve.app import Api
from streams.serve.client import StoreClient
from streams.serve.http.security import Guard, Security
from streams.serve.requests import Limits
from streams.testing import TopologyTestDriver

BIG = 2**64 + 1
ROWS = {BIG: {"id": BIG, "n": 1}, BIG + 1: {"id": BIG + 1, "n": -BIG}}


@pytest.fixture
def http() -> Iterator[TestClient]:
    builder = StreamsBuilder()
    builder.table("ids", Consumed(JsonSerde(), JsonSerde()), Materialized("ids"))
    with TopologyTestDriver(builder.build(), partitions={"ids": 3}) as driver:
        topic = driver.create_input_topic("ids")
        for key, value in ROWS.items():
            topic.pipe_bytes(str(key).encode(), json.dumps(value).encode(), 1)
        api = Api(driver.served(), Guard(Security()), Limits())
        yield TestClient(api.application(), client=("127.0.0.1", 1), base_url="http://localhost")


def test_answers_have_exact_integers(http: TestClient) -> None:
    for key, value in ROWS.items():
        found = json.loads(http.get(f"/v1/stores/ids/keys/{key}").content)
        assert (found["key"], found["value"]) == (key, value)
    batch = http.post(
        "/v1/stores/ids/keys:batch", content=json.dumps({"keys": [*ROWS]}), headers={"content-type": "application/json"}
    )
    assert [row["value"] for row in json.loads(batch.content)["rows"]] == [*ROWS.values()]
    found = json.loads(http.get("/v1/stores/ids/range").content)["rows"]
    assert {row["key"]: row["value"] for row in found} == ROWS


def test_a_result_of_sql_has_exact_integers(http: TestClient) -> None:
    answer = http.post("/v1/sql", json={"sql": "SELECT key, value FROM ids"})
    assert sorted(json.loads(answer.content)["rows"]) == [[key, value] for key, value in ROWS.items()]


def test_the_typed_client_has_exact_integers(http: TestClient) -> None:
    client: StoreClient[int, dict[str, int]] = StoreClient("", "ids", key=int, value=dict[str, int], http=http)
    assert client.get(BIG) == ROWS[BIG]
    assert client.get(2**64) is None
    assert client.get_all([*ROWS]) == ROWS
    assert {row.key: row.value for row in client.range()} == ROWS


def test_lines_and_frames_have_exact_integers(capsys: pytest.CaptureFixture[str]) -> None:
    print_json_line({"value": {"n": BIG}})
    assert capsys.readouterr().out == f'{{"value":{{"n":{BIG}}}}}\n'
    assert _text({"n": BIG}) == f'{{"n":{BIG}}}'
    # Beside them, numbers that JSON does not have are null, as they are without them.
    assert shown_json([BIG, float("nan")]) == f"[{BIG},null]".encode()
    assert shown_json([1, float("nan")]) == b"[1,null]"
