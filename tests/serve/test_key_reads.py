"""Keys that are answered in front of the routes get the answers that the routes would give."""

import pytest
from starlette.testclient import TestClient

from streams.serve.app import Api
from streams.serve.requests import AGE
from streams.serve.security import Guard, Security
from streams.testing import TopologyTestDriver
from tests.serve.test_reading import build, click

KEY = "/v1/stores/counts/keys/k001"


@pytest.fixture
def served():
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        click(driver, [("k001", 1000), ("k001", 2000), ("a/b c", 3000)])
        yield driver.served()


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("reader read\n")
    path.chmod(0o600)
    return Security(token_file=path)


def asked(application, path, headers):
    answer = TestClient(application, client=("127.0.0.1", 1)).get(path, headers=headers)
    body = answer.json()
    for one in body.get("tasks", []):
        del one["age_ms"]
    said = {name: value for name, value in answer.headers.items() if name not in (AGE.lower(), "content-length")}
    return answer.status_code, said, body


AT_ONCE = [
    (KEY, {}),
    ("/v1/stores/counts/keys/nobody", {}),
    ("/v1/stores/counts/keys/a%2Fb%20c", {}),
    (f"{KEY}?wait=5s", {"Streams-Commit": "clicks/0=1,clicks/1=1"}),
    (f"{KEY}?position=", {}),
    (KEY, {"Authorization": "Bearer whatever"}),
]
BY_ROUTES = [
    ("/v1/stores/counts/keys/", {}),
    ("/v1/stores/none/keys/k001", {}),
    ("/v1/stores/by-minute/keys/k001", {}),
    (f"{KEY}?as_of=5", {}),
    (f"{KEY}?position=clicks-0=99", {}),
    (f"{KEY}?commits=clicks/0=99,clicks/1=99,clicks/2=99", {}),
    (f"{KEY}?commits=nonsense", {}),
    (f"{KEY}?consistency=latest", {}),
    (KEY, {"Host": "evil.example"}),
]


@pytest.mark.parametrize(("path", "headers"), AT_ONCE + BY_ROUTES)
def test_the_answers_are_those_of_the_routes(served, path, headers):
    application = Api(served, Guard(Security())).application()
    assert asked(application, path, headers) == asked(application.routes, path, headers)


@pytest.mark.parametrize(("path", "headers"), AT_ONCE)
def test_most_are_answered_without_the_routes(served, path, headers):
    application = Api(served, Guard(Security())).application()
    application.routes = None
    assert asked(application, path, headers)[0] in (200, 404)


def test_tokens_and_rates_count_once(served, tokens):
    client = TestClient(Api(served, Guard(tokens, rate=2, clock_s=lambda: 0.0)).application(), client=("10.0.0.1", 1))
    assert client.get(KEY).status_code == 401
    known = {"Authorization": "Bearer reader"}
    # One that is answered at once, and one that the routes have to look at.
    assert client.get(KEY, headers=known).status_code == 200
    assert client.get(f"{KEY}?commits=nonsense", headers=known).status_code == 400
    assert client.get(KEY, headers=known).status_code == 429


def test_what_is_answered_is_counted(served):
    client = TestClient(Api(served, Guard(Security())).application(), client=("127.0.0.1", 1))
    client.get(KEY)
    client.get("/v1/stores/counts/keys/nobody")
    text = client.get("/metrics").text
    assert 'streams_serve_request_seconds_count{app="test",route="key"} 1.0' in text
    assert 'streams_serve_refused_total{app="test",reason="404",route="key"} 1.0' in text
