"""`KeyReads`: answers reads of one key in front of the routes, without Starlette's requests, routes and responses.

Those cost three times what the read itself does. Only what can be answered at once is answered here: the copy is in this process
and new enough, and the caller may read. Everything else, whatever the reason, goes to the routes, which also say what is wrong.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl

import orjson

from state.errors import StreamsError
from streams.serve.requests import (
    COMMIT,
    NOTHING,
    POSITION,
    Limits,
    Parameters,
    answer_headers,
    key_answer,
    key_bytes,
)
from streams.serve.security import CALLER, Guard, RefusedError, Scope, address_of
from streams.serve.served import Served

if TYPE_CHECKING:
    from starlette.routing import Router as Routes
    from starlette.types import Receive, Send
    from starlette.types import Scope as Connection

_KEY = re.compile(r"/v1/stores/([^/]+)/keys/(.*)", re.DOTALL)
_PARAMETERS = frozenset({"wait", "position", "commits"})
"""The parameters that say nothing but how new the answer has to be."""
_HEADERS = {name.lower().encode(): name for name in ("Host", "Authorization", POSITION, COMMIT)}
_JSON = (b"content-type", b"application/json")
_Answer = tuple[int, list[tuple[bytes, bytes]], bytes]
"""Status, headers and body."""


class Finished(Protocol):
    """Counts a request, and writes its audit line."""

    def __call__(self, route: str, connection: Connection, status: int, begun_s: float, reason: str = "") -> None: ...


class KeyReads:
    """See the module: an ASGI application.

    Args:
        served: The stores.
        guard: Who may ask.
        limits: What a request may cost.
        finished: Called after each request that was answered here.
        routes: Answer everything else.

    Attributes:
        routes: As given.
    """

    def __init__(self, served: Served, guard: Guard, limits: Limits, finished: Finished, routes: Routes) -> None:
        self._served, self._guard, self._limits = served, guard, limits
        self._finished, self.routes = finished, routes

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] == "http" and scope["method"] == "GET" and (asked := _KEY.fullmatch(scope["path"])):
            begun_s = time.perf_counter()
            found = self._answer(scope, *asked.groups())
            if found is not None:
                status, headers, body = found
                await send({"type": "http.response.start", "status": status, "headers": headers})
                await send({"type": "http.response.body", "body": body})
                self._finished("key", scope, status, begun_s)
                return
        await self.routes(scope, receive, send)

    def _answer(self, scope: Connection, name: str, text: str) -> _Answer | None:
        """The answer; None: the routes have it."""
        store = self._served.stores.get(name)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), True)) if scope["query_string"] else {}
        if store is None or not query.keys() <= _PARAMETERS:
            return None
        headers = {_HEADERS[one]: value.decode("latin-1") for one, value in scope["headers"] if one in _HEADERS}
        try:
            scope[CALLER] = self._guard.admitted(
                Scope.READ, headers.get("Host", ""), headers.get("Authorization"), address_of(scope)
            )
            tasks = {key: store.task_of(key) for key in key_bytes(store, text)}
            bound = Parameters(query, headers, self._limits).bound()
            if bound is not NOTHING and self._served.wanting(store, set(tasks.values()), bound):
                return None
            answer = store.look_up(tasks, decode=store.reader.shown)
        except (RefusedError, StreamsError):
            return None
        status, data = key_answer(store, text, answer)
        body = orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE)
        said = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer_headers(answer).items()]
        return status, [(b"content-length", b"%d" % len(body)), _JSON, *said], body
