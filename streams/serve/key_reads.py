"""`KeyReads`: answers reads of one key as soon as their bytes are there, in front of uvicorn's requests and Starlette's routes.

Those cost several times what the read itself does. Only what can be answered at once is answered here: a whole request of the
plainest form, the copy is in this process and new enough, and the caller may read. Everything else, whatever the reason, goes to
uvicorn and the routes as it came, which also say what is wrong.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import parse_qsl

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from state.errors import StreamsError
from streams.serdes.json_shown import shown_json
from streams.serve.connections import Connection
from streams.serve.position import Position
from streams.serve.reading import Answer, Point
from streams.serve.requests import (
    AGE,
    COMMIT,
    KEYS,
    POSITION,
    Limits,
    Parameters,
    answer_headers,
    key_bytes,
    no_row,
    tasks_json,
    unquoted,
)
from streams.serve.security import CALLER, CERTIFICATE, Guard, RefusedError, Scope, address_of
from streams.serve.served import Served

_MOST_BYTES = 8192
_REQUEST = re.compile(
    rb"GET (/v1/stores/([\w.-]+)/keys/([!-\"$->@-~]*))(?:\?([!-\"$-~]*))? HTTP/1\.1\r\n"
    rb"((?:[\w-]+:[^\r\n\0]*\r\n)*)\r\n"
)
_PARAMETERS = frozenset({"wait", "position", "commits", KEYS})
"""The parameters that say nothing but how the key is written, and how new the answer has to be."""
_HEADERS = {name.lower().encode(): name for name in ("Host", "Authorization", POSITION, COMMIT)}
_NOT_PLAIN = frozenset({b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"connection"})
"""Headers that say something of what else comes over the connection."""


class Finished(Protocol):
    """Counts a request, and writes its audit line."""

    def __call__(
        self, route: str, connection: Mapping[str, Any], status: int, begun_s: float, reason: str = ""
    ) -> None: ...


class KeyReads:
    """See the module.

    Args:
        served: The stores.
        guard: Who may ask.
        limits: What a request may cost.
        finished: Called after each request that was answered here.
    """

    def __init__(self, served: Served, guard: Guard, limits: Limits, finished: Finished) -> None:
        self._served, self._guard, self._limits = served, guard, limits
        self._finished = finished

    def at_once(
        self, data: bytes, client: tuple[str, int] | None, certificate: str | None = None
    ) -> list[bytes] | None:
        """The answer to a request, without the headers of the server; None: the routes have it."""
        asked = _REQUEST.fullmatch(data) if len(data) < _MOST_BYTES else None
        headers = _headers(asked[5]) if asked is not None else None
        if asked is None or headers is None:
            return None
        begun_s = time.perf_counter()
        connection = {"client": client, "method": "GET", "path": asked[1].decode(), CERTIFICATE: certificate}
        text = unquoted(asked[3].decode())
        if text is None:
            return None
        found = self._answer(asked[2].decode(), text, asked[4], headers, connection)
        if found is not None:
            self._finished("key", connection, found[0], begun_s)
            return found[1]
        return None

    def _answer(
        self, name: str, text: str, asked: bytes | None, headers: Mapping[str, str], connection: dict[str, Any]
    ) -> tuple[int, list[bytes]] | None:
        store = self._served.stores.get(name)
        query = _query(asked) if asked else {}
        if store is None or not query.keys() <= _PARAMETERS:
            return None
        try:
            given = Parameters(query, headers, self._limits)
            key = given.key_bytes(store, text) if query else key_bytes(store, text)
            task = store.task_of(key)
            if task is None:
                return None
            if query or POSITION in headers or COMMIT in headers:
                bound = given.bound()
                if self._served.wanting(store, [task], bound):
                    return None
            # Last, because a request that the routes answer counts there.
            connection[CALLER] = self._guard.admitted(
                Scope.READ,
                headers.get("Host", ""),
                headers.get("Authorization"),
                address_of(connection),
                connection[CERTIFICATE],
            )
            found = store.row_now(key, task)
        except (RefusedError, StreamsError):
            return None
        if found is None:
            return None
        row, point = found
        status, data = (200, row) if row is not None else no_row(store, text)
        said, tasks = _as_of(*point[:4], point.life)
        body = b'%b,"tasks":%b%d}]}\n' % (shown_json(data)[:-1], tasks, point.age_ms)
        return status, [
            STATUS_LINE[status],
            b"content-length: %d\r\n%b%d\r\n\r\n" % (len(body), said, point.age_ms),
            body,
        ]


@lru_cache(1024)
def _as_of(sub: str, task: int, version: int, position: Position, life: str) -> tuple[bytes, bytes]:
    """What all answers of one commit say of it, in their headers and bodies: up to the age, which comes last in both."""
    answer = Answer((), (Point(sub, task, version, position, 0, life),))
    headers = {**answer_headers(answer), AGE: ""}
    lines = [b"content-type: application/json", *(f"{name.lower()}: {text}".encode() for name, text in headers.items())]
    return b"\r\n".join(lines), orjson.dumps(tasks_json(answer)).removesuffix(b"0}]")


@lru_cache(256)
def _query(asked: bytes) -> Mapping[str, str]:
    """The parameters of an address. Clients send the same ones again."""
    return dict(parse_qsl(asked.decode(), True))


@lru_cache(256)
def _headers(lines: bytes) -> dict[str, str] | None:
    """The headers that count for a read of a key; None: there are some that are not for here. Clients send the same ones again."""
    found: dict[str, str] = {}
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.lower().partition(b":")
        if name in _NOT_PLAIN and (name, value.strip()) != (b"connection", b"keep-alive"):
            return None
        if (known := _HEADERS.get(name)) is not None:
            if known in found:
                return None
            found[known] = line[len(name) + 1 :].strip().decode("latin-1")
    return found


class KeyProtocol(Connection):
    """A connection whose reads of keys are answered by `reads`."""

    reads: KeyReads

    def data_received(self, data: bytes) -> None:
        """Answers what came, or leaves it to uvicorn."""
        idle = not self._begun and (self.cycle is None or self.cycle.response_complete) and not self.flow.write_paused
        found = (
            self.reads.at_once(data, self.client, self._certificate)
            if idle and not self.transport.is_closing()
            else None
        )
        if found is None:
            super().data_received(data)
            return
        status, *rest = found
        more = [part for pair in self.server_state.default_headers for part in (pair[0], b": ", pair[1], b"\r\n")]
        self.transport.write(b"".join([status, *more, *rest]))
        self.on_response_complete()
