"""Connections that send too much, too slowly or nothing, that do not read, and that are too many; over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from contextlib import closing, contextmanager

import pytest

from streams.config.settings import Address
from streams.serve.app import Api
from streams.serve.http.connections import ConnectionLimits, Connections, certified_name
from streams.serve.http.security import Guard, Security
from streams.serve.http.servers import HttpThread, listening
from streams.serve.requests import Limits
from streams.serve.server import tls_options
from streams.testing import TopologyTestDriver
from tests.security.secured import Authority
from tests.serve.test_reading import build, click

QUICK = ConnectionLimits(head_s=0.5, body_s=1.0, idle_s=0.5, unread_s=0.5, connections=8, of_an_address=8, look_s=0.1)
KEY = b"GET /v1/stores/counts/keys/k001 HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/stores/counts/keys:batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def served():
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        click(driver, [("k001", 1000)])
        yield driver.served()


@contextmanager
def serving(served, limits=QUICK, application=None):
    api = Api(served, Guard(Security()), Limits(body_bytes=1000), connections=limits)
    listener = listening(Address("127.0.0.1", 0), "stores", "--http")
    with HttpThread(application or api.application(), listener, api.options):
        yield listener.getsockname()[1]


def connected(port):
    found = socket.create_connection(("127.0.0.1", port))
    found.settimeout(10)
    return found


def rest(connection) -> bytes:
    """What the server says until it closes the connection."""
    found = b""
    try:
        while more := connection.recv(65536):
            found += more
    except ConnectionError:
        pass
    return found


def answers(port) -> bool:
    with closing(connected(port)) as other:
        other.sendall(KEY + b"Connection: close\r\n\r\n")
        return rest(other).startswith(b"HTTP/1.1 200")


def told(data: bytes) -> tuple[int, dict]:
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize("begin", [b"GET /", b"GET /?", KEY + b"X: ", KEY + b"X", b"GE"], ids=str)
@pytest.mark.parametrize("size", [10_000, 100_000])
def test_a_head_without_end_is_refused(served, begin, size):
    with serving(served) as port, closing(connected(port)) as attacker:
        sent = 0
        try:
            attacker.sendall(begin)
            while sent < 20_000_000:
                attacker.sendall(b"a" * size)
                sent += size
        except ConnectionError:
            pass
        assert sent < 20_000_000
        assert answers(port)


def test_a_large_head_is_told_so(served):
    with serving(served) as port:
        for head in (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", KEY + b"X: " + b"a" * 40_000 + b"\r\n\r\n"):
            with closing(connected(port)) as client:
                client.sendall(head)
                status, said = told(rest(client))
                assert (status, "32768 bytes" in said["message"]) == (431, True)
        with closing(connected(port)) as client:
            client.sendall(KEY + b"X: " + b"a" * 20_000 + b"\r\nConnection: close\r\n\r\n")
            assert told(rest(client))[0] == 200


def test_many_requests_in_one_piece_are_no_large_head(served):
    """What is counted is the head that is not complete, not what came before it in the same bytes."""
    many = [KEY + b"X: " + b"a" * 900 + b"\r\n\r\n"] * 100
    with serving(served) as port, closing(connected(port)) as client:
        data = b"".join([*many, KEY + b"Connection: close\r\n\r\n"])
        client.sendall(data[:-10])
        time.sleep(0.2)
        client.sendall(data[-10:])
        assert rest(client).count(b"HTTP/1.1 200") == 101


def test_more_requests_than_are_answered_end_the_connection(served):
    slow = b"GET /v1/stores/counts/keys/k001?position=clicks-0=99&wait=2s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(served) as port, closing(connected(port)) as client:
        client.sendall(slow + (KEY + b"\r\n") * 2000)
        assert rest(client).count(b"HTTP/1.1") < 2000
        assert answers(port)


@pytest.mark.parametrize(
    ("data", "status"),
    [(b"", None), (b"\r\n", None), (KEY, 408), (b"GET", 408), (POST + b"Content-Length: 100\r\n\r\n{", 408)],
)
def test_who_does_not_send_a_request_in_time_is_disconnected(served, data, status):
    with serving(served) as port, closing(connected(port)) as client:
        client.sendall(data)
        begun_s = time.monotonic()
        said = rest(client)
        assert time.monotonic() - begun_s < 5
        assert (told(said)[0] if said else None) == status


def test_a_drop_now_and_then_buys_no_time(served):
    with serving(served) as port, closing(connected(port)) as client:
        begun_s = time.monotonic()
        try:
            while time.monotonic() - begun_s < 5:
                client.sendall(b"\r\n" if begun_s % 2 else b"a")
                time.sleep(0.1)
        except ConnectionError:
            pass
        assert time.monotonic() - begun_s < 4


def test_the_rest_of_a_body_that_is_too_large_is_not_read(served):
    with serving(served) as port, closing(connected(port)) as client:
        client.sendall(POST + b"Content-Length: 100000000\r\n\r\n" + b"x" * 2000)
        assert told(rest(client))[0] == 413


async def much(scope, receive, send):
    """An application with an answer of 64 MB."""
    if scope["type"] == "http":
        size = 64 * 1024 * 1024
        length = [(b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": bytes(size)})


def test_who_does_not_read_an_answer_is_disconnected_and_who_reads_slowly_is_not(served):
    with serving(served, application=much) as port:
        with closing(connected(port)) as client:
            client.sendall(KEY.replace(b"stores", b"other") + b"\r\n")
            time.sleep(2)
            assert len(rest(client)) < 64 * 1024 * 1024
        with closing(connected(port)) as client:
            client.sendall(KEY.replace(b"stores", b"other") + b"\r\n")
            found = 0
            while found < 64 * 1024 * 1024:
                more = len(client.recv(1024 * 1024))
                assert more
                found += more
                time.sleep(0.01)


def test_connections_that_say_nothing_give_way_to_new_ones(served):
    lasting = ConnectionLimits(connections=8, of_an_address=8)
    with serving(served, lasting) as port:
        attackers = [connected(port) for _ in range(40)]
        for one in attackers:
            one.sendall(KEY)
        for _ in range(5):
            assert answers(port)
        for one in attackers:
            one.close()


def test_where_all_connections_are_being_answered_a_new_one_is_refused(served):
    slow = b"GET /v1/stores/counts/keys/k001?position=clicks-0=99&wait=3s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(served, ConnectionLimits(connections=3, of_an_address=3)) as port:
        busy = [connected(port) for _ in range(3)]
        for one in busy:
            one.sendall(slow)
        time.sleep(0.3)
        with closing(connected(port)) as late:
            assert told(rest(late))[0] == 503
        for one in busy:
            one.close()
        time.sleep(0.3)
        assert answers(port)


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10,
        b"GET http://[ HTTP/1.1\r\n\r\n",
        KEY + b"Content-Length: x\r\n\r\n",
        KEY + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_is_answered_in_json(served, data):
    with serving(served) as port, closing(connected(port)) as client:
        client.sendall(data)
        status, said = told(rest(client))
        assert (status, said["error"]) == (400, "Refused")


def test_whom_a_certificate_names():
    subject = ((("organizationName", "shop"),), (("commonName", "billing"),))
    assert certified_name({"subject": subject}) == "billing"
    assert certified_name({"subject": (), "subjectAltName": (("DNS", "a.example"),)}) == "a.example"
    assert certified_name({"serialNumber": "0A"}) == "0A"
    assert certified_name({}) is None


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    folder.chmod(0o700)
    authority = Authority.make(folder)
    authority.server()
    return authority, folder / "server-127.0.0.1-365.pem"


@contextmanager
def serving_tls(served, certificate, limits):
    authority, mine = certificate
    api = Api(served, Guard(Security()), Limits(body_bytes=1000), connections=limits)
    listener = listening(Address("127.0.0.1", 0), "stores", "--http")
    with HttpThread(api.application(), listener, {**api.options, **tls_options(mine, None, Security())}):
        port = listener.getsockname()[1]
        context = ssl.create_default_context(cafile=authority.file)

        def answers_over_tls() -> bool:
            with context.wrap_socket(connected(port), server_hostname="127.0.0.1") as client:
                client.sendall(KEY + b"Connection: close\r\n\r\n")
                return rest(client).startswith(b"HTTP/1.1 200")

        yield port, answers_over_tls


def test_handshakes_that_do_not_end_give_way_to_new_ones(served, certificate):
    """They count as connections, whether the client says nothing or a part of its first message."""
    with serving_tls(served, certificate, ConnectionLimits(connections=8, of_an_address=8)) as (port, answers_over_tls):
        assert answers_over_tls()
        attackers = [connected(port) for _ in range(40)]
        for one in attackers[::2]:
            one.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        for _ in range(5):
            assert answers_over_tls()
        gone = [one for one in attackers if is_closed(one)]
        assert len(gone) >= 32
        for one in attackers:
            one.close()
        for _ in range(20):
            assert answers_over_tls()


def is_closed(connection) -> bool:
    connection.settimeout(0.1)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_what_comes_instead_of_a_handshake_is_not_answered(served, certificate):
    with serving_tls(served, certificate, QUICK) as (port, answers_over_tls):
        for data in (KEY + b"\r\n", b"\x00" * 100, b""):
            with closing(connected(port)) as client:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                assert b"200" not in rest(client)
        assert answers_over_tls()


def test_a_look_that_is_late_closes_nothing():
    """A process that had no time has not read yet what has come meanwhile."""
    looked = []

    class One:
        network, waiting_since_s = "a", 1.0

        def __init__(self, loop):
            self.loop = loop

        def look(self, now_s):
            looked.append(now_s)

    async def run():
        loop = asyncio.get_running_loop()
        room = Connections(ConnectionLimits(look_s=0.05))
        assert room.enter(One(loop))
        time.sleep(1.2)
        await asyncio.sleep(0)
        assert not looked
        await asyncio.sleep(0.2)
        assert looked

    asyncio.run(run())
