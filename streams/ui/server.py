"""The server of the dashboard: one static page, and each figure of it as JSON below `/api/v1`.

Starlette and uvicorn serve it over HTTP (the extra `serve`), in a separate thread. Programs on this host may read everything; the
setting `ui_token` makes a token necessary, and is needed to listen for other hosts and to replay dead letters. The page itself is
public: it has no figures. Without a token, only requests for this host by one of its own names are answered, so that another site's
page in the same browser cannot read the figures under its own host name.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import orjson

from state.errors import StreamsError
from state.secrets import mask
from streams.config.settings import Address
from streams.errors import ConfigError
from streams.logs.recent import RecentLines
from streams.metrics.recorder import MetricsRecorder
from streams.serve.http.servers import HttpThread, listening, register_any_text
from streams.topology.topology import Topology
from streams.ui import figures
from streams.ui.drawing import drawing
from streams.ui.history import History
from streams.ui.kafka import KafkaLook
from streams.ui.pulse import Pulse

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

# --- The stores that the page can browse: they belong to a `streams serve` process, which is this one or another.
#
# The page asks by the addresses of `docs/serve.md`, so reading and its rules exist once.


_ANSWER_S = 30.0

NO_STORES = (
    "The dashboard shows the stores of a streams serve process. Serve them together: streams serve TARGET --ui 8080; or name the "
    "address of one that runs: --set ui_stores=http://HOST:PORT (ui_stores_token, if it asks for a token)."
)


class PageStores:
    """A process that serves stores.

    Args:
        name: Its name in messages.
        connect: Makes a client for one request.
    """

    def __init__(self, name: str, connect: Callable[[], AsyncClient]) -> None:
        self.name = name
        self._connect = connect

    @classmethod
    def at(cls, url: str, token: str = "") -> PageStores:
        """The process at an address."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}

        def connect() -> AsyncClient:
            from httpx2 import AsyncClient

            from streams.serve.http.asking import ResetTransport

            return AsyncClient(base_url=url, headers=headers, timeout=_ANSWER_S, transport=ResetTransport())

        return cls(url, connect)

    @classmethod
    def within(cls, application: ASGIApp, token: str = "") -> PageStores:
        """The stores of this process, which may ask other processes and sends them the token."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}

        def connect() -> AsyncClient:
            from httpx2 import ASGITransport, AsyncClient

            # Everything but ASGI's types agrees: Starlette's are narrower.
            transport: Any = ASGITransport(application)  # type: ignore[arg-type]
            return AsyncClient(base_url="http://localhost", headers=headers, transport=transport, timeout=_ANSWER_S)

        return cls("this process", connect)

    async def get(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """The status and the text of the answer to a GET; to a POST if there is a body."""
        from httpx2 import HTTPError

        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with self._connect() as client:
                answer = await client.request("GET" if body is None else "POST", path, content=body, headers=headers)
        except HTTPError as error:
            raise ConfigError(
                f"the stores of {self.name} cannot be read: {error or type(error).__name__}. Check that streams serve runs there "
                f"(the setting ui_stores)"
            ) from error
        return answer.status_code, answer.content


log = logging.getLogger(__name__)

API = "/api/v1"
FOLDER = Path(__file__).parent / "page"
FILES = {
    "": "text/html",
    "page.css": "text/css",
    "page.js": "text/javascript",
    "curves.js": "text/javascript",
    "parts.js": "text/javascript",
    "graph.js": "text/javascript",
    "stores.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
"""The files of the page with their types; the first one is `index.html`."""
CHANGES = "changes"
STORE_PATHS = ("/{store}/keys/{key:any_text}", "/{store}/range", "/{store}/windows", f"/{{store}}/{CHANGES}")
"""The reads of stores that are forwarded."""
_STORE_PARAMETERS = frozenset(
    (
        "from",
        "to",
        "prefix",
        "reverse",
        "limit",
        "cursor",
        "key",
        "keys",
        "window_from",
        "window_to",
        "latest",
        "as_of",
        "after",
    )
).union(("consistency", "position", "commits", "max_age", "wait", "snapshot"))
"""The parameters of those reads. Others are only for use between processes that serve."""
_MOST_BODY = 1024 * 1024
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_THIS_HOST = ("localhost", "127.0.0.1", "[::1]")


class Pages:
    """The answers of the server."""

    def __init__(
        self,
        recorder: MetricsRecorder,
        history: History,
        topology: Topology | None,
        look: KafkaLook,
        token: str,
        stores: PageStores | None = None,
        pulse: Pulse | None = None,
        lines: RecentLines | None = None,
    ) -> None:
        self._pulse = pulse
        self._recorder, self._history, self._look, self._token = recorder, history, look, token
        self._stores = stores
        self._drawing = (
            {"sub_topologies": [], "boxes": [], "arrows": [], "global_tables": [], "lake_sinks": []}
            if topology is None
            else drawing(topology, recorder.application_id)
        )
        self.answers: dict[str, Callable[[], Any]] = {
            "overview": self._overview,
            "topology": lambda: self._drawing,
            "operators": lambda: figures.operators(recorder.snapshot(), history),
            "tasks": lambda: figures.tasks(recorder.snapshot(), history),
            "curves": lambda: figures.curves(recorder.snapshot(), history),
            "steps": lambda: figures.steps(recorder.snapshot(), history),
            "restores": lambda: figures.restores(recorder.snapshot(), history),
            "events": lambda: figures.events(history),
            "followed": self._followed,
            "commits": look.commits,
            "dead-letters": look.dead_letters,
            "doctor": look.doctor,
            "logs": lambda: {"lines": [] if lines is None else lines.newest()},
        }
        """The figures by the last part of their address."""

    def _followed(self) -> dict[str, Any]:
        return {"key": self._look.config.ui_follow or None, **figures.followed(self._history)}

    def _overview(self) -> dict[str, Any]:
        silent_s = None if self._pulse is None else self._pulse.look()
        app = self._recorder.snapshot()
        app = app if silent_s is None else figures.unasked(app)
        self._history.sample(app)
        return {**figures.overview(app, self._history, silent_s), "may_change": bool(self._token)}

    async def stores(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """The status and the answer of a process that serves stores."""
        if self._stores is None:
            raise ConfigError(NO_STORES)
        return await self._stores.get(path, body)

    def last_records(self, topic: str) -> Any:
        return self._look.last_records(topic)

    def pause(self, wanted: Any, resume: bool) -> Any:
        """Pauses or resumes the application, or a sub-topology."""
        sub = wanted.get("sub_topology") if isinstance(wanted, dict) else wanted
        if not isinstance(wanted, dict) or not isinstance(sub, str | None):
            raise ConfigError(
                'a pause needs JSON such as {"sub_topology": "payments"}, or {} for the whole application'
            )
        return self._look.pause(sub, resume)

    def replay(self, wanted: Any) -> Any:
        """Replays dead letters."""
        if not isinstance(wanted, dict) or not isinstance(wanted.get("topic"), str):
            raise ConfigError('a replay needs JSON such as {"topic": "orders-dead", "positions": [[0, 17]]}')
        positions = wanted.get("positions")
        try:
            chosen = None if positions is None else frozenset((int(one), int(offset)) for one, offset in positions)
        except (TypeError, ValueError):
            raise ConfigError("positions are pairs of a partition and an offset, such as [[0, 17]]") from None
        return self._look.replay(wanted["topic"], wanted.get("error"), chosen)


class _Stores:
    """Forwards reads of stores to the server of stores."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def read(self, request: Request) -> Response:
        return await self._passed_on(store_address(request.path_params, request.url.path, request.query_params))

    async def sql(self, request: Request) -> Response:
        # A form of a page from elsewhere cannot send this type.
        if request.headers.get("content-type") != "application/json":
            return _json({"error": "a query is sent as application/json"}, 415)
        body = await _body(request)
        return _too_large() if body is None else await self._passed_on("/v1/sql", body)

    async def _passed_on(self, address: str, body: bytes | None = None) -> Response:
        try:
            status, found = await self._pages.stores(address, body)
        except ConfigError as error:
            return _refused(error, 400)
        return _raw(found, status)


def web_application(pages: Pages, token: str, hosts: tuple[str, ...]) -> Starlette:
    """The ASGI application. Without a token, every client may read; without hosts, requests may use any host name."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.routing import Route

    register_any_text()
    stores = _Stores(pages)

    def figure(name: str) -> Route:
        return Route(f"{API}/{name}", lambda request: _answer(pages.answers[name]))

    def change(path: str, what: str, do: Callable[[Any], Any]) -> Route:
        async def answer(request: Request) -> Response:
            from starlette.concurrency import run_in_threadpool

            if not token:
                return _json({"error": f"{what}, so it needs the setting ui_token (STREAMS_UI_TOKEN)"}, 403)
            body = await _body(request)
            if body is None:
                return _too_large()
            return await run_in_threadpool(_answer, lambda: do(_parsed(body)))

        return Route(f"{API}/{path}", answer, methods=["POST"])

    def peek(request: Request) -> Response:
        return _answer(lambda: pages.last_records(request.path_params["topic"]))

    routes = [
        *(Route(f"/{name}", _file(name, kind)) for name, kind in FILES.items()),
        Route(API, lambda request: _json({"figures": [f"{API}/{name}" for name in (*pages.answers, "stores")]})),
        *map(figure, pages.answers),
        Route(f"{API}/topics/{{topic}}/last", peek),
        Route(f"{API}/sql", stores.sql, methods=["POST"]),
        change("dead-letters/replay", "a replay changes topics", pages.replay),
        change("pause", "a pause stops the application", partial(pages.pause, resume=False)),
        change("resume", "the end of a pause changes the application", partial(pages.pause, resume=True)),
        *(Route(f"{API}/stores{path}", stores.read) for path in ("", *STORE_PATHS)),
    ]
    # Starlette calls a plain function in a thread of its pool, so a slow answer holds up no other one.
    guards = [Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts) or ["*"]), Middleware(_Guard, token=token)]
    return Starlette(routes=routes, middleware=guards, exception_handlers={HTTPException: _no_such})


def store_address(given: Mapping[str, str], path: str, query: Mapping[str, str]) -> str:
    """The address, in a process that serves stores, of the data that the page asks for.

    It is built from the parts of the page's address and never copied from it: if two programs read an address differently, a client
    could get at data that the page does not show.

    Args:
        given: The store and the key.
        path: The page's address; its last part names the kind of read.
        query: The parameters; those for clients are forwarded.
    """
    wanted = {name: value for name, value in query.items() if name in _STORE_PARAMETERS}
    what = f"keys/{_part(given['key'])}" if "key" in given else path.rpartition("/")[2]
    if what == CHANGES:
        # The page asks again and again: a stream without an end would be collected here.
        wanted["follow"] = "false"
    asked = urlencode(wanted)
    if "store" not in given:
        return f"/v1/metadata?{asked}"
    return f"/v1/stores/{_part(given['store'])}/{what}?{asked}"


def _part(text: str) -> str:
    """Quotes a text as one part of an address."""
    # Clients remove parts that consist of dots.
    return quote(text, safe="") if text not in (".", "..") else text.replace(".", "%2E")


class _Guard:
    """Checks the token before it passes a request for figures on."""

    def __init__(self, app: App, token: str) -> None:
        self._app, self._expected = app, f"Bearer {token}".encode() if token else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/api") and self._expected:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                answer = _json({"error": "a token is needed: Authorization: Bearer TOKEN (the setting ui_token)"}, 401)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _no_such(request: Request, error: Exception) -> Response:
    """The answer to an unknown path, or to a method that the path does not have."""
    status = getattr(error, "status_code", 404)
    return _json({"error": getattr(error, "detail", "Not Found")}, status, getattr(error, "headers", None))


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    from starlette.responses import Response

    data = (FOLDER / (name or "index.html")).read_bytes()
    return lambda request: Response(data, headers=_HEADERS, media_type=kind)


async def _body(request: Request) -> bytes | None:
    """The body of a request; None: it is too large."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BODY:
            return None
    return body


def _too_large() -> Response:
    return _json({"error": f"the request has more than {_MOST_BODY} bytes"}, 413, {"Connection": "close"})


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"the request is not JSON: {error}") from error


def _answer(ask: Callable[[], Any]) -> Response:
    try:
        return _json(ask())
    except ConfigError as error:
        return _refused(error, 400)
    except StreamsError as error:
        return _refused(error, 503)
    except Exception:
        log.exception("a request of the dashboard failed")
        return _json({"error": "the dashboard failed: see the log of its process"}, 500)


def _refused(error: StreamsError, status: int) -> Response:
    return _json({"error": mask(str(error))}, status)


def _json(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return _raw(orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS), status, headers)


def _raw(data: bytes, status: int, headers: Mapping[str, str] | None = None) -> Response:
    from starlette.responses import Response

    return Response(data, status, headers={**_HEADERS, **(headers or {})}, media_type="application/json")


class PageServer:
    """Serves the page within a `with` block.

    Args:
        token: The setting `ui_token`.

    Raises:
        ConfigError: It cannot listen at the address.
    """

    def __init__(self, address: Address, pages: Pages, token: str) -> None:
        listener = listening(address, "the dashboard", "--ui")
        self.address = Address(address.host, listener.getsockname()[1])
        hosts = () if token or not address.is_loopback else (*_THIS_HOST, address.host)
        self._http = HttpThread(web_application(pages, token, hosts), listener)

    def __enter__(self) -> PageServer:
        self._http.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.__exit__(kind, error, trace)
