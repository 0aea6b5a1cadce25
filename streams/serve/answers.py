"""Answers of served stores, and what becomes an answer whatever happens: rows, errors, methods that there are not."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from state.errors import KafkaClientError, StreamsError
from state.secrets import mask
from streams.errors import ConfigError, CursorExpiredError, NotUpToBoundError, QueryError, StoreNotReadyError
from streams.serdes.json_shown import shown_json
from streams.serve.http.security import RefusedError
from streams.serve.reading import Answer
from streams.serve.requests import COMMIT, POSITION, answer_headers, rows_text, tasks_json
from streams.serve.routing import PassedOnError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

Endpoint = Callable[[Request], Awaitable[Response]]

log = logging.getLogger(__name__)

_STATUS = {
    QueryError: 400,
    ConfigError: 400,
    NotUpToBoundError: 409,
    CursorExpiredError: 410,
    StoreNotReadyError: 503,
    KafkaClientError: 503,
}
STATUS_OF = {kind.__name__: status for kind, status in _STATUS.items()}


class AnsweredRoute(Route):
    """A route whose endpoint answers whatever happens (`Api._open`), and which says in JSON which methods it has."""

    def __init__(self, path: str, endpoint: Endpoint, methods: Collection[str] | None = None) -> None:
        super().__init__(path, endpoint, methods=methods)

        async def answered(scope: Scope, receive: Receive, send: Send) -> None:
            response = await endpoint(Request(scope, receive, send))
            await response(scope, receive, send)

        # Without Starlette's handlers of exceptions, which none reaches.
        self.app = answered

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        methods = self.methods or set()
        if scope["method"] in methods:
            await self.app(scope, receive, send)
            return
        allowed = ", ".join(sorted(methods))
        answer = refused(405, "Refused", f"the method is {allowed}, not {scope['method']}", headers={"Allow": allowed})
        await answer(scope, receive, send)


def json_answer(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Data that is not of a store."""
    return Response(shown_json(data) + b"\n", status, headers, "application/json")


def rows_answer(rows: Iterable[bytes], answer: Answer, **more: Any) -> Response:
    """Rows that are text already, and the commits that they belong to."""
    return StoreAnswer(rows_text(rows, {**more, "tasks": tasks_json(answer)}) + b"\n", answer)


class StoreAnswer(Response):
    """What comes from commits."""

    def __init__(self, data: bytes, answer: Answer, status: int = 200, kind: bytes = b"application/json") -> None:
        self.status_code, self.background = status, None
        self.body = data
        length = b"content-length", b"%d" % len(self.body)
        self.raw_headers = [*answer_headers(answer), length, (b"content-type", kind)]


def refused(status: int, name: str, text: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    """An error: its status, its name, and what to say."""
    return json_answer({"error": name, "message": mask(text), **more}, status, headers)


def refusal(error: Exception, route: str) -> tuple[Response, str]:
    """What a caller hears of an error, and the reason for the metrics."""
    if isinstance(error, ClientDisconnect):
        return refused(400, "Refused", "the request did not come completely"), "gone"
    if isinstance(error, RefusedError):
        return refused(error.status, "Refused", str(error), headers=error.headers), str(error.status)
    if isinstance(error, PassedOnError):
        return error.response, str(error.response.status_code)
    if isinstance(error, StreamsError):
        return error_answer(error), type(error).__name__
    # A fault of this server, whatever was asked: the caller hears that, and the log has the rest.
    log.error("a request of the kind %s could not be answered", route, exc_info=error)
    return refused(500, "InternalError", "internal error: see the log of this server"), type(error).__name__


def error_answer(error: StreamsError) -> Response:
    """An error of this project, whose text is for the caller, too."""
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    headers = {"Retry-After": "1"} if status == 503 else {}
    if isinstance(error, NotUpToBoundError):
        headers = {POSITION: error.position, COMMIT: error.commits}
    return refused(status, type(error).__name__, str(error), headers)
