"""The typed clients: the same reads from Python, monotonic by themselves."""

import asyncio
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2
import pytest
from starlette.testclient import TestClient

from streams.errors import CursorExpiredError, NotUpToBoundError, QueryError, ServeError, StoreNotReadyError
from streams.serve.app import Api
from streams.serve.client import AsyncStoreClient, ClientRow, StoreClient
from streams.serve.http.security import Guard, Security
from streams.serve.position import Commit, commits_text
from streams.serve.requests import Limits
from streams.testing import TopologyTestDriver
from tests.serve.test_reading import NAMES, build, click


@dataclass
class Person:
    name: str


@pytest.fixture
def driver():
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        click(driver, [(name, 1000) for name in NAMES])
        driver.create_input_topic("names").pipe_input("k001", {"name": "Ada"})
        yield driver


@pytest.fixture
def served(driver):
    return driver.served()


@pytest.fixture
def application(served):
    return Api(served, Guard(Security()), Limits(page_rows=7)).application()


@pytest.fixture
def client(application):
    http = TestClient(application, client=("127.0.0.1", 1), base_url="http://localhost")
    return lambda store, **options: StoreClient("", store, http=http, **options)


def test_typed_reads(client, driver):
    counts = client("counts", value=int)
    assert (counts.get("k007"), counts.get("nobody")) == (1, None)
    assert counts.get_all(["k001", "nobody", "k059"]) == {"k001": 1, "k059": 1}
    assert [row.key for row in counts.range("k010", "k029")] == NAMES[10:30]
    assert [row.key for row in counts.range(prefix="k05", reverse=True)] == NAMES[59:49:-1]
    assert client("names", value=Person).get("k001") == Person("Ada")
    windows = client("windows", value=int)
    assert list(windows.windows("k003", 0, 9_999)) == [ClientRow("k003", 1, 1000, 0, 10_000)]
    assert len(list(windows.windows())) == 60
    prices = driver.create_input_topic("prices")
    prices.pipe_input("apple", 10, 1_000)
    prices.pipe_input("apple", 20, 2_000)
    assert client("history", value=int).get("apple", as_of=1_500) == 10


def test_a_client_never_goes_back_to_an_older_commit(client, driver):
    counts = client("counts", value=int, wait="10ms")
    task = driver.served().store("counts").task_of(b"k007")
    click(driver, [("k007", 2000)])
    assert counts.get("k007") == 2
    sub = driver.served().store("counts").sub
    ((place, commit),) = counts._commits.items()
    assert (place, commit.version) == ((sub, task), 2)
    counts._see(commits_text({(sub, task): commit._replace(version=3)}))
    with pytest.raises(NotUpToBoundError, match="has not reached"):
        counts.get("k007")
    assert counts.get("k007", consistency="any") == 2
    click(driver, [("k007", 3000)])
    assert counts.get("k007") == 3


def test_a_client_goes_on_after_the_application_was_reset(client, served):
    """The numbers of the commits begin anew, so those from before say nothing."""
    counts = client("counts", value=int, wait="10s")
    store = served.store("counts")
    task = store.task_of(b"k007")
    of_before = Commit(7, "0123abcd")
    counts._see(commits_text({(store.sub, task): of_before}))
    # Some time after the question, the copy has looked for commits once more: what it has is what there is.
    with looking(served):
        assert counts.get("k007") == 1
    assert counts._commits[store.sub, task] == Commit(1, store.points([task])[0].life)
    assert counts.get("k007") == 1
    hasty = client("counts", wait="10ms")
    hasty._see(commits_text({(store.sub, task): of_before}))
    with pytest.raises(NotUpToBoundError, match="7@0123abcd"):
        hasty.get("k007")


@contextmanager
def looking(served):
    """Looks for commits again and again, as a process that serves does."""
    ended = threading.Event()

    def look():
        while not ended.wait(0.1):
            served.copies()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_own_writes_are_read_by_position(client, driver):
    counts = client("counts", value=int, wait="10ms")
    store = driver.served().store("counts")
    place, end = next(iter(store.points([store.task_of(b"k007")])[0].position.offsets.items()))
    ahead = f"{place[0]}-{place[1]}={end + 1}"
    with pytest.raises(NotUpToBoundError):
        counts.get("k007", position=ahead)
    click(driver, [("k007", 2000)])
    assert counts.get("k007", position=ahead) == 2


def test_refusals_are_the_errors_of_python(client):
    with pytest.raises(QueryError, match="has windows"):
        client("windows").get("a")
    with pytest.raises(ServeError, match="no store 'count'"):
        client("count").get("a")


def test_the_same_for_asyncio(application):
    async def reads():
        transport = httpx2.ASGITransport(application, client=("127.0.0.1", 1))
        http = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        counts = AsyncStoreClient("", "counts", value=int, http=http)
        windows = AsyncStoreClient("", "windows", value=int, http=http)
        assert await counts.get("k007") == 1
        assert await counts.get_all(["k001", "nobody"]) == {"k001": 1}
        assert [row.key async for row in counts.range("k010", "k029")] == NAMES[10:30]
        assert [row.window_end async for row in windows.windows("k003")] == [10_000]
        await counts.close()

    asyncio.run(reads())


def test_another_server_answers_for_one_that_is_gone(application):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}"

    async def reads():
        here = httpx2.ASGITransport(application, client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(mounts={"http://localhost": here}) as http:
            counts = AsyncStoreClient([gone, "http://localhost"], "counts", value=int, http=http)
            assert await counts.get("k007") == 1
            assert counts.urls == ["http://localhost", gone]
            with pytest.raises(StoreNotReadyError, match="no server of the store answers"):
                await AsyncStoreClient(gone, "counts", http=http).get("k007")

    asyncio.run(reads())


@contextmanager
def answering(*answers: bytes | None):
    """A server that gives these answers, whatever is asked; None: it closes the connection. Its address, and what it was asked."""
    asked: list[bytes] = []
    left = list(answers)

    def serve():
        while left:
            connection, _ = listener.accept()
            with connection:
                while left and (data := connection.recv(65536)):
                    asked.append(data)
                    answer = left.pop(0)
                    if answer is None:
                        break
                    for part in answer.split(b"|"):
                        connection.sendall(part)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        thread.join(5)


def with_length(value: int) -> bytes:
    body = b'{"key":"a","value":%d}' % value
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def test_a_connection_stays_open_and_answers_may_come_in_parts():
    chunked = (
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: |chunked\r\n\r\n12\r\n{"key":"a","value"|\r\n3\r\n:2}\r\n0\r\n\r\n'
    )
    with answering(with_length(1), chunked, with_length(3)) as (url, asked):
        store = StoreClient(url, "counts", value=int, token="some-token-of-mine")
        assert [store.get("a/b") for _ in range(3)] == [1, 2, 3]
        assert [len(idle) for idle in store._http._idle.values()] == [1]
        store.close()
    line, *headers = asked[0].split(b"\r\n")
    assert line == b"GET /v1/stores/counts/keys/%22a%2Fb%22?wait=5s&keys=json HTTP/1.1"
    assert b"Authorization: Bearer some-token-of-mine" in headers


def test_a_connection_that_was_closed_meanwhile_is_opened_again():
    with answering(with_length(1), None, with_length(2)) as (url, asked):
        store = StoreClient(url, "counts", value=int)
        assert [store.get("a"), store.get("a")] == [1, 2]
    assert len(asked) == 3


@pytest.mark.parametrize("answer", [None, b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"])
def test_a_server_that_gives_no_answer_is_passed_over(answer):
    """Half an answer is none, and nothing is asked twice of a server that has begun to answer."""
    with answering(answer) as (bad, asked), answering(with_length(5)) as (good, _):
        assert StoreClient([bad, good], "counts", value=int).get("a") == 5
    assert len(asked) == 1


def test_headers_cannot_be_smuggled_into_a_request():
    with pytest.raises(QueryError, match="line break"):
        StoreClient("http://127.0.0.1:1", "counts").get("a", position="x\r\nHost: evil")


def test_proxies_are_for_the_library_that_knows_them(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert isinstance(StoreClient("http://store.example", "counts")._http, httpx2.Client)
    monkeypatch.setenv("no_proxy", "store.example")
    assert not isinstance(StoreClient("http://store.example", "counts")._http, httpx2.Client)


COMMITS = 6
"""More than are kept for reads of one micro-batch."""


def pass_a_minute(served, driver):
    for copy in served.copies().values():
        copy.clock_s = lambda ahead=copy.clock_s: ahead() + 61
    for turn in range(COMMITS):
        click(driver, [(name, 2000 + turn) for name in NAMES])
        served.copies()


def test_rows_that_were_asked_for_too_late_are_an_error_and_no_other_rows(client, application, driver, served):
    """The rest of a range is as of commits that are not kept any more: whoever reads it hears that, and can begin again."""
    counts = client("counts", value=int)
    rows = counts.range()
    before = [next(rows) for _ in range(7)]
    pass_a_minute(served, driver)
    with pytest.raises(CursorExpiredError, match="The 7 rows that were given"):
        next(rows)
    assert [row.value for row in before] == [1] * 7
    assert [row.value for row in counts.range()] == [1 + COMMITS] * 60

    async def late():
        transport = httpx2.ASGITransport(application, client=("127.0.0.1", 1))
        http = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        rows = AsyncStoreClient("", "counts", value=int, http=http).range()
        assert [(await anext(rows)).value for _ in range(7)] == [1 + COMMITS] * 7
        pass_a_minute(served, driver)
        with pytest.raises(CursorExpiredError, match="The 7 rows that were given"):
            await anext(rows)

    asyncio.run(late())
