"""The HTTP interface over a test driver's stores: rows, bounds, pages, errors, limits and who may ask."""

import logging
import time
from dataclasses import dataclass
from decimal import Decimal

import jwt
import pytest
from starlette.testclient import TestClient

from state.secrets import MASK
from streams import Consumed, JsonSerde, Materialized, StreamsBuilder, StringSerde
from streams.errors import ConfigError
from streams.serve.app import Api
from streams.serve.http.security import Guard, Security, check_protected
from streams.serve.requests import Limits
from streams.testing import TopologyTestDriver
from tests.serve.test_reading import NAMES, build, click

OPEN = Security()


@dataclass
class Person:
    name: str
    paid: Decimal


@pytest.fixture
def driver():
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        yield driver


def client_of(driver, guard=None, limits=None, **options):
    api = Api(driver.served(), guard or Guard(OPEN), limits)
    return TestClient(
        api.application(), raise_server_exceptions=True, client=("127.0.0.1", 1), base_url="http://localhost", **options
    )


@pytest.fixture
def client(driver):
    click(driver, [(name, 1000) for name in NAMES])
    with client_of(driver) as client:
        yield client


def test_a_row_with_its_position(client, driver):
    found = client.get("/v1/stores/counts/keys/k007")
    assert found.status_code == 200
    assert {name: found.json()[name] for name in ("key", "value", "timestamp")} == {
        "key": "k007",
        "value": 1,
        "timestamp": 1000,
    }
    (task,) = found.json()["tasks"]
    assert found.headers["streams-position"] == task["position"] != ""
    assert found.headers["streams-commit"] == f"{task['sub_topology']}/{task['task']}=1@{task['life']}"
    assert int(found.headers["streams-age-ms"]) >= 0


def test_values_of_a_type_are_json_objects():
    builder = StreamsBuilder()
    builder.table("people", Consumed(StringSerde(), JsonSerde(Person)), Materialized("people"))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("people").pipe_input("ann", Person("Ann", Decimal("1.50")))
        with client_of(driver) as client:
            wanted = {"name": "Ann", "paid": "1.50"}
            assert client.get("/v1/stores/people/keys/ann").json()["value"] == wanted
            assert client.get("/v1/stores/people/range").json()["rows"][0]["value"] == wanted
            batch = client.post("/v1/stores/people/keys:batch", json={"keys": ["ann"]})
            assert batch.json()["rows"][0]["value"] == wanted


def test_an_absent_row_is_a_404_with_its_position(client):
    found = client.get("/v1/stores/counts/keys/nobody")
    assert (found.status_code, found.json()["error"]) == (404, "NoRow")
    assert found.headers["streams-position"]


def test_a_batch_of_keys(client):
    found = client.post("/v1/stores/counts/keys:batch", json={"keys": ["k030", "nobody", "k001"]})
    assert [row["key"] for row in found.json()["rows"]] == ["k030", "k001"]
    assert len(found.headers["streams-commit"].split(",")) == len(found.json()["tasks"])


def test_pages_of_a_range(client):
    rows, cursor = [], None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        page = client.get("/v1/stores/counts/range", params={"from": "k010", "to": "k029", "limit": 7, **more}).json()
        rows += page["rows"]
        if (cursor := page["cursor"]) is None:
            break
    assert [row["key"] for row in rows] == NAMES[10:30]
    page = client.get("/v1/stores/counts/range", params={"prefix": "k05", "reverse": ""}).json()
    assert [row["key"] for row in page["rows"]] == NAMES[59:49:-1]


def test_windows_of_a_key_and_the_latest(client, driver):
    click(driver, [("k001", at) for at in (11_000, 25_000, 39_000)])
    asked = {"key": "k001", "window_from": "1970-01-01T00:00:10Z", "window_to": "29999"}
    rows = client.get("/v1/stores/windows/windows", params=asked).json()["rows"]
    assert [row["window"] for row in rows] == [{"start": 10_000, "end": 20_000}, {"start": 20_000, "end": 30_000}]
    rows = client.get("/v1/stores/windows/windows", params={"key": "k001", "latest": 2}).json()["rows"]
    assert [row["window"]["start"] for row in rows] == [30_000, 20_000]


def test_a_version_as_of_a_time(client, driver):
    prices = driver.create_input_topic("prices")
    prices.pipe_input("apple", 10, 1_000)
    prices.pipe_input("apple", 20, 2_000)
    assert client.get("/v1/stores/history/keys/apple").json()["value"] == 20
    assert client.get("/v1/stores/history/keys/apple?as_of=1500").json()["value"] == 10
    assert client.get("/v1/stores/history/keys/apple?as_of=1970-01-01T00:00:00Z").status_code == 404


def test_own_writes_are_read_by_their_position(client, driver):
    task = client.get("/v1/stores/counts/keys/k007").json()["tasks"][0]
    topic, _, end = task["position"].rpartition("=")
    ahead = f"{topic}={int(end) + 1}"
    refused = client.get("/v1/stores/counts/keys/k007", headers={"Streams-Position": ahead})
    assert (refused.status_code, refused.json()["error"]) == (409, "NotUpToBoundError")
    assert refused.headers["streams-position"] == task["position"]
    assert client.get(f"/v1/stores/counts/keys/k007?position={ahead}&consistency=any").status_code == 200
    click(driver, [("k007", 2000)])
    found = client.get("/v1/stores/counts/keys/k007", headers={"Streams-Position": ahead})
    assert (found.status_code, found.json()["value"]) == (200, 2)
    assert client.get("/v1/stores/counts/keys/k007?consistency=latest").json()["value"] == 2


def test_the_commits_of_an_answer_are_the_least_of_the_next(client):
    found = client.get("/v1/stores/counts/keys/k007")
    again = client.get("/v1/stores/counts/keys/k007", headers={"Streams-Commit": found.headers["streams-commit"]})
    assert again.json()["value"] == 1
    later = found.headers["streams-commit"].replace("=1", "=2")
    assert client.get("/v1/stores/counts/keys/k007", headers={"Streams-Commit": later}).status_code == 409


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/v1/stores/count/keys/a", 404, "no store 'count'"),
        ("/v1/stores/windows/keys/a", 400, "has windows"),
        ("/v1/stores/counts/windows?window_from=5", 400, "neither windows"),
        ("/v1/stores/counts/keys/a?as_of=5", 400, "no versions"),
        ("/v1/stores/counts/keys/a?consistency=all", 400, "any, bound or latest"),
        ("/v1/stores/counts/keys/a?position=x", 400, "TOPIC-PARTITION=OFFSET"),
        ("/v1/stores/counts/keys/a?position=clicks-0=99&wait=5", 409, "has not reached clicks-0=99"),
        ("/v1/stores/counts/keys/a?position=clicks-0=99&wait=1h", 400, "longer than this server waits"),
        ("/v1/stores/counts/keys/a?position=clicks-0=99&wait=soon", 400, "not a duration"),
        ("/v1/stores/counts/range?limit=0", 400, "from 1 to 10000"),
        ("/v1/stores/counts/range?reverse=maybe", 400, "true or false"),
        ("/v1/stores/counts/range?cursor=abc", 400, "cursor"),
        ("/v1/stores/windows/windows?window_from=today", 400, "is a time in ms"),
    ],
)
def test_a_wrong_request_is_told_why(client, path, status, words):
    found = client.get(path)
    assert (found.status_code, words in found.json()["message"]) == (status, True), found.json()


def test_bodies_are_json_and_bounded(driver):
    click(driver, [("k001", 1000)])
    client = client_of(driver, limits=Limits(most_rows=3, body_bytes=100))
    path = "/v1/stores/counts/keys:batch"
    assert client.post(path, content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    assert client.post(path, json={"keys": ["x" * 200]}).status_code == 413
    assert client.post(path, json={"keys": ["a"] * 4}).status_code == 400
    assert client.post(path, content=b"{", headers={"content-type": "application/json"}).status_code == 400
    assert client.post(path, json={"keys": [{"a": 1}]}).status_code == 400


def test_health_metadata_metrics_and_openapi(client):
    assert client.get("/v1/health").json() == {"status": "ok", "copies": 7, "waiting": [], "why": ""}
    metadata = client.get("/v1/metadata").json()
    assert {store["name"]: store["kind"] for store in metadata["stores"]} == {
        "counts": "timestamped-key-value",
        "windows": "timestamped-window",
        "sessions": "session",
        "history": "versioned",
        "names": "timestamped-key-value",
    }
    counts = next(store for store in metadata["stores"] if store["name"] == "counts")
    assert (counts["topics"], counts["tasks"], counts["key"]) == (["clicks"], 3, "StringSerde()")
    assert [copy["commit"] for copy in metadata["copies"] if copy["sub_topology"] == counts["sub_topology"]] == [
        1,
        1,
        1,
    ]
    client.get("/v1/stores/counts/keys/k001")
    client.get("/v1/stores/counts/keys/nobody")
    metrics = client.get("/metrics").text
    assert 'streams_serve_request_seconds_count{app="test",route="key"} 1.0' in metrics
    assert 'streams_serve_refused_total{app="test",reason="404",route="key"} 1.0' in metrics
    assert f'streams_serve_commit{{app="test",sub_topology="{counts["sub_topology"]}",task="2"}} 1.0' in metrics
    described = client.get("/openapi.json").json()
    row = described["paths"]["/v1/stores/counts/keys/{key}"]["get"]["responses"]["200"]["content"]["application/json"]
    assert row["schema"]["properties"]["key"] == {"type": "string"}
    assert "/v1/stores/windows/windows" in described["paths"]


def test_before_the_first_commit_there_are_no_rows(driver):
    found = client_of(driver).get("/v1/stores/counts/keys/a")
    assert (found.status_code, found.headers["streams-position"]) == (404, "")
    assert found.headers["streams-commit"].endswith("=0")


def test_a_copy_that_is_not_here_or_not_restored_yet_is_a_503():
    copies = {}
    with TopologyTestDriver(build()) as driver:
        click(driver, [("k001", 1000)])
        served = driver.served()
        there = dict(served.copies())
        served.copies = lambda: copies
        client = TestClient(
            Api(served, Guard(OPEN)).application(), client=("127.0.0.1", 1), base_url="http://localhost"
        )
        path = "/v1/stores/counts/keys/k001"
        assert (client.get(path).status_code, client.get(path).headers["retry-after"]) == (503, "1")
        copies.update(there)
        assert client.get(path).status_code == 200
        for copy in there.values():
            copy.hide()
        assert client.get("/v1/health").json()["waiting"]
        assert client.get(path).status_code == 503


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("# who\nsecret-of-the-reader read dashboard\nsecret-of-the-writer write\n")
    path.chmod(0o600)
    return path


def test_a_token_is_needed_and_gives_its_scope(driver, tokens, caplog):
    click(driver, [("k001", 1000)])
    client = client_of(driver, Guard(Security(token_file=tokens)))
    path = "/v1/stores/counts/keys/k001"
    assert client.get(path).headers["www-authenticate"] == "Bearer"
    assert client.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.get(path, headers={"Authorization": "Basic secret-of-the-reader"}).status_code == 401
    assert client.get("/metrics").status_code == 401
    assert client.get("/v1/health").status_code == 200
    caplog.set_level(logging.INFO, "streams.serve.audit")
    caplog.clear()
    assert client.get(path, headers={"Authorization": "Bearer secret-of-the-reader"}).status_code == 200
    (line,) = [record.getMessage() for record in caplog.records if record.name == "streams.serve.audit"]
    assert line.startswith("dashboard GET /v1/stores/counts/keys/k001 -> 200")
    caplog.clear()
    client.get("/v1/stores/counts/keys/secret-of-the-writer", headers={"Authorization": "Bearer secret-of-the-reader"})
    assert MASK in caplog.text
    audited = [record.getMessage() for record in caplog.records if record.name == "streams.serve.audit"]
    assert not any("secret-of-the-writer" in line for line in audited)


def test_a_jwt_is_believed_by_its_signature_its_end_and_its_audience(driver, tmp_path):
    click(driver, [("k001", 1000)])
    key = tmp_path / "key"
    key.write_text("k" * 40)
    key.chmod(0o600)
    client = client_of(driver, Guard(Security(jwt_key_file=key, jwt_audience="stores")))

    def ask(secret="k" * 40, **claims):
        given = {"sub": "ada", "scope": "openid read", "aud": "stores", "exp": time.time() + 600, **claims}
        token = jwt.encode({name: value for name, value in given.items() if value is not None}, secret, "HS256")
        found = client.get("/v1/stores/counts/keys/k001", headers={"Authorization": f"Bearer {token}"})
        return found.status_code, found.json().get("message", "")

    assert ask() == (200, "")
    # Only who has a token of ours is told what is wrong with it.
    assert ask(secret="x" * 40, exp=time.time() - 60) == (401, "the token is not known")
    for claims, words in (
        ({"exp": time.time() - 60}, "expired"),
        ({"exp": None}, '"exp"'),
        ({"aud": "others"}, "audience"),
        ({"aud": None}, '"aud"'),
        ({"scope": "openid"}, "'scope'"),
    ):
        status, why = ask(**claims)
        assert (status, words in why) == (401, True), why
    unsigned = jwt.encode({"sub": "ada", "scope": "read", "aud": "stores", "exp": time.time() + 600}, "", "none")
    assert client.get("/metrics", headers={"Authorization": f"Bearer {unsigned}"}).status_code == 401


def test_a_public_key_verifies_jwts(driver, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    click(driver, [("k001", 1000)])
    private = Ed25519PrivateKey.generate()
    public = tmp_path / "public.pem"
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(private.public_key().public_bytes(*form))
    client = client_of(driver, Guard(Security(jwt_key_file=public)))
    claims = {"scope": "read", "exp": time.time() + 600}
    for secret, algorithm, status in ((private, "EdDSA", 200), (Ed25519PrivateKey.generate(), "EdDSA", 401)):
        token = jwt.encode(claims, secret, algorithm)
        assert client.get("/metrics", headers={"Authorization": f"Bearer {token}"}).status_code == status


def test_beyond_this_host_somebody_must_be_recognised(tokens):
    for host in ("127.0.0.1", "::1", "localhost"):
        check_protected(host, OPEN)
    for host in ("0.0.0.0", "10.1.2.3", "::", "example.org"):
        with pytest.raises(ConfigError, match="--token-file"):
            check_protected(host, OPEN)
        check_protected(host, Security(token_file=tokens))


def test_a_page_of_another_site_with_our_address_is_refused(client):
    assert client.get("/metrics", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/metrics", headers={"Host": "[::1"}).status_code == 421
    for own in ("localhost:8080", "[::1]:8080", "127.0.0.1"):
        assert client.get("/metrics", headers={"Host": own}).status_code == 200


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("secret read", 0o644, "chmod 600"),
        ("", 0o600, "has no token"),
        ("secret everything", 0o600, "line 1"),
        ("secret", 0o600, "line 1"),
    ],
)
def test_a_file_of_tokens_is_private_and_readable(tmp_path, text, mode, words):
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=words):
        Guard(Security(token_file=path))


def test_a_caller_who_asks_too_often_waits(driver):
    click(driver, [("k001", 1000)])
    clock = [0.0]
    client = client_of(driver, Guard(OPEN, rate=2, clock_s=lambda: clock[0]))
    codes = [client.get("/v1/metadata").status_code for _ in range(3)]
    assert codes == [200, 200, 429]
    clock[0] = 0.5
    codes = [client.get("/v1/metadata").status_code for _ in range(2)]
    assert codes == [200, 429]
    assert client.get("/v1/metadata").headers["retry-after"] == "1"
