"""Whatever is sent to the server: no fault of its own, no growth, no hang. Requests by its description, and bytes of any kind."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from streams.config.settings import Address
from streams.serve.app import Api
from streams.serve.http.connections import ConnectionLimits
from streams.serve.http.security import Guard, Security
from streams.serve.http.servers import HttpThread, listening
from streams.serve.requests import Limits, SqlLimits
from streams.testing import TopologyTestDriver
from tests.budget import up_to
from tests.serve.test_reading import NAMES, build, click

QUICK = ConnectionLimits(head_s=1, body_s=1, idle_s=1, unread_s=2, look_s=0.2)
MANY = up_to(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
LONGEST_S = 8.0


@pytest.fixture(scope="module")
def port():
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        click(driver, [(name, 10_000 * number) for number, name in enumerate(NAMES)])
        written = iter(range(1_000_000))
        api = Api(
            driver.served(),
            Guard(Security()),
            Limits(body_bytes=20_000, wait_ms=100, sql=SqlLimits(seconds=1)),
            write=lambda topic, record: (0, next(written)),
            connections=QUICK,
        )
        listener = listening(Address("127.0.0.1", 0), "stores", "--http")
        with HttpThread(api.application(), listener, api.options):
            yield listener.getsockname()[1]


@pytest.fixture(scope="module")
def client(port):
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=LONGEST_S) as client:
        yield client


@pytest.fixture(scope="module")
def operations(client):
    """What the server says that there is: method, path, parameters, schema of the body."""
    described = client.get("/openapi.json").json()
    return [
        (method, path, one["parameters"], one.get("requestBody", {}).get("content", {}).get("application/json"))
        for path, methods in described["paths"].items()
        for method, one in methods.items()
    ]


def test_the_description_has_every_route(operations):
    paths = {path for _, path, _, _ in operations}
    for path in (
        "/openapi.json",
        "/metrics",
        "/v1/health",
        "/v1/metadata",
        "/v1/metadata/counts",
        "/v1/sql",
        "/v1/topics/clicks",
        "/v1/stores/counts/keys/{key}",
        "/v1/stores/counts/keys:batch",
        "/v1/stores/counts/range",
        "/v1/stores/counts/changes",
        "/v1/stores/windows/windows",
        "/v1/stores/windows/changes",
    ):
        assert path in paths


TEXTS = st.one_of(
    st.text(max_size=40),
    st.text(st.characters(max_codepoint=127), max_size=20),
    st.integers(-(10**20), 10**20).map(str),
    st.just("9" * 5000),
    st.sampled_from(
        ["", "a", "k001", '"k001"', "null", "true", "{}", "[", "..", "clicks-0=1", "clicks/0=1", "0=1", "a=b"]
    ),
    st.sampled_from(["5s", "-1", "nan", "2024-05-01T10:00:00Z", "99999999999h", "%", "%00", "\n", "W10", "[[[["]),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
WORDS = (
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "counts",
        "windows",
        "sessions",
        "names",
        "key",
        "value",
        "window_start",
        "*",
        ",",
        "=",
    ),
    *(
        "'k001'",
        "18446744073709551616",
        "sum(",
        "count(",
        ")",
        "(",
        "GROUP BY",
        "ORDER BY",
        "LIMIT",
        "AS",
        "t",
        "JOIN",
        "USING",
    ),
    *("UNION ALL", "1", "NULL", "->", "'$'", "::", "INT", "BLOB", "unnest", "range", "current_setting", "PIVOT", ";"),
)
SQL = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join))


def body_of(draw, path):
    """A body that has the right form, or none, or is no JSON at all."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.binary(max_size=60) | st.just(b"[" * 5000) | st.just(b'{"a":' * 3000))
    if path.endswith("keys:batch"):
        body = {"keys": draw(st.lists(JSON, max_size=6))}
    elif path == "/v1/sql":
        body = {"sql": draw(SQL)}
    else:
        body = {"key": draw(JSON), "value": draw(JSON), **draw(st.sampled_from([{}, {"timestamp": -1}, {"other": 1}]))}
    return json.dumps(draw(st.sampled_from([body, body, draw(JSON)]))).encode()


@MANY
@given(data=st.data())
def test_no_request_of_the_described_kind_is_a_fault_of_the_server(client, operations, data):
    method, path, parameters, body = data.draw(st.sampled_from(operations))
    method = data.draw(st.sampled_from([method.upper()] * 8 + ["GET", "POST", "PUT", "HEAD", "OPTIONS", "TRACE"]))
    path = path.replace("{key}", quote(data.draw(TEXTS), safe="").replace(".", "%2E")) + data.draw(
        st.sampled_from([""] * 8 + ["/", "/x", "%00", "//", ":batch"])
    )
    named = [one["name"] for one in parameters if one["in"] == "query"]
    names = [*named, "part", "versions", "at", "loaded", "x"]
    asked = data.draw(st.dictionaries(st.sampled_from(names), TEXTS, max_size=4))
    if path.rstrip("/").endswith("changes"):
        asked["follow"] = "false"
    content = body_of(data.draw, path) if body is not None else None
    kinds = ["application/json"] * 6 + ["Application/JSON; charset=utf-8", "text/plain", ""]
    headers = {"content-type": data.draw(st.sampled_from(kinds))} if content is not None else {}
    headers |= data.draw(
        st.dictionaries(
            st.sampled_from(["Streams-Position", "Streams-Commit", "Authorization", "Last-Event-ID"]),
            st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30),
            max_size=2,
        )
    )
    query = "&".join(f"{quote(name)}={quote(value)}" for name, value in asked.items())
    found = client.request(method, f"{path}?{query}", content=content, headers=headers)
    told = found.status_code, found.text
    # What is not available in this process is said as such.
    assert found.status_code < 500 or found.status_code in (501, 503), told
    assert found.status_code != 503 or "restored" in found.text or "not served" in found.text, told
    if method != "HEAD" and "event-stream" not in found.headers["content-type"] and path != "/metrics":
        assert found.headers["content-type"] == "application/json", told
        if found.status_code >= 400:
            assert {"error", "message"} <= found.json().keys() or path == "/v1/health", told


LINES = (
    *(
        b"Host: localhost",
        b"Host: evil",
        b"Content-Length: 5",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999",
    ),
    *(
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: chunked, chunked",
        b"5\r\nhello",
        b"0\r\n",
        b"FFFFFFFFFFFFFFFFF",
    ),
    *(
        b"Expect: 100-continue",
        b"Upgrade: websocket\r\nConnection: upgrade",
        b"Connection: keep-alive",
        b"Connection: close",
    ),
    *(
        b"Content-Type: application/json",
        b" HTTP/1.1",
        b" HTTP/1.0",
        b" HTTP/0.9",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n",
        b" folded",
        b"",
    ),
)
WITHIN = (
    *(
        b"GET ",
        b"POST ",
        b"HEAD ",
        b"CONNECT ",
        b"/v1/stores/counts/keys/k001",
        b"/",
        b"*",
        b"//",
        b"http://x/",
        b"?wait=1",
    ),
    *(
        b"%",
        b"%00",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"{}",
        b"hello",
        b": ",
        b"\xff\xfe",
        b"\x16\x03\x01",
        b"X" * 3000,
        b"a: b\r\n" * 200,
    ),
)
PIECES = st.sampled_from([*(line + b"\r\n" for line in LINES), *WITHIN])
BYTES = st.one_of(st.binary(max_size=300), st.lists(PIECES, max_size=16).map(b"".join))


def exchanged(port, data, at):
    """What the server says to some bytes, sent in two parts, until it closes the connection."""
    found = b""
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        connection.settimeout(LONGEST_S)
        try:
            connection.sendall(data[:at])
            connection.sendall(data[at:])
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(65536):
                found += more
        except ConnectionError:
            pass
    return found


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def answers(port) -> bool:
    said = exchanged(
        port, b"GET /v1/stores/counts/keys/k001 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 9
    )
    return said.startswith(b"HTTP/1.1 200")


@up_to(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=BYTES, at=st.integers(0, 300))
def test_no_bytes_are_a_fault_of_the_server(port, data, at):
    said = exchanged(port, data, at)
    assert b"HTTP/1.1 5" not in said, said
    assert b"Traceback" not in said


def test_nothing_grows_and_nobody_waits(port):
    """Many connections with all kinds of ends: afterwards there is as much as before."""
    requests = [
        b"GET /" + b"a" * 60_000,
        b"\0" * 5000,
        b"POST /v1/sql HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b"x" * 30_000,
    ]

    def attack():
        for number in range(200):
            exchanged(port, requests[number % 3], 100)

    attack()
    threads, files, before = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), memory()
    begun_s = time.monotonic()
    attack()
    assert time.monotonic() - begun_s < 60
    assert answers(port)
    time.sleep(0.3)
    assert len(os.listdir("/proc/self/fd")) <= files + 3
    assert len(os.listdir("/proc/self/task")) <= threads + 2
    assert memory() - before < 20 * 1024 * 1024
