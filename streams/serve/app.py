"""The HTTP interface of served stores, as an ASGI application (Starlette).

A point read is answered in the event loop, because it takes microseconds. Scans and requests that ask Kafka run in threads. A
request that waits for a position holds no thread: the copies wake it. Routing a request costs more than reading a key, so this
module avoids work on the way: it does not use Starlette's exception handlers, and makes no objects for headers and parameters that
nothing reads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Router as Routes
from starlette.routing import compile_path

from state.restore.restorer import ChangelogSource
from streams.application.store_rows import StoredRows
from streams.errors import (
    NotUpToBoundError,
    QueryError,
    StoreNotReadyError,
)
from streams.metrics.serving import CopyFigures, ServingMetrics
from streams.serdes.json_shown import shown_json
from streams.serdes.json_text import loads
from streams.serve.answers import (
    STATUS_OF,
    AnsweredRoute,
    Endpoint,
    StoreAnswer,
    json_answer,
    refusal,
    refused,
    rows_answer,
)
from streams.serve.feed import ChangeFeed, Merged, ServerSentEvent, encoded, events, known_places
from streams.serve.http.connections import ConnectionLimits, connection_class
from streams.serve.http.security import CALLER, CERTIFICATE, Caller, Guard, RefusedError, Scope, Turns, address_of, note
from streams.serve.http.servers import register_any_text
from streams.serve.nodes import Node
from streams.serve.openapi import openapi
from streams.serve.position import Kept, Step, common_versions, newest, parse, step_text, to_json
from streams.serve.reading import Answer, Point, ReadStore
from streams.serve.requests import (
    AUTHORIZATION,
    HOST,
    NOTHING,
    POSITION,
    VERSIONS,
    Limits,
    Parameters,
    check_text,
    headers_of,
    key_answer,
    keys_bytes,
    parse_point,
    query_of,
    tasks_json,
)
from streams.serve.routing import PART, PassedOnError, Router, parse_part, passed, redirected
from streams.serve.scans import Asked, Order, Scan, order_text, parse_order
from streams.serve.served import Consistency, Freshness, Served, Wanting
from streams.serve.tables import ARROW, stream
from streams.serve.topics import Topics, Write, exactly

if TYPE_CHECKING:
    from streams.serve.sql.queries import Loaded, Query


class Api:
    """The endpoints.

    Args:
        served: The stores.
        guard: Recognises callers.
        limits: What a request may cost.
        alive: Says why the process cannot continue; empty: it can.
        source: Makes a reader of changelogs for one client; None: this server does not serve changes.
        write: Writes a record to a topic, and gives its partition and offset; None: nothing can be written.
        router: Asks the other processes for tasks that are not here; None: there are no others.
        connections: The limits of connections.
    """

    def __init__(
        self,
        served: Served,
        guard: Guard,
        limits: Limits | None = None,
        alive: Callable[[], str] = lambda: "",
        source: Callable[[], AbstractContextManager[ChangelogSource]] | None = None,
        write: Write | None = None,
        router: Router | None = None,
        connections: ConnectionLimits | None = None,
    ) -> None:
        self._asks = router
        self._connections = connections
        self._served = served
        self._guard = guard
        self._limits = limits or Limits()
        self._alive = alive
        self._source = source
        self._following = 0
        self._readers = CapacityLimiter(_READERS)
        self._queries = Turns(_QUERIES, "queries in SQL")
        # Separate turns for requests of other processes: these already hold a turn there, and two processes must not wait for each
        # other.
        self._parts = Turns(_PARTS, "queries in SQL of other processes")
        self._sink = None if write is None else Topics(served, write)
        self.metrics = ServingMetrics(served.application_id, self._figures)

    @property
    def options(self) -> Mapping[str, Any]:
        """Settings of uvicorn for this application: the limits of connections, and the answers that need no asyncio task."""
        return {"http": connection_class(self._connections, self._at_once)}

    def application(self) -> Routes:
        """The ASGI application. It has none of Starlette's middleware, since every error becomes an answer here or in uvicorn."""
        return Routes(
            routes=[
                AnsweredRoute(f"{_STORES}/keys/{{key:any_text}}", self._guarded("key", Scope.READ, self._key)),
                AnsweredRoute(
                    f"{_STORES}/keys:batch", self._guarded("batch", Scope.READ, self._batch), methods=["POST"]
                ),
                AnsweredRoute(f"{_STORES}/range", self._guarded("range", Scope.READ, self._range)),
                AnsweredRoute(f"{_STORES}/windows", self._guarded("windows", Scope.READ, self._windows)),
                AnsweredRoute(f"{_STORES}/changes", self._guarded("changes", Scope.READ, self._changes)),
                AnsweredRoute("/v1/topics/{topic}", self._guarded("topic", Scope.WRITE, self._write), methods=["POST"]),
                AnsweredRoute("/v1/sql", self._guarded("sql", Scope.READ, self._sql), methods=["POST"]),
                AnsweredRoute("/v1/metadata", self._guarded("metadata", Scope.READ, self._metadata)),
                AnsweredRoute("/v1/metadata/{store}", self._guarded("metadata", Scope.READ, self._owners)),
                AnsweredRoute("/v1/health", self._named("health", self._health)),
                AnsweredRoute("/openapi.json", self._guarded("openapi", Scope.READ, self._openapi)),
                AnsweredRoute("/metrics", self._guarded("metrics", Scope.READ, self._metrics)),
            ],
            redirect_slashes=False,
            default=AnsweredRoute("/", self._named("unknown", self._nothing)).app,
        )

    # --- What every request goes through

    def _guarded(self, route: str, scope: Scope, endpoint: Endpoint) -> Endpoint:
        async def allowed(request: Request) -> Response:
            self._admit(scope, request.scope)
            return await endpoint(request)

        return self._open(route, allowed)

    def _admit(self, scope: Scope, connection: MutableMapping[str, Any]) -> None:
        """Recognises the caller, once for each request.

        Raises:
            RefusedError: The caller may not do this.
        """
        if CALLER not in connection:
            headers, address = headers_of(connection), address_of(connection)
            connection[CALLER] = self._guard.admitted(
                scope, headers.get(HOST, ""), headers.get(AUTHORIZATION), address, connection.get(CERTIFICATE)
            )

    def _named(self, route: str, endpoint: Endpoint) -> Endpoint:
        async def asked_for(request: Request) -> Response:
            self._guard.check_name(headers_of(request.scope).get(HOST, ""), address_of(request.scope))
            return await endpoint(request)

        return self._open(route, asked_for)

    def _open(self, route: str, endpoint: Endpoint) -> Endpoint:
        async def answered(request: Request) -> Response:
            begun_s = time.perf_counter()
            reason = ""
            try:
                response = await endpoint(request)
            except Exception as error:
                response, reason = refusal(error, route)
            self._finished(route, request.scope, response.status_code, begun_s, reason)
            return response

        return answered

    def _finished(
        self, route: str, connection: Mapping[str, Any], status: int, begun_s: float, reason: str = ""
    ) -> None:
        seconds = time.perf_counter() - begun_s
        if reason or status == 404:
            self.metrics.refused(route, reason or "404")
        else:
            self.metrics.answered(route, seconds)
        caller: Caller | None = connection.get(CALLER)
        name = address_of(connection) if caller is None else caller.name
        note(name, connection["method"], connection["path"], status, seconds)

    def _at_once(self, connection: MutableMapping[str, Any]) -> Response | None:
        """Answers a read of a key without an asyncio task, if it needs no waiting; None: the routes answer the request.

        Making a task for a request, and switching to it, takes as long as such a read.
        """
        named = _KEYS.fullmatch(connection["path"]) if connection["method"] == "GET" else None
        if named is None:
            return None
        begun_s = time.perf_counter()
        reason = ""
        try:
            self._admit(Scope.READ, connection)
            response = self._key_now(self._key_asked(connection, *named.groups()))
        except Exception as error:
            response, reason = refusal(error, "key")
        if response is not None:
            self._finished("key", connection, response.status_code, begun_s, reason)
        return response

    async def _nothing(self, request: Request) -> Response:
        return refused(404, "NoSuchAddress", "there is nothing at this address: /openapi.json describes what there is")

    def _is_ready(self, store: ReadStore, tasks: Collection[int], given: Parameters) -> bool:
        """Whether the copies are new enough for a request, as far as this process can know without asking Kafka."""
        bound = given.bound()
        if bound is NOTHING or bound.consistency is Consistency.ANY:
            return True
        return not (bound.asks or self._served.wanting(store, tasks, bound))

    async def _ready(self, store: ReadStore, tasks: Collection[int], given: Parameters) -> None:
        """Waits until the copies are new enough for a request.

        Raises:
            NotUpToBoundError: They are not new enough in time.
        """
        if self._is_ready(store, tasks, given):
            return
        bound = given.bound()
        wanting = await run_in_threadpool(self._served.wanting, store, tasks, bound)
        if wanting and not await until(wanting, given.wait_s()):
            raise self._served.not_up_to(store, tasks, bound)

    # --- Endpoints

    async def _health(self, request: Request) -> Response:
        why = self._alive()
        copies = [copy for store in self._served.stores.values() for copy in store.here()]
        waiting = sorted({copy.what for copy in copies if not copy.ready})
        # A process without tasks, because there are more processes than tasks, asks the others.
        others = self._asks is not None and bool(self._asks.nodes.others())
        healthy = not why and (bool(copies) or others) and not waiting
        state = {"status": "ok" if healthy else "not ready", "copies": len(set(copies)), "waiting": waiting, "why": why}
        return json_answer(state, 200 if healthy else 503)

    async def _openapi(self, request: Request) -> Response:
        return json_answer(openapi(self._served, () if self._sink is None else self._sink.names))

    async def _metrics(self, request: Request) -> Response:
        body, kind = self.metrics.text()
        return Response(body, media_type=kind)

    async def _metadata(self, request: Request) -> Response:
        found = self._served.metadata()
        if self._asks is not None:
            nodes = self._asks.nodes
            found |= {"node": nodes.id, "nodes": [asdict(node) for node in nodes.others()], "trouble": nodes.trouble}
        return json_answer(found)

    async def _owners(self, request: Request) -> Response:
        store, given = self._asked(request.scope, **request.path_params)
        key = given.text("key")
        tasks = range(store.tasks) if key is None else store.tasks_with(given.key_bytes(store, key))
        return json_answer({"store": store.name, "tasks": [self._owner(store, task) for task in tasks]})

    def _owner(self, store: ReadStore, task: int) -> dict[str, Any]:
        """Which processes have a task: whether this one can read it, and the others with their commits."""
        copy = store.find(task)
        others = [] if self._asks is None else self._router.nodes.with_task(store.sub, task, store.tasks)
        nodes = [{"url": node.url, "commit": node.commit(store.sub, task, store.tasks)} for node in others]
        return {"task": task, "here": copy is not None and copy.ready, "nodes": nodes}

    def _key_asked(self, connection: MutableMapping[str, Any], store: str, key: str) -> _KeyRead:
        of, given = self._asked(connection, store)
        data = given.key_bytes(of, key)
        part = parse_part(given.text(PART), of)
        tasks = of.tasks_with(data) if part is None else part
        return _KeyRead(of, given, data, key, tasks, part is not None or self._is_here(of, tasks))

    def _key_now(self, asked: _KeyRead) -> Response | None:
        """Answers a read of a key at once; None: the answer has to be waited for, or comes from another process."""
        if not asked.is_here or not self._is_ready(asked.store, asked.tasks, asked.given):
            return None
        return asked.answer(asked.tasks)

    async def _key(self, request: Request) -> Response:
        asked = self._key_asked(request.scope, **request.path_params)
        return self._key_now(asked) or await self._key_later(asked, request)

    async def _key_later(self, asked: _KeyRead, request: Request) -> Response:
        store, given, tasks = asked.store, asked.given, asked.tasks

        async def ask(node: Node | None, some: Collection[int]) -> Response:
            if node is not None:
                return passed(node, await self._router.ask(node, request, some, given.wait_s()))
            await self._ready(store, some, given)
            return asked.answer(some)

        if asked.is_here:
            return await ask(None, tasks)
        if (elsewhere := self._redirected(store, tasks, request, given)) is not None:
            return elsewhere
        # If a key may be in any task, the answer with a row counts.
        return min(await self._router.gather(store, tasks, ask), key=lambda answer: answer.status_code)

    async def _batch(self, request: Request) -> Response:
        store, given = self._asked(request.scope, **request.path_params)
        keys = self._keys_of(body := await self._body(request))
        found = keys_bytes(store, keys)
        by_task = store.by_task(found)
        part = parse_part(given.text(PART), store)
        if part is not None and (at := given.text(_AT)) is not None:
            return await self._kept(store, part, given, at)
        versions = given.versions()
        if part is None and given.of_one_step:
            versions = await self._versions(store, by_task, request, given, shown_json(body))
        is_here = part is not None or self._is_here(store, by_task)
        as_arrow = part is None and wants_arrow(request)
        as_stored = as_arrow and is_here

        async def here(tasks: Mapping[int, Sequence[int]]) -> tuple[list[bytes | None], tuple[Point, ...]]:
            """The row of each key that these tasks may have."""
            if not versions:
                await self._ready(store, tasks, given)
            read = partial(_batch_here, store, found, versions, self._limits.batch_bytes, tasks, as_stored)
            # A thread costs more than a few rows.
            return read() if len(found) <= _FEW else await self._read(read)

        async def ask(node: Node | None, some: Collection[int]) -> _Rows:
            places = sorted(place for task in some for place in by_task[task])
            if node is None:
                rows, points = await here({task: by_task[task] for task in some})
                return [(place, rows[place]) for place in places], points
            asked = shown_json({"keys": [keys[place] for place in places]})
            answer = await self._part_of(node, request, some, given, asked, versions)
            each = [None if row is None else shown_json(row) for row in answer["rows"]]
            return list(zip(places, each, strict=True)), tuple(map(parse_point, answer["tasks"]))

        if is_here:
            rows, points = await here(by_task)
        elif (elsewhere := self._redirected(store, by_task, request, given)) is not None:
            return elsewhere
        else:
            rows, points = _joined(await self._router.gather(store, by_task, ask), len(found))
        summary = Answer((), points)
        if as_arrow:
            stored = store.stored(found, rows) if as_stored else [row for row in rows if row is not None]
            return await run_in_threadpool(_arrow, store, stored, summary)
        there = [row or b"null" for row in rows] if part is not None else [row for row in rows if row is not None]
        return rows_answer(there, summary)

    def _keys_of(self, body: object) -> list[Any]:
        keys = body.get("keys") if isinstance(body, dict) else None
        if not isinstance(keys, list) or not 0 < len(keys) <= self._limits.most_rows:
            raise QueryError(f'the body is {{"keys": [...]}} with 1 to {self._limits.most_rows} keys')
        return keys

    async def _read(self, read: Callable[[], _T]) -> _T:
        """Reads many rows in a thread, one of a few: Python runs one at a time, and switching between many is expensive."""
        return await to_thread.run_sync(read, limiter=self._readers)

    async def _range(self, request: Request) -> Response:
        store, given = self._asked(request.scope, **request.path_params)
        return await self._page(store, given, given.range(store), request)

    async def _windows(self, request: Request) -> Response:
        store, given = self._asked(request.scope, **request.path_params)
        return await self._page(store, given, given.windows(store), request)

    async def _page(self, store: ReadStore, given: Parameters, scan: Scan, request: Request) -> Response:
        asked = replace(store.asked(scan, given.text("cursor")), most_bytes=self._limits.page_bytes)
        tasks = store.tasks_of(asked.scan)
        part = parse_part(given.text(PART), store)
        if part is not None and (at := given.text(_AT)) is not None:
            return await self._kept(store, part, given, at)
        if not asked.versions:
            asked = replace(asked, versions=given.versions())
            if part is None and given.of_one_step:
                asked = replace(asked, versions=await self._versions(store, tasks, request, given))

        async def ask(node: Node | None, some: Collection[int]) -> _Page:
            if node is None:
                await self._ready_for(asked, store, some, given)
                return await run_in_threadpool(_part_here, store, asked, some)
            answer = await self._part_of(node, request, some, given, versions=asked.versions)
            rows = [(parse_order(order), shown_json(row)) for order, row in answer["rows"]]
            return rows, tuple(map(parse_point, answer["tasks"])), answer.get("cut", False)

        if part is not None:
            rows, points, cut = await ask(None, part)
            ordered = [b"[%b,%b]" % (shown_json(order_text(order)), row) for order, row in rows]
            return rows_answer(ordered, Answer((), points), cut=cut)
        if self._is_here(store, tasks):
            await self._ready_for(asked, store, tasks, given)
            return await self._read(partial(_page_here, store, asked, wants_arrow(request)))
        if (elsewhere := self._redirected(store, tasks, request, given)) is not None:
            return elsewhere
        answers = await self._router.gather(store, tasks, ask)
        summary = Answer((), tuple(point for _, points, _ in answers for point in points))
        commits = {point.task: point.commit for point in summary.points}
        places = [place for place, (_, _, cut) in enumerate(answers) if cut]
        page, cursor = asked.page([rows for rows, _, _ in answers], commits, places)
        return await run_in_threadpool(_page_of, store, page, summary, cursor, wants_arrow(request))

    async def _sql(self, request: Request) -> Response:
        if find_spec("duckdb") is None:
            raise RefusedError(
                501, "SQL needs DuckDB, which is not installed here: pip install 'streams-on-spark[sql]'"
            )
        from streams.serve.sql.queries import Query

        given = self._given(request.scope)
        body = await self._body(request)
        text = body.get("sql") if isinstance(body, dict) else None
        if not isinstance(text, str):
            raise QueryError('the body is {"sql": "SELECT ..."}')
        if (name := given.text(_LOADED)) is not None:
            store = self._served.store(name)
            part = parse_part(given.text(PART), store) or []
            async with self._parts:
                query = await run_in_threadpool(Query, text, self._served.stores)
                return json_answer((await self._loaded_here(query, store, part, given)).as_json)
        # Before the rows are loaded, so that a query that waits for its turn holds none.
        async with self._queries:
            query = await run_in_threadpool(Query, text, self._served.stores)
            loaded = {store.name: await self._loaded(query, store, request, given, body) for store in query.stores}
            result = await run_in_threadpool(query.run, loaded, self._limits.sql)
        summary = Answer((), result.points)
        found = {"columns": result.columns, "rows": result.rows, "loaded": result.loaded, "tasks": tasks_json(summary)}
        return StoreAnswer(shown_json(found) + b"\n", summary)

    async def _loaded(
        self, query: Query, store: ReadStore, request: Request, given: Parameters, body: Any
    ) -> list[Loaded]:
        """The rows of a store that a query reads, gathered from all processes that have them."""
        from streams.serve.sql.queries import Loaded

        tasks = query.tasks(store)
        if self._is_here(store, tasks):
            return [await self._loaded_here(query, store, tasks, given)]

        async def ask(node: Node | None, some: Collection[int]) -> Loaded:
            if node is None:
                return await self._loaded_here(query, store, some, given)
            more = {_LOADED: store.name}
            return Loaded.of_json(await self._part_of(node, request, some, given, shown_json(body), more=more))

        return await self._router.gather(store, tasks, ask)

    async def _loaded_here(self, query: Query, store: ReadStore, tasks: Collection[int], given: Parameters) -> Loaded:
        await self._ready(store, tasks, given)
        return await run_in_threadpool(query.rows, store, tasks, self._limits.sql)

    async def _ready_for(self, asked: Asked, store: ReadStore, tasks: Collection[int], given: Parameters) -> None:
        if not asked.versions:
            await self._ready(store, tasks, given)

    def _is_here(self, store: ReadStore, tasks: Iterable[int]) -> bool:
        """Whether this process answers for all of these tasks: it has their copies, or it is the only process."""
        if self._asks is None or not store.sub:
            return True
        copies = [store.find(task) for task in tasks]
        return all(copy is not None and copy.ready for copy in copies)

    @property
    def _router(self) -> Router:
        """The router, where there is one: a task that is not here can only be missing if there are other processes."""
        assert self._asks is not None
        return self._asks

    def _redirected(
        self, store: ReadStore, tasks: Collection[int], request: Request, given: Parameters
    ) -> Response | None:
        """Redirects a client who asked for it to the one process that has all the tasks."""
        if given.flag("redirect"):
            groups = self._router.groups(store, tasks)
            if len(groups) == 1 and (node := groups[0][0]) is not None:
                return redirected(node, request)
        return None

    async def _versions(
        self,
        store: ReadStore,
        tasks: Collection[int],
        request: Request,
        given: Parameters,
        body: bytes | None = None,
    ) -> dict[int, int]:
        """Task -> its commit as of the newest micro-batch that all copies hold.

        Raises:
            QueryError: The tasks do not run in micro-batches.
            NotUpToBoundError: The copies hold no micro-batch in common.
        """
        deadline = time.monotonic() + given.wait_s()
        while (found := common_versions(*await self._all_kept(store, tasks, request, given, body))) is None:
            # A copy may have followed several commits at once.
            if time.monotonic() >= deadline:
                raise NotUpToBoundError(
                    f"the copies of {store.name!r} hold no micro-batch in common now: ask again, or allow time (wait=)"
                )
            await asyncio.sleep(_LOOK_AGAIN_S)
        return found

    async def _all_kept(
        self, store: ReadStore, tasks: Collection[int], request: Request, given: Parameters, body: bytes | None
    ) -> tuple[Mapping[int, Sequence[Kept]], Step]:
        """For each task, the commits that its copy holds after it followed all that is committed; and the newest micro-batch."""
        told = [] if self._asks is None else [self._asks.nodes.newest_step(store.sub)]
        at = newest([self._served.newest_step(store), *told])

        async def ask(node: Node | None, some: Collection[int]) -> Mapping[int, Sequence[Kept]]:
            if node is None:
                await self._follow(store, some, given)
                return self._served.kept(store, some)
            answer = await self._router.ask(node, request, some, _FOLLOW_S, body, {_AT: step_text(at)})
            if answer.status_code != 200:
                raise PassedOnError(passed(node, answer))
            return parse(loads(answer.content))

        if self._is_here(store, tasks):
            return await ask(None, tasks), at
        parts = await self._router.gather(store, tasks, ask)
        return {task: one for part in parts for task, one in part.items()}, at

    async def _kept(self, store: ReadStore, tasks: Collection[int], given: Parameters, at: str) -> Response:
        """Answers another process that chooses a micro-batch: the commits here, after following all that is committed now."""
        await self._follow(store, tasks, given)
        return json_answer(to_json(self._served.kept(store, tasks)))

    async def _follow(self, store: ReadStore, tasks: Collection[int], given: Parameters) -> None:
        """Waits until the copies have everything that was committed when this is called."""
        bound = Freshness(Consistency.LATEST)
        wanting = await run_in_threadpool(self._served.wanting, store, tasks, bound)
        if wanting and not await until(wanting, max(_FOLLOW_S, given.wait_s())):
            raise self._served.not_up_to(store, tasks, bound)

    async def _part_of(
        self,
        node: Node,
        request: Request,
        tasks: Collection[int],
        given: Parameters,
        body: bytes | None = None,
        versions: Mapping[int, int] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Any:
        """The rows of some tasks from another process."""
        if versions:
            more = {VERSIONS: ",".join(f"{task}={version}" for task, version in versions.items())}
        answer = await self._router.ask(node, request, tasks, given.wait_s(), body, more)
        if answer.status_code != 200:
            raise PassedOnError(passed(node, answer))
        return loads(answer.content)

    async def _changes(self, request: Request) -> Response:
        store, given = self._asked(request.scope, **request.path_params)
        source = self._changes_source()
        part = parse_part(given.text(PART), store)
        tasks = range(store.tasks) if part is None else part
        after = request.headers.get("last-event-id") or given.text("after")
        key, first = given.key(store), given.prefix(store)

        def wanted(data: bytes) -> bool:
            return (key is None or data == key) and (first is None or data.startswith(first))

        initial = given.initial(store) if given.flag("initial") and not after else None
        if initial is not None:
            store.check(initial)
        follow = given.text("follow") is None or given.flag("follow")

        def begun(tasks: Collection[int], after: str | None) -> AsyncIterator[ServerSentEvent]:
            with ExitStack() as leave:
                kafka = leave.enter_context(source())
                changes = ChangeFeed(store, self._served.application_id, kafka, after, wanted, tasks)
                return events(changes, None if after else initial, follow, leave.pop_all())

        async def here(tasks: Collection[int], after: str | None) -> AsyncIterator[ServerSentEvent]:
            async for event in await run_in_threadpool(begun, tasks, after):
                yield event

        def of(node: Node | None, tasks: Sequence[int], after: str | None) -> AsyncIterator[ServerSentEvent]:
            return here(tasks, after) if node is None else self._router.events(node, request, tasks, after)

        if part is not None or self._asks is None or not store.sub:
            found = here(tasks, after or None)
        elif (elsewhere := self._redirected(store, tasks, request, given)) is not None:
            return elsewhere
        else:
            # A task may move while the client listens, even one that is here. A task that no process has is refused at once.
            self._router.groups(store, tasks)
            places = known_places(after, store, tasks) if after else None
            found = Merged(partial(self._router.groups, store), of, follow, places).events(tasks)
        event = await anext(found)
        if event.kind == "error":
            # As the HTTP status, which every client understands; later errors are events.
            error = loads(event.data)
            return refused(STATUS_OF.get(error["error"], 500), error["error"], error["message"])
        data = self._counted(encoded(_behind(event, found)))
        return StreamingResponse(data, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    def _changes_source(self) -> Callable[[], AbstractContextManager[ChangelogSource]]:
        if self._source is None:
            raise RefusedError(501, "changes are not served here")
        if self._following >= self._limits.changes:
            raise RefusedError(503, "too many clients follow changes here", {"Retry-After": "5"})
        return self._source

    async def _counted(self, found: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Passes on the events of one client that follows changes, and counts it among these clients until it ends."""
        self._following += 1
        try:
            async for event in found:
                yield event
        finally:
            self._following -= 1

    async def _write(self, request: Request) -> Response:
        given = self._given(request.scope)
        wait_s = given.wait_s() if given.text("wait") is not None else min(5.0, self._limits.wait_ms / 1000)
        body = await self._body(request, exactly)
        if self._sink is None:
            raise RefusedError(501, "nothing can be written here")
        name = given.text("await")
        store = None if name is None else self._served.store(name)
        record = self._sink.record(request.path_params["topic"], body)
        if store is None:
            written = await run_in_threadpool(self._sink.write, record)
            return json_answer({"record": written.as_json}, 202, {POSITION: str(written.position)})
        task, key = self._sink.awaited(store, record, given.key(store, "await_key"))
        if not self._is_here(store, [task]) and given.text(PART) is None:
            return await self._router.hand_on_once(store, task, request, wait_s, shown_json(body))
        # Before anything is written, because the process with the copy has to wait for the result.
        store.copy(task)
        written = await run_in_threadpool(self._sink.write, record)
        answer = await self._result(store, task, key, Freshness(position=written.position), wait_s)
        if answer is None:
            # Not an error; otherwise a client would write the record again.
            return json_answer({"record": written.as_json, "processed": False}, 202, {POSITION: str(written.position)})
        row = answer.rows[0] if answer.rows else b"null"
        found = shown_json({"record": written.as_json, "processed": True, "tasks": tasks_json(answer)})
        return StoreAnswer(b'%b,"row":%b}\n' % (found[:-1], row), answer)

    async def _result(self, store: ReadStore, task: int, key: bytes, bound: Freshness, wait_s: float) -> Answer | None:
        """The row that a written record has led to; None: it was not processed in time, or the copy moved to another process."""
        try:
            wanting = self._served.wanting(store, [task], bound)
            if wanting and not await until(wanting, wait_s):
                return None
            return store.get([key], in_task=task, decode=store.reader.text)
        except StoreNotReadyError:
            return None

    def _asked(self, connection: MutableMapping[str, Any], store: str, **_: str) -> tuple[ReadStore, Parameters]:
        """The store and the parameters of a request."""
        name = store
        for part in ("raw_path", "query_string"):
            check_text(connection.get(part, b""))
        if name not in self._served.stores:
            try:
                self._served.store(name)
            except QueryError as error:
                raise RefusedError(404, str(error)) from error
        return self._served.stores[name], self._given(connection)

    def _given(self, connection: MutableMapping[str, Any]) -> Parameters:
        return Parameters(query_of(connection), headers_of(connection), self._limits)

    async def _body(self, request: Request, read: Callable[[bytes], Any] = loads) -> Any:
        """The JSON of a request's body, decoded by `read`.

        The content type has to be JSON, because a page of another site cannot send that without the browser asking first.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if kind.lower() != "application/json":
            raise RefusedError(415, "the body has to be application/json")
        data = b""
        async for part in request.stream():
            data += part
            if len(data) > self._limits.body_bytes:
                raise RefusedError(413, f"the body has more than {self._limits.body_bytes} bytes", _LAST)
        try:
            return read(data)
        except ValueError as error:
            raise QueryError(f"the body cannot be read as JSON: {error}") from error

    def _figures(self) -> list[CopyFigures]:
        found = []
        for (_, task), copy in self._served.copies().items():
            place = copy.task.place
            figures = (copy.age_ms / 1000, copy.version, float(bool(copy.fault)))
            found.append(CopyFigures(place.sub_topology, task, figures))
        return found


register_any_text()
_STORES = "/v1/stores/{store}"
_KEYS = compile_path(f"{_STORES}/keys/{{key:any_text}}")[0]
_FEW = 32
"""Batches of up to this many keys are read in the event loop."""
_READERS = 2
"""How many reads of many rows are made at a time."""
_LAST = {"Connection": "close"}
"""Closes the connection of a request whose remaining body is not read."""
_AT = "at"
"""A parameter between processes: the micro-batch that the asking process saw when it looked for one that all copies hold."""
_LOADED = "loaded"
"""A parameter between processes: the store whose rows are wanted for a query in SQL."""
_LOOK_AGAIN_S = 0.05
_FOLLOW_S = 2.0
"""A read as of one micro-batch waits at least this long for the copies."""
_QUERIES = 2
"""How many queries in SQL run at a time: each has its memory, a process and a thread."""
_PARTS = 4
_T = TypeVar("_T")
_Rows = tuple[list[tuple[int, bytes | None]], tuple[Point, ...]]
"""Rows as JSON, each with its place in the answer, and the points (task and commit) that they were read at."""
_Page = tuple[list[tuple[Order, bytes]], tuple[Point, ...], bool]
"""Rows of a page, each with its place in the order; the points of the read; whether rows were cut off (`Asked.within`)."""


@dataclass(slots=True)
class _KeyRead:
    """A read of one key.

    Attributes:
        tasks: The tasks that may have the key.
        is_here: Whether this process has the tasks' copies.
    """

    store: ReadStore
    given: Parameters
    key: bytes
    text: str
    tasks: Collection[int]
    is_here: bool

    def answer(self, tasks: Iterable[int]) -> Response:
        """Answers with the row that one of these tasks has."""
        places, store = [(self.key, task) for task in tasks], self.store
        answer = store.look_up(places, self.given.time("as_of"), store.reader.text)
        status, found = key_answer(store, self.text, answer)
        return StoreAnswer(found + b"\n", answer, status)


def _part_here(store: ReadStore, asked: Asked, tasks: Collection[int]) -> _Page:
    part = store.part(asked, tasks, hold=True)
    rows = [(order, store.reader.text(row, task)) for order, (row, task) in part.rows]
    return rows, part.points, part.cut


async def until(wanting: Sequence[Wanting], timeout_s: float) -> bool:
    """Waits, without a thread, until all copies have what was asked for; False: they did not have it in time."""
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


async def _behind(first: ServerSentEvent, others: AsyncIterator[ServerSentEvent]) -> AsyncIterator[ServerSentEvent]:
    yield first
    async for event in others:
        yield event


def wants_arrow(request: Request) -> bool:
    """Whether to answer with an Arrow stream."""
    return ARROW in request.headers.get("accept", "")


def _batch_here(
    store: ReadStore,
    keys: Sequence[bytes],
    versions: Mapping[int, int],
    most_bytes: int,
    tasks: Mapping[int, Sequence[int]],
    as_stored: bool,
) -> tuple[list[bytes | None], tuple[Point, ...]]:
    """The row of each key that these tasks may have, as JSON or as it is stored."""
    values, _, points = store.get_each(keys, versions, most_bytes, tasks)
    return values if as_stored else store.texts(keys, values), points


def _joined(parts: Iterable[_Rows], count: int) -> tuple[list[bytes | None], tuple[Point, ...]]:
    """The rows of all places, from the parts that several processes have; a place may be in several parts, and has one row."""
    rows: list[bytes | None] = [None] * count
    points: list[Point] = []
    for part, read_at in parts:
        points += read_at
        for place, row in part:
            rows[place] = row if row is not None else rows[place]
    return rows, tuple(points)


def _page_here(store: ReadStore, asked: Asked, as_arrow: bool) -> Response:
    stored, _, answer = store.page(asked)
    if as_arrow:
        return _arrow(store, stored, answer, answer.cursor)
    return rows_answer(store.reader.texts(stored), answer, cursor=answer.cursor)


def _page_of(store: ReadStore, rows: Sequence[bytes], answer: Answer, cursor: str | None, as_arrow: bool) -> Response:
    return _arrow(store, rows, answer, cursor) if as_arrow else rows_answer(rows, answer, cursor=cursor)


def _arrow(store: ReadStore, rows: StoredRows | Sequence[bytes], answer: Answer, cursor: str | None = None) -> Response:
    return StoreAnswer(stream(store, rows, answer, cursor), answer, kind=ARROW.encode())
