"""Answers are bounded in bytes: pages end early and go on, batches of one large row and loads for SQL are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from state.stores.codec import MAX_TIME
from streams import Consumed, Int64Serde, Materialized, StreamsBuilder, StringSerde
from streams.errors import QueryError
from streams.serve.app import Api
from streams.serve.http.security import Guard, Security
from streams.serve.position import Commit
from streams.serve.requests import Limits, SqlLimits
from streams.serve.scans import Asked, Scan
from streams.testing import TopologyTestDriver

LARGE = "x" * 10_000
NAMES = [f"k{number:02d}" for number in range(40)]
LIMITS = Limits(page_bytes=25_000, batch_bytes=100_000, sql=SqlLimits(loaded_bytes=100_000))


@pytest.fixture(scope="module", params=[1, 3])
def client(request):
    builder = StreamsBuilder()
    builder.table("texts", Consumed(StringSerde(), StringSerde()), Materialized("texts"))
    builder.table("numbers", Consumed(Int64Serde(), StringSerde()), Materialized("numbers"))
    partitions = {"texts": request.param, "numbers": request.param}
    with TopologyTestDriver(builder.build(), partitions=partitions) as driver:
        texts, numbers = driver.create_input_topic("texts"), driver.create_input_topic("numbers")
        with driver.batch():
            for number, name in enumerate(NAMES):
                texts.pipe_input(name, LARGE)
                numbers.pipe_input(number - 20, LARGE)
        api = Api(driver.served(), Guard(Security()), LIMITS)
        yield TestClient(api.application(), client=("127.0.0.1", 1), base_url="http://localhost")


@pytest.mark.parametrize("reverse", ["", "&reverse="])
@pytest.mark.parametrize(("store", "keys"), [("texts", NAMES), ("numbers", list(range(-20, 20)))])
def test_pages_end_early_and_miss_nothing(client, store, keys, reverse):
    found, cursor = [], ""
    while cursor is not None:
        page = client.get(f"/v1/stores/{store}/range?limit=100{reverse}{cursor and f'&cursor={cursor}'}")
        assert len(page.content) < 60_000
        found += [row["key"] for row in page.json()["rows"]]
        cursor = page.json()["cursor"]
    assert found == (keys[::-1] if reverse else keys)


def test_a_batch_of_one_large_row_is_refused(client):
    path = "/v1/stores/texts/keys:batch"
    assert client.post(path, json={"keys": NAMES[:5]}).status_code == 200
    refused = client.post(path, json={"keys": [NAMES[0]] * 10_000})
    assert (refused.status_code, "100000 bytes" in refused.json()["message"]) == (400, True)


def test_what_a_query_loads_is_bounded_in_bytes(client):
    assert client.post("/v1/sql", json={"sql": "SELECT value FROM texts WHERE key = 'k01'"}).status_code == 200
    refused = client.post("/v1/sql", json={"sql": "SELECT count(*) FROM texts"})
    assert (refused.status_code, "100000 bytes" in refused.json()["message"]) == (400, True)


def test_parts_that_were_cut_off_are_merged_up_to_where_they_are_known():
    """As of several processes, each of which has cut its part off for itself."""
    rows = [(number,) for number in range(30)]
    parts = {0: rows[0::3], 1: rows[1::3], 2: rows[2::3]}
    for reverse in (False, True):
        asked, found = Asked("rows", Scan(reverse=reverse, limit=7), most_bytes=2), []
        while True:
            here = []
            for part in parts.values():
                ordered = part[::-1] if reverse else part
                behind = [
                    one
                    for one in ordered
                    if asked.after is None or one == asked.after or (one > asked.after) != reverse
                ]
                here.append(asked.within([(one, one) for one in behind], lambda row: 1))
            cut = [place for place, (_, is_cut) in enumerate(here) if is_cut]
            page, cursor = asked.page([one for one, _ in here], {0: Commit(1)}, cut)
            found += page
            if cursor is None:
                break
            asked = replace(Asked.of("rows", asked.scan, cursor), most_bytes=2)
        assert found == (rows[::-1] if reverse else rows)


def cursor_of(**changed):
    """A cursor with forged parts."""
    import base64

    import orjson

    parts = {"of": "texts", "scan": {}, "after": [{"hex": "61"}], "skip": 1, "versions": [[0, 1, ""]], **changed}
    return base64.urlsafe_b64encode(orjson.dumps(list(parts.values()))).decode().rstrip("=")


@pytest.mark.parametrize(
    "changed",
    [
        {"skip": -5},
        {"skip": 10**9},
        {"skip": "1"},
        {"skip": True},
        {"after": [5]},
        {"after": []},
        {"after": [[1]]},
        {"after": None},
        {"after": [{"hex": "61"}, 1]},
        {"scan": {"limit": -1, "from_ms": "now"}},
        {"scan": {"from_ms": -1}},
        {"scan": {"to_ms": MAX_TIME + 1}},
        {"scan": {"lower": 7}},
        {"scan": {"reverse": 7}},
        {"scan": {"other": 7}},
        {"versions": [[0, "x", ""]]},
        {"versions": [[0, -1, ""]]},
        {"versions": 7},
        {"versions": [[[], 1, ""]]},
        {"versions": [[0, 1]]},
        {"versions": [[0, 1, 7]]},
    ],
)
def test_forged_cursors_are_no_fault_of_the_server(client, changed):
    found = client.get(f"/v1/stores/texts/range?cursor={cursor_of(**changed)}")
    assert (found.status_code, found.json()["error"]) == (400, "QueryError"), found.text
    with pytest.raises(QueryError):
        Asked.of("texts", Scan(), "W" * 5000)
