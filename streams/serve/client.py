"""`StoreClient` and `AsyncStoreClient`: typed reads of a served store over HTTP, monotonic by themselves."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from streams.errors import (
    ConfigError,
    CursorExpiredError,
    NotUpToBoundError,
    QueryError,
    SerdeError,
    ServeError,
    StoreNotReadyError,
)
from streams.model.typing import K, V
from streams.serdes import base
from streams.serdes.json_shown import shown, shown_json
from streams.serdes.json_text import loads
from streams.serve.http.servers import check_installed
from streams.serve.position import Commit, commits_text, parse_commits
from streams.serve.requests import COMMIT, KEYS, POSITION

if TYPE_CHECKING:
    import httpx2

_log = logging.getLogger(__name__)
Http = TypeVar("Http")

_ERRORS: Mapping[str, type[ServeError]] = {
    one.__name__: one for one in (QueryError, StoreNotReadyError, NotUpToBoundError, CursorExpiredError)
}


@dataclass(frozen=True, slots=True)
class ClientRow(Generic[K, V]):
    """A row.

    Attributes:
        timestamp: Of the value, ms; None in stores without timestamps.
        window_start: Start of the window or session, ms; None in other stores.
        window_end: Its end, ms.
    """

    key: K
    value: V
    timestamp: int | None = None
    window_start: int | None = None
    window_end: int | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that is independent of the server that it is sent to."""

    method: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    content: bytes | None = None

    def to(self, server: str) -> dict[str, Any]:
        """The arguments with which httpx2 sends the request to a server."""
        return {
            "method": self.method,
            "url": server + self.path,
            "params": self.params,
            "headers": self.headers,
            "content": self.content,
        }


_ANSWER_S = 60.0
_CONNECT_S = 2.0
"""After this long without a connection, the next server is asked: a host that is down does not refuse connections."""


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """An answer over HTTP; the names of the headers are in small letters."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class KeptConnections:
    """HTTP/1.1 over connections that stay open, for many small requests: any thread may send them.

    A complete HTTP library takes longer for a request than the server takes to answer it. The parser is httptools, as in the
    server.

    Args:
        headers: What is sent with each request.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = {"Accept": "application/json", **headers}
        self._idle: dict[str, list[socket.socket]] = {}
        self._tls: ssl.SSLContext | None = None

    def request(
        self, method: str, url: str, params: Mapping[str, str], headers: Mapping[str, str], content: bytes | None = None
    ) -> PlainAnswer:
        """Sends a request.

        Raises:
            OSError: There is no answer.
        """
        server, data = self._message(method, url, params, headers, content)
        idle = self._idle.setdefault(server, [])
        while True:
            connection, is_new = (idle.pop(), False) if idle else (self._connected(server), True)
            reader = _AnswerReader(connection)
            try:
                connection.sendall(data)
                answer = reader.read()
            except OSError:
                connection.close()
                if is_new or reader.begun:
                    raise
                # The server has closed it since the last request.
                continue
            if reader.stays_open:
                idle.append(connection)
            else:
                connection.close()
            return answer

    def close(self) -> None:
        """Closes the connections."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()

    def _message(
        self, method: str, url: str, params: Mapping[str, str], headers: Mapping[str, str], content: bytes | None
    ) -> tuple[str, bytes]:
        """The server (scheme, host and port), and the bytes of a request."""
        scheme, _, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        given = {"Host": host, **self._headers, **headers}
        if content is not None:
            given["Content-Length"] = str(len(content))
        lines = [f"{method} {slash or '/'}{path}?{urlencode(params)} HTTP/1.1", *map(": ".join, given.items())]
        text = "\r\n".join(lines)
        if text.count("\n") != len(lines) - 1:
            raise QueryError("a position or token has a line break")
        return f"{scheme}://{host}", f"{text}\r\n\r\n".encode("latin-1") + (content or b"")

    def _connected(self, server: str) -> socket.socket:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{server!r} is not the address of a server: write http://HOST:PORT")
        is_tls = parts.scheme == "https"
        found = socket.create_connection((parts.hostname, parts.port or (443 if is_tls else 80)), _CONNECT_S)
        found.settimeout(_ANSWER_S)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not is_tls:
            return found
        if self._tls is None:
            self._tls = ssl.create_default_context()
        try:
            return self._tls.wrap_socket(found, server_hostname=parts.hostname)
        except OSError:
            found.close()
            raise


class _AnswerReader:
    """Reads one answer of a connection.

    Attributes:
        begun: Whether a part of it has arrived.
        stays_open: Whether another request may follow.
    """

    def __init__(self, connection: socket.socket) -> None:
        import httptools

        self._connection = connection
        self._wrong = httptools.HttpParserError
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self.begun = self.stays_open = self._done = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser has seen a header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        """The parser has seen a part of the body."""
        self._body.append(data)

    def on_headers_complete(self) -> None:
        """The parser has seen the head."""
        self.stays_open = self._parser.should_keep_alive()

    def on_message_complete(self) -> None:
        """The parser has seen the end."""
        self._done = True

    def read(self) -> PlainAnswer:
        """Reads the answer.

        Raises:
            OSError: The connection gives no complete answer.
        """
        while not self._done:
            data = self._connection.recv(_RECEIVED_BYTES)
            if not data:
                raise ConnectionError("the server has closed the connection")
            self.begun = True
            try:
                self._parser.feed_data(data)
            except self._wrong as error:
                raise ConnectionError(f"this is not HTTP: {error}") from error
        return PlainAnswer(self._parser.get_status_code(), self._headers, b"".join(self._body))


_RECEIVED_BYTES = 256 * 1024


def _has_proxy(url: str) -> bool:
    """Whether the environment names a proxy for a server."""
    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")


class _Requests(Generic[Http, K, V]):
    """The requests of both clients, and how their answers are read. `StoreClient` describes the behaviour."""

    _KIND = "Client"

    def __init__(
        self,
        url: str | Sequence[str],
        store: str,
        *,
        key: type[K] = str,  # type: ignore[assignment]
        value: type[V] = object,  # type: ignore[assignment]
        token: str | None = None,
        wait: str = "5s",
        http: Http | None = None,
    ) -> None:
        self.urls = [url] if isinstance(url, str) else list(url)
        self.no_answer: tuple[type[Exception], ...] = (StoreNotReadyError,)
        if http is None:
            http = self._opened({} if token is None else {"Authorization": f"Bearer {token}"})
        if not isinstance(http, KeptConnections):
            check_installed("a client of served stores", "httpx2")
            import httpx2

            self.no_answer += (httpx2.TransportError,)
        self._http: Any = http
        self._path = f"/v1/stores/{quote(store, safe='')}"
        self._key, self._value = _reader_of(key), _reader_of(value)
        self._wait = wait
        self._commits: dict[tuple[str, int], Commit] = {}
        self._seen = self._sent = ""
        """The last answer's commits; and all that are known, as text."""

    def _opened(self, headers: Mapping[str, str]) -> Any:
        check_installed("a client of served stores", "httpx2")
        import httpx2

        return getattr(httpx2, self._KIND)(headers=headers, timeout=httpx2.Timeout(_ANSWER_S, connect=_CONNECT_S))

    def _get(self, key: K, as_of: int | None, position: str | None, consistency: str | None) -> _Request:
        asked = self._parameters(as_of=as_of, consistency=consistency, **_AS_JSON)
        return _Request("GET", f"{self._path}/keys/{quote(_key_text(key), safe='')}", asked, self._headers(position))

    def _batch(self, keys: Iterable[K], position: str | None) -> _Request:
        headers = {**self._headers(position), "Content-Type": "application/json"}
        content = shown_json({"keys": [shown(key) for key in keys]})
        return _Request("POST", f"{self._path}/keys:batch", self._parameters(), headers, content)

    def _range(self, lower: K | None, upper: K | None, prefix: str | bytes | None, reverse: bool) -> dict[str, object]:
        bounds = {"from": lower, "to": upper}
        keys = {name: None if key is None else _key_text(key) for name, key in bounds.items()}
        return {**keys, "prefix": shown(prefix), "reverse": reverse, **_AS_JSON}

    def _windows(self, key: K | None, start: int | None, end: int | None, reverse: bool) -> dict[str, object]:
        text = None if key is None else _key_text(key)
        return {"key": text, "window_from": start, "window_to": end, "reverse": reverse, **_AS_JSON}

    def _page(self, kind: str, asked: Mapping[str, object], cursor: str | None) -> _Request:
        return _Request("GET", f"{self._path}/{kind}", self._parameters(**asked, cursor=cursor), self._headers(None))

    def _headers(self, position: str | None) -> dict[str, str]:
        found = {COMMIT: self._sent} if self._sent else {}
        return found if position is None else {**found, POSITION: position}

    def _parameters(self, **given: object) -> dict[str, str]:
        texts = {name: _text(value) for name, value in given.items() if value is not None}
        return {"wait": self._wait, **texts}

    def _see(self, commits: str) -> None:
        """Notes the commits of an answer."""
        for task, commit in parse_commits(commits).items():
            known = self._commits.get(task, commit)
            # After a reset of the application, the numbers begin at 1 again.
            self._commits[task] = commit if commit.life != known.life else max(commit, known)
        self._seen, self._sent = commits, commits_text(self._commits)

    def _read(self, answer: httpx2.Response | PlainAnswer) -> Any:
        """The body of an answer; None: there is no such row.

        Raises:
            ServeError: The request was refused, or could not be answered.
        """
        commits = answer.headers.get(_COMMIT, "") if answer.status_code < 409 else ""
        if commits and commits != self._seen:
            self._see(commits)
        body = loads(answer.content)
        if answer.status_code == 200:
            return body
        if answer.status_code == 404 and body["error"] == "NoRow":
            return None
        raise _ERRORS.get(body["error"], ServeError)(f"{answer.status_code}: {body['message']}")

    def _rows(self, body: Any) -> list[ClientRow[K, V]]:
        return [self._row(row) for row in body["rows"]]

    def _row(self, row: Mapping[str, Any]) -> ClientRow[K, V]:
        window = row.get("window", {})
        key, value = self._key(row["key"]), self._value(row["value"])
        return ClientRow(key, value, row.get("timestamp"), window.get("start"), window.get("end"))


class _Tried:
    """The servers of a client, one after the other: a `with` block asks one, and skips it if it does not answer.

    Attributes:
        error: What to raise if the last one has not answered.
    """

    def __init__(self, client: _Requests[Any, Any, Any]) -> None:
        self._urls, self._no_answer = client.urls, client.no_answer
        self._url = ""
        self.error: Exception = StoreNotReadyError("no server of the store was given")

    def __iter__(self) -> Iterator[str]:
        for url in list(self._urls):
            self._url = url
            yield url

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, self._no_answer):
            return False
        _log.info("%s: %s", self._url, error)
        # From now on this server is asked last.
        self._urls.remove(self._url)
        self._urls.append(self._url)
        unanswered = StoreNotReadyError(f"no server of the store answers: {error}")
        self.error = error if isinstance(error, ServeError) else unanswered
        return True


class StoreClient(_Requests["httpx2.Client", K, V]):
    """Reads one served store.

    The client remembers the newest commit that it has seen of each task, and never accepts an older one. So its reads are
    monotonic, whichever process answers. To read what you have written, give `position="TOPIC-PARTITION=OFFSET"` where the offset
    is the one after your record.

        totals = StoreClient("http://localhost:8080", "totals", value=int)
        totals.get("ann")

    Args:
        url: The server; or several, which are asked one after the other until one answers.
        store: The store.
        key: The type of its keys.
        value: The type of its values: anything that pydantic reads from JSON; bytes are read from base64.
        token: A bearer token.
        wait: How long a request may wait until the answer is new enough.
        http: An `httpx2.Client` of your own, with other settings of TLS or time-outs.

    Raises:
        ConfigError: httptools is not installed; or httpx2 is not, which proxies and your own TLS settings need.
    """

    def _opened(self, headers: Mapping[str, str]) -> Any:
        if any(map(_has_proxy, self.urls)):
            return super()._opened(headers)
        check_installed("a client of served stores", "httptools")
        self.no_answer += (OSError,)
        return KeptConnections(headers)

    def get(
        self, key: K, *, as_of: int | None = None, position: str | None = None, consistency: str | None = None
    ) -> V | None:
        """The value of a key, now or at the time `as_of`; None if there is none.

        Raises:
            NotUpToBoundError: The copies are not new enough in time.
            SerdeError: The key or the value is not of the type.
            ServeError: Any other refusal.
        """
        body = self._send(self._get(key, as_of, position, consistency))
        return None if body is None else self._row(body).value

    def get_all(self, keys: Iterable[K], *, position: str | None = None) -> dict[K, V]:
        """The values of many keys; keys without a row are left out."""
        body = self._send(self._batch(keys, position))
        return {row.key: row.value for row in self._rows(body)}

    def range(
        self,
        lower: K | None = None,
        upper: K | None = None,
        *,
        prefix: str | bytes | None = None,
        reverse: bool = False,
    ) -> Iterator[ClientRow[K, V]]:
        """Rows in the order of the keys (with a prefix, of the keys' bytes), page by page, all as of the same commits.

        Raises:
            CursorExpiredError: The next page was asked for too late, or the application was reset: begin again.
            QueryError: The bytes of such keys do not sort as the keys do: JSON, tuples, lists, Avro.
        """
        yield from self._pages("range", self._range(lower, upper, prefix, reverse))

    def windows(
        self, key: K | None = None, start: int | None = None, end: int | None = None, *, reverse: bool = False
    ) -> Iterator[ClientRow[K, V]]:
        """Windows that start, or sessions that end, within these times, page by page, all as of the same commits.

        Raises:
            CursorExpiredError: The next page was asked for too late, or the application was reset: begin again.
        """
        yield from self._pages("windows", self._windows(key, start, end, reverse))

    def _pages(self, kind: str, asked: Mapping[str, object]) -> Iterator[ClientRow[K, V]]:
        cursor: str | None = None
        given = 0
        while True:
            try:
                body = self._send(self._page(kind, asked, cursor))
            except CursorExpiredError as error:
                raise _expired(error, given) from error
            rows = self._rows(body)
            given += len(rows)
            yield from rows
            cursor = body["cursor"]
            if cursor is None:
                return

    def _send(self, request: _Request) -> Any:
        for server in (tried := _Tried(self)):
            with tried:
                return self._read(self._http.request(**request.to(server)))
        raise tried.error

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()


class AsyncStoreClient(_Requests["httpx2.AsyncClient", K, V]):
    """`StoreClient` for asyncio: the same arguments, and the same methods as coroutines; `http` is an `httpx2.AsyncClient`."""

    _KIND = "AsyncClient"

    async def get(
        self, key: K, *, as_of: int | None = None, position: str | None = None, consistency: str | None = None
    ) -> V | None:
        """As `StoreClient.get`."""
        body = await self._send(self._get(key, as_of, position, consistency))
        return None if body is None else self._row(body).value

    async def get_all(self, keys: Iterable[K], *, position: str | None = None) -> dict[K, V]:
        """As `StoreClient.get_all`."""
        body = await self._send(self._batch(keys, position))
        return {row.key: row.value for row in self._rows(body)}

    async def range(
        self,
        lower: K | None = None,
        upper: K | None = None,
        *,
        prefix: str | bytes | None = None,
        reverse: bool = False,
    ) -> AsyncIterator[ClientRow[K, V]]:
        """As `StoreClient.range`."""
        async for row in self._pages("range", self._range(lower, upper, prefix, reverse)):
            yield row

    async def windows(
        self, key: K | None = None, start: int | None = None, end: int | None = None, *, reverse: bool = False
    ) -> AsyncIterator[ClientRow[K, V]]:
        """As `StoreClient.windows`."""
        async for row in self._pages("windows", self._windows(key, start, end, reverse)):
            yield row

    async def _pages(self, kind: str, asked: Mapping[str, object]) -> AsyncIterator[ClientRow[K, V]]:
        cursor: str | None = None
        given = 0
        while True:
            try:
                body = await self._send(self._page(kind, asked, cursor))
            except CursorExpiredError as error:
                raise _expired(error, given) from error
            rows = self._rows(body)
            given += len(rows)
            for row in rows:
                yield row
            cursor = body["cursor"]
            if cursor is None:
                return

    async def _send(self, request: _Request) -> Any:
        for server in (tried := _Tried(self)):
            with tried:
                return self._read(await self._http.request(**request.to(server)))
        raise tried.error

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()


_COMMIT = COMMIT.lower()
_AS_JSON: Mapping[str, object] = {KEYS: "json"}
"""All keys are sent as JSON. So the text "7" is not taken for the number, and no key is a part of the path, such as `..`."""


def _key_text(key: object) -> str:
    """A key as JSON. Raises `SerdeError` if it has no such form."""
    return shown_json(shown(key)).decode()


def _expired(error: CursorExpiredError, given: int) -> CursorExpiredError:
    """The error for a scan without its next page. The client does not begin again by itself, since rows would come twice."""
    return CursorExpiredError(
        f"{error}. The {given} rows that were given are as of commits that are not kept any more, and the rest would be as of "
        f"others: ask for all of them again, with less time between two pages"
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else shown_json(value).decode()


def _reader_of(kind: Any) -> Callable[[Any], Any]:
    """A function that converts the JSON of a key or value to a type; it raises `SerdeError` if the JSON does not fit."""
    if kind in (object, Any):
        return lambda data: data
    try:
        adapter = TypeAdapter(kind, config=ConfigDict(val_json_bytes="base64"))
    except PydanticUserError:
        # Models and dataclasses have their own configuration.
        adapter = TypeAdapter(kind)

    def read(data: Any) -> Any:
        try:
            return adapter.validate_json(shown_json(data))
        except ValidationError as error:
            raise SerdeError(
                f"the store has {base.shown(data)}, which is none of the type of the client: {error}"
            ) from error

    return read
