"""Answers as Arrow have the rows of answers in JSON, with their types."""

import httpx2
import orjson
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from streams.serve.app import Api
from streams.serve.http.security import Guard, Security
from streams.serve.tables import ARROW
from streams.testing import TopologyTestDriver
from tests.serve.test_reading import NAMES, build, click


@pytest.fixture(scope="module")
def client():
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        click(driver, [(name, 1000 + number) for number, name in enumerate(NAMES)])
        names = driver.create_input_topic("names")
        # JSON beyond what orjson reads is what the store has, too.
        names.pipe_input("k001", {"name": "Ada \n\u2028", "n": 2**70})
        application = Api(driver.served(), Guard(Security())).application()
        yield TestClient(application, client=("127.0.0.1", 1), base_url="http://localhost")


def both(
    client: TestClient, method: str, path: str, **asked: object
) -> tuple[httpx2.Response, httpx2.Response, pa.Table]:
    json, arrow = (
        client.request(method, f"/v1/stores/{path}", headers={"Accept": accept}, **asked)
        for accept in ("application/json", f"{ARROW}, application/json")
    )
    assert (json.status_code, arrow.status_code) == (200, 200)
    assert arrow.headers["content-type"] == ARROW
    return json, arrow, pa.ipc.open_stream(arrow.content).read_all()


def as_json(table: pa.Table) -> list[dict[str, object]]:
    found = []
    for row in table.to_pylist():
        for field in table.schema:
            if (field.metadata or {}).get(b"ARROW:extension:name") == b"arrow.json" or "json" in str(field.type):
                row[field.name] = client_json(row[field.name])
        if "window_start" in row:
            row["window"] = {"start": row.pop("window_start"), "end": row.pop("window_end")}
        found.append(row)
    return found


def client_json(text: str) -> object:
    from streams.serdes.json_text import loads

    return loads(text)


@pytest.mark.parametrize(
    ("method", "path", "asked"),
    [
        ("POST", "counts/keys:batch", {"json": {"keys": ["k003", "nobody", "k001"]}}),
        ("POST", "counts/keys:batch", {"json": {"keys": NAMES}}),
        ("POST", "counts/keys:batch", {"json": {"keys": ["nobody"]}}),
        ("GET", "counts/range?limit=7", {}),
        ("GET", "names/range", {}),
        ("GET", "windows/windows?limit=9", {}),
        ("GET", "sessions/windows?limit=9", {}),
    ],
)
def test_both_forms_have_the_same_rows(client, method, path, asked):
    json, arrow, table = both(client, method, path, **asked)
    from streams.serdes.json_text import loads

    found = loads(json.content)
    assert as_json(table) == found["rows"]
    metadata = table.schema.metadata
    tasks, told = (
        [{**task, "age_ms": 0} for task in some] for some in (found["tasks"], orjson.loads(metadata[b"tasks"]))
    )
    assert tasks == told
    assert metadata.get(b"cursor") == (found.get("cursor") or "").encode() or b"cursor" not in metadata
    assert arrow.headers["streams-commit"] == json.headers["streams-commit"]


def test_a_cursor_continues_in_either_form(client):
    _, _, table = both(client, "GET", "counts/range?limit=40")
    cursor = table.schema.metadata[b"cursor"].decode()
    _, _, rest = both(client, "GET", f"counts/range?limit=40&cursor={cursor}")
    assert table["key"].to_pylist() + rest["key"].to_pylist() == sorted(NAMES)
    assert table.schema.field("key").type == pa.string()


def test_errors_stay_json(client):
    refused = client.get("/v1/stores/counts/range?limit=x", headers={"Accept": ARROW})
    assert (refused.status_code, refused.json()["error"]) == (400, "QueryError")
