"""Reads of keys that need not wait are answered without a task, and all others by one: both get the same answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature

import httpx2
import pytest
import uvicorn
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from streams.config.settings import Address
from streams.serve.app import Api
from streams.serve.http.connections import _head
from streams.serve.http.security import Guard, Security
from streams.serve.http.servers import HttpThread, listening
from streams.serve.requests import AGE
from streams.testing import TopologyTestDriver
from tests.serve.test_reading import build, click

KEY = "/v1/stores/counts/keys/k001"


@pytest.fixture(scope="module")
def served():
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        click(driver, [("k001", 1000), ("k001", 2000), ("a/b c", 3000)])
        yield driver.served()


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("token-of-the-reader read\n")
    path.chmod(0o600)
    return Security(token_file=path)


@contextmanager
def serving(api: Api, at_once: bool = True, application=None) -> Iterator[str]:
    """The address of a real server; `at_once`: with what is tested here."""
    listener = listening(Address("127.0.0.1", 0), "stores", "--http")
    with HttpThread(application or api.application(), listener, api.options if at_once else {}):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


async def nothing_is_left(scope, receive, send):
    """An application for servers that have to answer by themselves."""
    assert scope["type"] == "lifespan", f"{scope['path']} became a task"


def asked(url, path, headers):
    answer = httpx2.get(f"{url}{path}", headers=headers)
    body = answer.json()
    for one in body.get("tasks", []):
        del one["age_ms"]
    said = {
        name: value for name, value in answer.headers.items() if name not in (AGE.lower(), "content-length", "date")
    }
    return answer.status_code, said, body


AT_ONCE = [
    (KEY, {}),
    ("/v1/stores/counts/keys/nobody", {}),
    ("/v1/stores/counts/keys/a%2Fb%20c", {}),
    (f"{KEY}?wait=5s", {"Streams-Commit": "clicks/0=1,clicks/1=1"}),
    (f"{KEY}?position=", {}),
    (KEY, {"Authorization": "Bearer whatever"}),
    ("/v1/stores/counts/keys/", {}),
    ("/v1/stores/counts/keys/a%0Ab", {}),
    ("/v1/stores/counts/keys/%22k001%22?keys=json&consistency=any", {}),
    ("/v1/stores/none/keys/k001", {}),
    ("/v1/stores/by-minute/keys/k001", {}),
    (f"{KEY}?as_of=5", {}),
    (f"{KEY}?commits=nonsense", {}),
    (f"{KEY}?wait=99h", {}),
    ("/v1/stores/counts/keys/%FF", {}),
    (KEY, {"Host": "evil.example"}),
]
BY_TASKS = [
    (f"{KEY}?position=clicks-0=99", {}),
    (f"{KEY}?commits=clicks/0=99,clicks/1=99,clicks/2=99", {}),
    (f"{KEY}?consistency=latest", {}),
    ("/v1/stores/counts/range?limit=2", {}),
    ("/v1/none", {}),
]


@pytest.fixture(scope="module")
def both(served):
    """The same with and without what is tested here."""
    api = Api(served, Guard(Security()))
    with serving(api) as quick, serving(api, at_once=False) as slow:
        yield quick, slow


@pytest.mark.parametrize(("path", "headers"), AT_ONCE + BY_TASKS)
def test_the_answers_are_the_same(both, path, headers):
    quick, slow = (asked(url, path, headers) for url in both)
    assert quick == slow


@pytest.fixture(scope="module")
def alone(served):
    """A server that has nothing for tasks."""
    with serving(Api(served, Guard(Security())), application=nothing_is_left) as url:
        yield url


@pytest.mark.parametrize(("path", "headers"), AT_ONCE)
def test_what_need_not_wait_needs_no_task(alone, path, headers):
    assert asked(alone, path, headers)[0] in (200, 400, 404, 421)


@pytest.mark.parametrize(("path", "headers"), BY_TASKS)
def test_others_become_tasks(alone, path, headers):
    assert httpx2.get(f"{alone}{path}", headers=headers).status_code == 500


def parts(*data: bytes) -> list[bytes]:
    return list(data)


PLAIN = f"GET {KEY} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
LAST = PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
BODY = PLAIN.replace(b"\r\n\r\n", b"\r\nContent-Length: 4\r\n\r\nbody")


@pytest.mark.parametrize(
    ("data", "answers"),
    [
        (parts(PLAIN, PLAIN, LAST), 3),
        (parts(PLAIN[:20], PLAIN[20:], PLAIN, LAST), 3),
        # What looks like a request may be the body of another one.
        (parts(PLAIN.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(PLAIN)), PLAIN, LAST), 2),
        (parts(BODY, PLAIN, LAST), 3),
        (parts(PLAIN + PLAIN + LAST), 3),
        (parts(b"POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n", b"{}", PLAIN, LAST), 3),
        (parts(LAST, PLAIN), 1),
        (parts(PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"), PLAIN), 1),
        (parts(PLAIN.replace(b"Host", b"Ho st"), PLAIN), 1),
    ],
)
def test_each_request_of_a_connection_is_answered_once(both, data, answers):
    """However the requests come, the server says the same as without what is tested here."""

    def all_of(url):
        found = b""
        with socket.create_connection((httpx2.URL(url).host, httpx2.URL(url).port)) as connection:
            for number, part in enumerate(data):
                connection.sendall(part)
                # A part of its own for the server: it has answered the last one, or has been given time to see this.
                connection.settimeout(0.2 if number + 1 < len(data) else 5)
                try:
                    while more := connection.recv(65536):
                        found += more
                        if number + 1 < len(data):
                            break
                except (TimeoutError, ConnectionError):
                    continue
        return found

    found = [all_of(url) for url in both]
    assert [one.count(b"HTTP/1.1 ") for one in found] == [answers, answers]
    assert [one.split()[1] for one in found[0].split(b"HTTP/1.1")[1:]] == [
        one.split()[1] for one in found[1].split(b"HTTP/1.1")[1:]
    ]


def test_tokens_and_rates_count_once(served, tokens):
    with serving(Api(served, Guard(tokens, rate=2, clock_s=lambda: 0.0))) as url:
        assert httpx2.get(f"{url}{KEY}").status_code == 401
        known = {"Authorization": "Bearer token-of-the-reader"}
        # Each counts once, also one that is looked at twice because it becomes a task.
        assert httpx2.get(f"{url}{KEY}", headers=known).status_code == 200
        assert httpx2.get(f"{url}{KEY}?consistency=latest", headers=known).status_code == 200
        assert httpx2.get(f"{url}{KEY}", headers=known).status_code == 429


def test_what_is_answered_is_counted(served):
    with serving(Api(served, Guard(Security()))) as url:
        httpx2.get(f"{url}{KEY}")
        httpx2.get(f"{url}/v1/stores/counts/keys/nobody")
        text = httpx2.get(f"{url}/metrics").text
    assert 'streams_serve_request_seconds_count{app="test",route="key"} 1.0' in text
    assert 'streams_serve_request_seconds_bucket{app="test",le="+Inf",route="key"} 1.0' in text
    assert 'streams_serve_refused_total{app="test",reason="404",route="key"} 1.0' in text


def test_an_answer_is_one_packet(both):
    """Its head and its body are sent together."""
    for url in both:
        with socket.create_connection((httpx2.URL(url).host, httpx2.URL(url).port)) as connection:
            for _ in range(20):
                connection.sendall(PLAIN)
                assert connection.recv(65536).endswith(b"}\n")


def test_the_server_is_a_version_whose_connections_are_known():
    """`Connection` extends uvicorn's protocol by methods that are not public: look at them again before this is raised."""
    names = ("_start_asgi_task", "on_response_complete", "on_headers_complete")
    assert all(callable(getattr(HttpToolsProtocol, name)) for name in names)
    assert list(signature(HttpToolsProtocol._start_asgi_task).parameters) == ["self", "cycle", "app"]
    # What an answer in one write sets instead of two messages.
    left = {"response_started", "response_complete", "keep_alive", "on_response", "default_headers"}
    assert left <= set(RequestResponseCycle.__init__.__code__.co_names) | set(
        signature(RequestResponseCycle).parameters
    )
    assert tuple(map(int, uvicorn.__version__.split(".")[:2])) <= (0, 54)


@pytest.mark.parametrize(
    ("headers", "is_plain"),
    [
        ([(b"a", b"1"), (b"b", b"2")], True),
        ([(b"a", b"1\r\nset-cookie: x")], False),
        ([(b"a", b"1\nb: 2")], False),
        ([(b"a\r", b"1")], False),
        ([(b"connection", b"close")], False),
    ],
)
def test_only_plain_headers_are_written_without_uvicorn(headers, is_plain):
    """A line break in a header would begin another one; uvicorn refuses it."""
    response = Response(b"{}")
    response.raw_headers = headers
    found = _head(response, [(b"date", b"today")], keep_alive=True)
    assert (found is not None) == is_plain
    if is_plain:
        assert found == b"HTTP/1.1 200 OK\r\ndate: today\r\na: 1\r\nb: 2\r\n\r\n"
        assert _head(response, [], keep_alive=False).endswith(b"2\r\nconnection: close\r\n\r\n")
