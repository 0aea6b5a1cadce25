"""Answers of served stores: rows and errors. Every request gets an answer, also one that fails."""

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
    """A route whose endpoint answers every request, whatever happens (`Api._open`), and which lists its methods in JSON."""

    def __init__(self, path: str, endpoint: Endpoint, methods: Collection[str] | None = None) -> None:
        super().__init__(path, endpoint, methods=methods)

        async def answered(scope: Scope, receive: Receive, send: Send) -> None:
            response = await endpoint(Request(scope, receive, send))
            await response(scope, receive, send)

        # Without Starlette's exception handlers, because no exception reaches them.
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
    """An answer in JSON with data that does not come from a store."""
    return Response(shown_json(data) + b"\n", status, headers, "application/json")


def rows_answer(rows: Iterable[bytes], answer: Answer, **more: Any) -> Response:
    """An answer with rows that are text already, and with the commits that they come from."""
    return StoreAnswer(rows_text(rows, {**more, "tasks": tasks_json(answer)}) + b"\n", answer)


class StoreAnswer(Response):
    """An answer with data of a store; its headers name the commits that the data comes from."""

    def __init__(self, data: bytes, answer: Answer, status: int = 200, kind: bytes = b"application/json") -> None:
        self.status_code, self.background = status, None
        self.body = data
        length = b"content-length", b"%d" % len(self.body)
        self.raw_headers = [*answer_headers(answer), length, (b"content-type", kind)]


def refused(status: int, name: str, text: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    """The answer for an error: its status, its name and its message."""
    return json_answer({"error": name, "message": mask(text), **more}, status, headers)


def refusal(error: Exception, route: str) -> tuple[Response, str]:
    """The answer that a caller gets for an error, and the reason that the metrics count."""
    if isinstance(error, ClientDisconnect):
        return refused(400, "Refused", "the request did not come completely"), "gone"
    if isinstance(error, RefusedError):
        return refused(error.status, "Refused", str(error), headers=error.headers), str(error.status)
    if isinstance(error, PassedOnError):
        return error.response, str(error.response.status_code)
    if isinstance(error, StreamsError):
        return error_answer(error), type(error).__name__
    # A fault of this server, not of the request: the caller gets only that, and the log has the rest.
    log.error("a request of the kind %s could not be answered", route, exc_info=error)
    return refused(500, "InternalError", "internal error: see the log of this server"), type(error).__name__


def error_answer(error: StreamsError) -> Response:
    """The answer for an error of this project. Its text is shown to the caller."""
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    headers = {"Retry-After": "1"} if status == 503 else {}
    if isinstance(error, NotUpToBoundError):
        headers = {POSITION: error.position, COMMIT: error.commits}
    return refused(status, type(error).__name__, str(error), headers)
