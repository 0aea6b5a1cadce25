"""Browsing stores on the page: what is passed on to a process that serves them, in this process and at an address."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from uvicorn import Config, Server

import streams.ui.server
from streams.config import StreamsConfig, load_config
from streams.config.settings import Address
from streams.metrics.recorder import MetricsRecorder
from streams.serve.app import Api
from streams.serve.http.connections import ConnectionLimits
from streams.serve.http.security import Guard, Security
from streams.testing import TopologyTestDriver
from streams.ui.history import History
from streams.ui.kafka import KafkaLook
from streams.ui.server import Pages, PageServer, PageStores
from tests.serve.test_reading import NAMES, build, click


@pytest.fixture
def api() -> Iterator[Any]:
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        click(driver, [(name, 1000) for name in NAMES])
        yield Api(driver.served(), Guard(Security())).application()


def settings(**more: Any) -> StreamsConfig:
    return load_config(None, {"application_id": "app", "bootstrap_servers": "127.0.0.1:1", **more})


@contextmanager
def page(stores: PageStores | None, token: str = "") -> Iterator[str]:
    with closing(KafkaLook(settings(), None)) as look:
        pages = Pages(MetricsRecorder("app"), History(), None, look, token, stores)
        with PageServer(Address("127.0.0.1", 0), pages, token) as server:
            yield f"http://{server.address}/api/v1/"


def get(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_stores_are_read_by_key_prefix_and_page(api: Any) -> None:
    with page(PageStores.within(api)) as url:
        status, found = get(f"{url}stores")
        assert (status, "counts" in {one["name"] for one in found["stores"]}) == (200, True)
        status, row = get(f"{url}stores/counts/keys/k007")
        assert (status, row["key"], row["value"], row["tasks"][0]["commit"]) == (200, "k007", 1, 1)
        _, first = get(f"{url}stores/counts/range?prefix=k01&limit=4")
        _, second = get(f"{url}stores/counts/range?prefix=k01&limit=100&cursor={first['cursor']}")
        keys = [row["key"] for row in (*first["rows"], *second["rows"])]
        assert keys == [name for name in sorted(NAMES) if name.startswith("k01")]
        status, none = get(f"{url}stores/counts/keys/not%20there%2F%C3%A4")
        assert (status, none["message"]) == (404, "'counts' has no row of key 'not there/ä'")
        status, none = get(f"{url}stores/counts/keys/two%0Alines")
        assert (status, none["error"]) == (404, "NoRow")


def test_only_reads_are_passed_on(api: Any) -> None:
    with page(PageStores.within(api)) as url:
        assert get_status(f"{url}stores/counts/snapshot") == 404
        assert get_status(f"{url}stores/counts/keys/k007", b'{"keys": ["k007"]}') == 405


def get_status(url: str, data: bytes | None = None) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_pages_token_protects_the_rows(api: Any) -> None:
    with page(PageStores.within(api), "a-token-for-the-page") as url:
        assert get(f"{url}stores/counts/keys/k007")[0] == 401


def test_without_such_a_process_the_page_says_how_to_have_one() -> None:
    with page(None) as url:
        status, found = get(f"{url}stores")
    assert (status, "streams serve TARGET --ui 8080" in found["error"]) == (400, True)


def test_stores_of_a_process_at_an_address(api: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = Server(Config(api, log_config=None, lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            with page(PageStores.at(f"http://127.0.0.1:{port}")) as url:
                assert get(f"{url}stores/counts/keys/k007")[1]["value"] == 1
        finally:
            server.should_exit = True
            thread.join()
        with page(PageStores.at(f"http://127.0.0.1:{port}")) as url:
            status, found = get(f"{url}stores")
    assert (status, "Check that streams serve runs there" in found["error"]) == (400, True)


def test_sql_is_passed_on_as_json_only(api: Any) -> None:
    with page(PageStores.within(api)) as url:

        def ask(kind: str) -> tuple[int, Any]:
            body = json.dumps({"sql": "SELECT count(*) FROM counts"}).encode()
            try:
                with urllib.request.urlopen(
                    urllib.request.Request(f"{url}sql", body, {"Content-Type": kind}), timeout=60
                ) as answer:
                    return answer.status, json.loads(answer.read())
            except urllib.error.HTTPError as error:
                return error.code, error.read()

        # What a form of another site could send.
        assert ask("text/plain")[0] == 415
        status, found = ask("application/json")
    assert (status, found["rows"]) == (200, [[len(NAMES)]])


@pytest.mark.parametrize(
    "path",
    [
        "%61pi/v1/stores/totals/keys/x/api/v1/../metrics",
        "%61pi/v1/stores/totals/keys/x/api/v1/metadata",
        "%61pi/v1/stores/counts/keys/x/api/v1/stores/counts/changes?follow=false",
        "api/v1/stores/counts/keys/../../../metrics",
        "api/v1/stores/counts/keys/%2E%2E/%2e%2e/metadata",
        "api/v1/stores/counts/keys/..",
        "api/v1/stores/counts%2F..%2F..%2Fmetadata/range",
        "api/v1/stores/counts/changes?follow=true&part=0",
        "api/v1/stores/counts/range?part=0&versions=0=1&at=1&loaded=counts",
    ],
)
def test_the_page_is_led_nowhere_else(path: str) -> None:
    asked: list[str] = []

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["raw_path"].decode() + "?" + scope["query_string"].decode())
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    with page(PageStores.within(noted)) as url:
        host = url.removeprefix("http://").partition("/")[0]
        with socket.create_connection(host.split(":")) as connection:
            connection.sendall(f"GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            while connection.recv(65536):
                pass
    for one in asked:
        front, _, query = one.partition("?")
        parts = front.split("/")
        assert parts[:3] == ["", "v1", "stores"]
        assert len(parts) in (5, 6)
        assert parts[4] in ("keys", "range", "windows", "changes")
        assert not {"part", "versions", "at", "loaded"} & {pair.partition("=")[0] for pair in query.split("&")}
        assert parts[4] != "changes" or query == "follow=false"


def test_a_body_for_the_page_is_bounded() -> None:
    with page(None, "a-token-for-the-page") as url:
        address = f"{url}dead-letters/replay"
        headers = {"Authorization": "Bearer a-token-for-the-page"}
        request = urllib.request.Request(address, b"x" * (1024 * 1024 + 1), headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
    assert refused.value.code == 413


def test_the_address_is_checked() -> None:
    with pytest.raises(Exception, match="ui_stores is an address such as http://localhost:8080, not 'localhost:8080'"):
        settings(ui_stores="localhost:8080")
    assert "a-secret-of-stores" not in str(settings(ui_stores_token="a-secret-of-stores"))


def test_strangers_cannot_stop_the_page(api: Any) -> None:
    """The page is in the driver's process: half requests and heads without end leave room for others."""
    with page(PageStores.within(api)) as url:
        host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
        half = [socket.create_connection((host, int(port))) for _ in range(ConnectionLimits().connections + 20)]
        for one in half:
            one.send(b"GET / HTTP/1.1\r\n")
        assert get(f"{url}stores/counts/keys/k007")[0] == 200
        endless = socket.create_connection((host, int(port)))
        with pytest.raises(ConnectionError):
            endless.sendall(b"a" * 100_000_000)
        assert get(f"{url}stores/counts/keys/k007")[0] == 200
        for one in (*half, endless):
            one.close()


@pytest.mark.skipif(shutil.which("node") is None, reason="the page's script needs a JavaScript engine")
def test_the_page_shows_the_digits_that_a_number_of_javascript_does_not_have() -> None:
    script = (Path(streams.ui.server.__file__).parent / "page" / "page.js").read_text(encoding="utf-8")
    (function,) = re.findall(r"^function exactly.*?^}$", script, re.DOTALL | re.MULTILINE)
    given = r'{"a":9007199254740993,"b":[1,2.5,1e30,0.12345678901234567890,-1180591620717411303425],"c":"\" 9007199254740993"}'
    run = [shutil.which("node") or "", "-e", f"{function}\nconsole.log(JSON.stringify(exactly({json.dumps(given)})))"]
    found = json.loads(subprocess.run(run, check=True, capture_output=True, text=True, timeout=60).stdout)
    assert found["a"] == "9007199254740993"
    assert found["b"] == [1, 2.5, 1e30, 0.12345678901234568, "-1180591620717411303425"]
    assert found["c"] == '" 9007199254740993'
