"""The HTTP interface of served stores, as an ASGI application (Starlette).

A point read is answered in the event loop, because it takes microseconds; scans and whatever asks Kafka run in threads. A request
that waits for a position holds no thread: the copies wake it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from state.errors import KafkaClientError, StreamsError
from state.restore.restorer import ChangelogSource
from state.secrets import mask
from streams.errors import (
    ConfigError,
    CursorExpiredError,
    NotUpToBoundError,
    QueryError,
    SerdeError,
    StoreNotReadyError,
)
from streams.metrics.serving import CopyFigures, ServingMetrics
from streams.serve.changes import Changes
from streams.serve.events import events
from streams.serve.openapi import openapi
from streams.serve.reading import ReadStore
from streams.serve.requests import (
    COMMIT,
    POSITION,
    Limits,
    Parameters,
    answer_headers,
    key_bytes,
    page_json,
    row_json,
    tasks_json,
)
from streams.serve.security import Caller, Guard, RefusedError, Scope, check_allowed, is_loopback, note
from streams.serve.served import Bound, Consistency, Served, Wanting
from streams.serve.topics import Topics, Write

Endpoint = Callable[[Request], Awaitable[Response]]

_STATUS = {
    QueryError: 400,
    ConfigError: 400,
    NotUpToBoundError: 409,
    CursorExpiredError: 410,
    StoreNotReadyError: 503,
    KafkaClientError: 503,
}


class Api:
    """The endpoints.

    Args:
        served: The stores.
        guard: Recognises callers.
        limits: What a request may cost.
        alive: Says why the process cannot continue; empty: it can.
        source: Makes a reader of changelogs for one client; None: changes are not served.
        write: Writes a record to a topic, and gives its partition and offset; None: nothing can be written.
    """

    def __init__(
        self,
        served: Served,
        guard: Guard,
        limits: Limits | None = None,
        alive: Callable[[], str] = lambda: "",
        source: Callable[[], AbstractContextManager[ChangelogSource]] | None = None,
        write: Write | None = None,
    ) -> None:
        self._served = served
        self._guard = guard
        self._limits = limits or Limits()
        self._alive = alive
        self._source = source
        self._sink = None if write is None else Topics(served, write)
        self.metrics = ServingMetrics(served.application_id, self._figures)

    def application(self) -> Starlette:
        """The ASGI application."""
        stores = "/v1/stores/{store}"
        return Starlette(
            routes=[
                Route("/v1/health", self._open("health", self._health)),
                Route("/openapi.json", self._open("openapi", self._openapi)),
                Route("/metrics", self._guarded("metrics", Scope.READ, self._metrics)),
                Route("/v1/metadata", self._guarded("metadata", Scope.READ, self._metadata)),
                Route(f"{stores}/keys:batch", self._guarded("batch", Scope.READ, self._batch), methods=["POST"]),
                Route(f"{stores}/keys/{{key:path}}", self._guarded("key", Scope.READ, self._key)),
                Route(f"{stores}/range", self._guarded("range", Scope.READ, self._range)),
                Route(f"{stores}/windows", self._guarded("windows", Scope.READ, self._windows)),
                Route(f"{stores}/changes", self._guarded("changes", Scope.READ, self._changes)),
                Route("/v1/topics/{topic}", self._guarded("topic", Scope.WRITE, self._write), methods=["POST"]),
            ]
        )

    # --- What every request goes through

    def _guarded(self, route: str, scope: Scope, endpoint: Endpoint) -> Endpoint:
        async def allowed(request: Request) -> Response:
            address = request.client.host if request.client else "?"
            _check_host(request, address)
            caller = self._guard.caller(request.headers.get("authorization"), address)
            request.state.caller = caller
            check_allowed(caller, scope)
            return await endpoint(request)

        return self._open(route, allowed)

    def _open(self, route: str, endpoint: Endpoint) -> Endpoint:
        async def answered(request: Request) -> Response:
            begun = time.perf_counter()
            reason = ""
            try:
                response = await endpoint(request)
                if response.status_code == 404:
                    reason = "404"
            except RefusedError as refused:
                reason = str(refused.status)
                response = _said(refused.status, "Refused", str(refused), headers=refused.headers)
            except StreamsError as error:
                reason = type(error).__name__
                response = _error(error)
            seconds = time.perf_counter() - begun
            if reason:
                self.metrics.refused(route, reason)
            else:
                self.metrics.answered(route, seconds)
            caller: Caller | None = getattr(request.state, "caller", None)
            name = caller.name if caller else request.client.host if request.client else "?"
            note(name, request.method, request.url.path, response.status_code, seconds)
            return response

        return answered

    async def _ready(self, store: ReadStore, tasks: Collection[int], given: Parameters) -> None:
        """Waits until the copies are new enough for a request.

        Raises:
            NotUpToBoundError: They are not in time.
        """
        bound = given.bound()
        if bound == _NOTHING or bound.consistency is Consistency.ANY:
            return
        asks = bound.consistency is Consistency.LATEST or bound.max_age_ms is not None
        if asks:
            wanting = await run_in_threadpool(self._served.wanting, store, tasks, bound)
        else:
            wanting = self._served.wanting(store, tasks, bound)
        if wanting and not await until(wanting, given.wait_s()):
            raise self._served.not_up_to(store, tasks, bound)

    # --- Endpoints

    async def _health(self, request: Request) -> Response:
        why = self._alive()
        copies = [copy for store in self._served.stores.values() for copy in store.here()]
        waiting = sorted({copy.what for copy in copies if not copy.ready})
        healthy = not why and bool(copies) and not waiting
        state = {"status": "ok" if healthy else "not ready", "copies": len(set(copies)), "waiting": waiting, "why": why}
        return _json(state, 200 if healthy else 503)

    async def _openapi(self, request: Request) -> Response:
        return _json(openapi(self._served))

    async def _metrics(self, request: Request) -> Response:
        body, kind = self.metrics.text()
        return Response(body, media_type=kind)

    async def _metadata(self, request: Request) -> Response:
        return _json(self._served.metadata())

    async def _key(self, request: Request) -> Response:
        store, given = self._asked(request)
        keys = key_bytes(store, request.path_params["key"])
        as_of = given.time("as_of")
        await self._ready(store, {store.task_of(key) for key in keys}, given)
        answer = store.get(keys, as_of)
        headers = answer_headers(answer)
        if not answer.rows:
            text = f"{store.name!r} has no row of key {request.path_params['key']!r}"
            return _said(404, "NoRow", text, tasks=tasks_json(answer), headers=headers)
        return _json({**row_json(answer.rows[0]), "tasks": tasks_json(answer)}, headers=headers)

    async def _batch(self, request: Request) -> Response:
        store, given = self._asked(request)
        body = await self._body(request)
        keys = body.get("keys") if isinstance(body, dict) else None
        if not isinstance(keys, list) or not 0 < len(keys) <= self._limits.most_rows:
            raise QueryError(f'the body is {{"keys": [...]}} with 1 to {self._limits.most_rows} keys')
        found = [_key_of(store, key) for key in keys]
        await self._ready(store, {store.task_of(key) for key in found}, given)
        answer = await run_in_threadpool(store.get_all, found)
        rows = [row_json(row) for row in answer.rows]
        return _json({"rows": rows, "tasks": tasks_json(answer)}, headers=answer_headers(answer))

    async def _range(self, request: Request) -> Response:
        store, given = self._asked(request)
        return await self._page(store, given, given.range)

    async def _windows(self, request: Request) -> Response:
        store, given = self._asked(request)
        return await self._page(store, given, given.windows)

    async def _changes(self, request: Request) -> Response:
        store, given = self._asked(request)
        if self._source is None:
            raise RefusedError(501, "changes are not served here")
        after = request.headers.get("last-event-id") or given.text("after")
        key, prefix = given.text("key"), given.text("prefix")
        keys = None if key is None else frozenset(key_bytes(store, key))
        first = None if prefix is None else prefix.encode()

        def wanted(data: bytes) -> bool:
            return (keys is None or data in keys) and (first is None or data.startswith(first))

        initial = None
        if given.flag("initial") and not after:
            initial = given.initial(store)
            store.check(initial)
        with ExitStack() as leave:
            source = leave.enter_context(self._source())
            changes = Changes(store, self._served.application_id, source, after or None, wanted)
            follow = given.text("follow") is None or given.flag("follow")
            found = events(changes, initial, follow, leave.pop_all())
        return StreamingResponse(found, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def _write(self, request: Request) -> Response:
        given = Parameters(request.query_params, request.headers, self._limits)
        wait_s = given.wait_s() if given.text("wait") is not None else min(5.0, self._limits.wait_ms / 1000)
        body = await self._body(request)
        if self._sink is None:
            raise RefusedError(501, "nothing can be written here")
        name = given.text("await")
        store = None if name is None else self._served.store(name)
        record = self._sink.record(request.path_params["topic"], body)
        written = await run_in_threadpool(self._sink.write, record)
        if store is None:
            return _json({"record": written.as_json}, 202, {POSITION: str(written.position)})
        task, keys = self._sink.awaited(store, record, given.text("await_key"))
        bound = Bound(position=written.position)
        wanting = self._served.wanting(store, [task], bound)
        if wanting and not await until(wanting, wait_s):
            # Not an error, or a client would write the record again.
            return _json({"record": written.as_json, "processed": False}, 202, {POSITION: str(written.position)})
        answer = store.get(keys, in_task=task)
        row = row_json(answer.rows[0]) if answer.rows else None
        found = {"record": written.as_json, "processed": True, "row": row, "tasks": tasks_json(answer)}
        return _json(found, 200, answer_headers(answer))

    async def _page(self, store: ReadStore, given: Parameters, scan_of: Callable[[ReadStore], Any]) -> Response:
        scan, cursor = scan_of(store), given.text("cursor")
        if cursor is None:
            tasks: Sequence[int] = range(store.tasks) if scan.key is None else [store.task_of(scan.key)]
            await self._ready(store, tasks, given)
        answer = await run_in_threadpool(store.scan, scan, cursor)
        return _json(page_json(answer), headers=answer_headers(answer))

    def _asked(self, request: Request) -> tuple[ReadStore, Parameters]:
        """The store that a request asks for, and its parameters."""
        name = request.path_params["store"]
        if name not in self._served.stores:
            try:
                self._served.store(name)
            except QueryError as error:
                raise RefusedError(404, str(error)) from error
        return self._served.stores[name], Parameters(request.query_params, request.headers, self._limits)

    async def _body(self, request: Request) -> Any:
        """The JSON of a request's body. Its type is demanded, because a page of another site cannot send that without asking."""
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise RefusedError(415, "the body has to be application/json")
        data = b""
        async for part in request.stream():
            data += part
            if len(data) > self._limits.body_bytes:
                raise RefusedError(413, f"the body has more than {self._limits.body_bytes} bytes")
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise QueryError(f"the body is not JSON: {error}") from error

    def _figures(self) -> list[CopyFigures]:
        found = []
        for (_, task), copy in self._served.copies().items():
            place = copy.task.place
            found.append(CopyFigures(place.sub_topology, task, copy.version, copy.age_ms / 1000, bool(copy.fault)))
        return found


_NOTHING = Bound()


async def until(wanting: Sequence[Wanting], timeout_s: float) -> bool:
    """Waits until all copies have what was asked for, without a thread; False: not in time."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    deadline = loop.time() + timeout_s

    def wake() -> None:
        loop.call_soon_threadsafe(woken.set)

    for copy, _ in wanting:
        copy.listeners.append(wake)
    try:
        while True:
            woken.clear()
            if all(copy.wait(fits, 0) for copy, fits in wanting):
                return True
            try:
                await asyncio.wait_for(woken.wait(), deadline - loop.time())
            except asyncio.TimeoutError:
                return False
    finally:
        for copy, _ in wanting:
            copy.listeners.remove(wake)


def _check_host(request: Request, address: str) -> None:
    """Refuses a page of another site that has given itself an address of this host (DNS rebinding)."""
    if is_loopback(address) and "authorization" not in request.headers:
        host = (request.url.hostname or "").strip("[]")
        if not (is_loopback(host) or host == "testserver"):
            raise RefusedError(421, f"this server is not {host!r}: ask for 127.0.0.1 or localhost")


def _key_of(store: ReadStore, key: Any) -> bytes:
    """The bytes of a key from JSON; text is written as UTF-8 where keys are bytes."""
    try:
        found = store.reader.key(key)
    except SerdeError:
        found = key_bytes(store, key)[0] if isinstance(key, str) else None
    if found is None:
        raise QueryError(f"{key!r} is not a key of store {store.name!r}")
    return found


def _json(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE), status, headers, "application/json")


def _said(status: int, name: str, text: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    return _json({"error": name, "message": mask(text), **more}, status, headers)


def _error(error: StreamsError) -> Response:
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    headers = {"Retry-After": "1"} if status == 503 else {}
    if isinstance(error, NotUpToBoundError):
        headers = {POSITION: error.position, COMMIT: error.commits}
    return _said(status, type(error).__name__, str(error), headers)
