"""`StoreClient` and `AsyncStoreClient`: typed reads of a served store over HTTP, monotonic by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic
from urllib.parse import quote

import orjson
from pydantic import TypeAdapter

from streams.errors import (
    ConfigError,
    CursorExpiredError,
    NotUpToBoundError,
    QueryError,
    ServeError,
    StoreNotReadyError,
)
from streams.model.typing import K, V
from streams.serve.position import commits_text, parse_commits
from streams.serve.requests import COMMIT, POSITION

if TYPE_CHECKING:
    import httpx2

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


class _Requests(Generic[K, V]):
    """What both clients send and understand.

    Args:
        store: The store.
        key: The type of its keys, for reading them from JSON.
        value: The type of its values.
        wait: How long a request may wait until the answer is not older than the last one, such as `5s`.
    """

    def __init__(self, store: str, key: type[K], value: type[V], wait: str) -> None:
        self._path = f"/v1/stores/{quote(store, safe='')}"
        self._key = TypeAdapter[K](key)
        self._value = TypeAdapter[V](value)
        self._wait = wait
        self._commits: dict[tuple[str, int], int] = {}

    def _headers(self, position: str | None) -> dict[str, str]:
        found = {COMMIT: commits_text(self._commits)} if self._commits else {}
        return found if position is None else {**found, POSITION: position}

    def _parameters(self, **given: object) -> dict[str, str]:
        texts = {name: _text(value) for name, value in given.items() if value is not None}
        return {"wait": self._wait, **texts}

    def _key_path(self, key: K) -> str:
        return f"{self._path}/keys/{quote(_text(key), safe='')}"

    def _read(self, answer: httpx2.Response) -> Any:
        """The body of an answer; None: there is no such row.

        Raises:
            ServeError: The request was refused, or could not be answered.
        """
        for task, version in parse_commits(answer.headers.get(COMMIT, "") if answer.status_code < 409 else "").items():
            self._commits[task] = max(version, self._commits.get(task, 0))
        body = orjson.loads(answer.content)
        if answer.status_code == 200:
            return body
        if answer.status_code == 404 and body["error"] == "NoRow":
            return None
        raise _ERRORS.get(body["error"], ServeError)(f"{answer.status_code}: {body['message']}")

    def _rows(self, body: Any) -> list[ClientRow[K, V]]:
        return [self._row(row) for row in body["rows"]]

    def _row(self, row: Mapping[str, Any]) -> ClientRow[K, V]:
        window = row.get("window", {})
        key, value = self._key.validate_python(row["key"]), self._value.validate_python(row["value"])
        return ClientRow(key, value, row.get("timestamp"), window.get("start"), window.get("end"))


class StoreClient(_Requests[K, V]):
    """Reads one served store.

    The client remembers the commit of each task that it has seen, and asks for no older one: its reads are monotonic, whichever
    process answers. To read what you have written, give `position="TOPIC-PARTITION=OFFSET"` with the offset behind your record.

        totals = StoreClient("http://localhost:8080", "totals", value=int)
        totals.get("ann")

    Args:
        url: The server.
        store: The store.
        key: The type of its keys.
        value: The type of its values: anything that pydantic reads from JSON.
        token: A bearer token.
        wait: How long a request may wait until the answer is new enough.
        http: An `httpx2.Client` of your own, with other settings of TLS or time-outs.

    Raises:
        ConfigError: httpx2 is not installed.
    """

    def __init__(
        self,
        url: str,
        store: str,
        *,
        key: type[K] = str,  # type: ignore[assignment]
        value: type[V] = object,  # type: ignore[assignment]
        token: str | None = None,
        wait: str = "5s",
        http: httpx2.Client | None = None,
    ) -> None:
        super().__init__(store, key, value, wait)
        if http is None:
            http = _httpx2().Client(base_url=url, headers=_authorized(token), timeout=60)
        self._http = http

    def get(
        self, key: K, *, as_of: int | None = None, position: str | None = None, consistency: str | None = None
    ) -> V | None:
        """The value of a key, or of its version at a time; None if there is none.

        Raises:
            NotUpToBoundError: The copies are not new enough in time.
            ServeError: Any other refusal.
        """
        asked = self._parameters(as_of=as_of, consistency=consistency)
        body = self._read(self._http.get(self._key_path(key), params=asked, headers=self._headers(position)))
        return None if body is None else self._row(body).value

    def get_all(self, keys: Iterable[K], *, position: str | None = None) -> dict[K, V]:
        """The values of many keys; keys without a row are left out."""
        content, headers = _batch(keys, self._headers(position))
        path = f"{self._path}/keys:batch"
        body = self._read(self._http.post(path, params=self._parameters(), content=content, headers=headers))
        return {row.key: row.value for row in self._rows(body)}

    def range(
        self, lower: K | None = None, upper: K | None = None, *, prefix: str | None = None, reverse: bool = False
    ) -> Iterator[ClientRow[K, V]]:
        """Rows in the order of the keys' bytes, page by page, all as of the same commits."""
        yield from self._pages("range", **{"from": lower, "to": upper}, prefix=prefix, reverse=reverse)

    def windows(
        self, key: K | None = None, start: int | None = None, end: int | None = None, *, reverse: bool = False
    ) -> Iterator[ClientRow[K, V]]:
        """Windows by start, or sessions by end, within these times, page by page, all as of the same commits."""
        yield from self._pages("windows", key=key, window_from=start, window_to=end, reverse=reverse)

    def _pages(self, kind: str, **asked: object) -> Iterator[ClientRow[K, V]]:
        cursor: str | None = None
        while True:
            parameters = self._parameters(**asked, cursor=cursor)
            body = self._read(self._http.get(f"{self._path}/{kind}", params=parameters, headers=self._headers(None)))
            yield from self._rows(body)
            cursor = body["cursor"]
            if cursor is None:
                return

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()


class AsyncStoreClient(_Requests[K, V]):
    """`StoreClient` for asyncio: the same arguments and methods, to be awaited; `http` is an `httpx2.AsyncClient`."""

    def __init__(
        self,
        url: str,
        store: str,
        *,
        key: type[K] = str,  # type: ignore[assignment]
        value: type[V] = object,  # type: ignore[assignment]
        token: str | None = None,
        wait: str = "5s",
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        super().__init__(store, key, value, wait)
        if http is None:
            http = _httpx2().AsyncClient(base_url=url, headers=_authorized(token), timeout=60)
        self._http = http

    async def get(
        self, key: K, *, as_of: int | None = None, position: str | None = None, consistency: str | None = None
    ) -> V | None:
        """As `StoreClient.get`."""
        asked = self._parameters(as_of=as_of, consistency=consistency)
        body = self._read(await self._http.get(self._key_path(key), params=asked, headers=self._headers(position)))
        return None if body is None else self._row(body).value

    async def get_all(self, keys: Iterable[K], *, position: str | None = None) -> dict[K, V]:
        """As `StoreClient.get_all`."""
        content, headers = _batch(keys, self._headers(position))
        path = f"{self._path}/keys:batch"
        body = self._read(await self._http.post(path, params=self._parameters(), content=content, headers=headers))
        return {row.key: row.value for row in self._rows(body)}

    async def range(
        self, lower: K | None = None, upper: K | None = None, *, prefix: str | None = None, reverse: bool = False
    ) -> AsyncIterator[ClientRow[K, V]]:
        """As `StoreClient.range`."""
        async for row in self._pages("range", **{"from": lower, "to": upper}, prefix=prefix, reverse=reverse):
            yield row

    async def windows(
        self, key: K | None = None, start: int | None = None, end: int | None = None, *, reverse: bool = False
    ) -> AsyncIterator[ClientRow[K, V]]:
        """As `StoreClient.windows`."""
        async for row in self._pages("windows", key=key, window_from=start, window_to=end, reverse=reverse):
            yield row

    async def _pages(self, kind: str, **asked: object) -> AsyncIterator[ClientRow[K, V]]:
        cursor: str | None = None
        while True:
            parameters = self._parameters(**asked, cursor=cursor)
            headers = self._headers(None)
            body = self._read(await self._http.get(f"{self._path}/{kind}", params=parameters, headers=headers))
            for row in self._rows(body):
                yield row
            cursor = body["cursor"]
            if cursor is None:
                return

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def _batch(keys: Iterable[object], headers: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
    return orjson.dumps({"keys": list(keys)}), {**headers, "Content-Type": "application/json"}


def _authorized(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _httpx2() -> Any:
    if find_spec("httpx2") is None:
        raise ConfigError(
            "a client of served stores needs httpx2, which is not installed: pip install 'streams-on-spark[serve]'"
        )
    import httpx2

    return httpx2
