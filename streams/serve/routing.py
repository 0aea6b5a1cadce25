"""`Router`: decides which of the processes that serve the application answers which part of a request.

A task whose copy can be read here is answered here. For the others, the request goes to a process that has them, with the parameter
`part`, which names the tasks: such a request is never forwarded again. If that process does not answer, the next one is asked.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from streams.errors import QueryError, StoreNotReadyError
from streams.serve.feed import ServerSentEvent
from streams.serve.http.servers import check_installed
from streams.serve.nodes import Node, Nodes
from streams.serve.reading import ReadStore
from streams.serve.requests import COMMIT, POSITION, is_number

if TYPE_CHECKING:
    import httpx2

PART = "part"
"""A parameter between processes: the tasks that are asked for."""
NODE = "Streams-Node"
_CONNECT_S = 1.0
_ANSWER_S = 5.0
"""How long another process may take, in addition to the time that the request may wait."""
_OK, _UNAVAILABLE = 200, 503
_SENT = ("authorization", "content-type", POSITION.lower(), COMMIT.lower())
_PASSED = (
    "content-type",
    "retry-after",
    "www-authenticate",
    "cache-control",
    "streams-position",
    "streams-commit",
    "streams-age-ms",
)
_T = TypeVar("_T")


class PassedOnError(Exception):
    """Another process has refused a part of a request; carries its answer. Never leaves the server as an exception."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class Router:
    """Sends the parts of requests to the processes that have the tasks.

    Args:
        nodes: The other processes.
        tls: How their certificates are checked.
        transport: The httpx2 transport that reaches them; None: the network.
    """

    def __init__(
        self, nodes: Nodes, tls: ssl.SSLContext | None = None, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        check_installed("asking other processes that serve", "httpx2")
        self.nodes = nodes
        self._tls = tls
        self._transport = transport
        self._opened: httpx2.AsyncClient | None = None

    def groups(
        self, store: ReadStore, tasks: Iterable[int], tried: Collection[str] = ()
    ) -> list[tuple[Node | None, list[int]]]:
        """Which process answers which tasks; None stands for this process.

        Args:
            store: The store; not a global table, which every process has.
            tasks: The tasks.
            tried: The names of processes that have not answered.

        Raises:
            StoreNotReadyError: No process has one of the tasks.
        """
        found: dict[str, tuple[Node | None, list[int]]] = {}
        for task in tasks:
            copy = store.find(task)
            node = None
            if copy is None or not copy.ready:
                others = [one for one in self.nodes.with_task(store.sub, task, store.tasks) if one.id not in tried]
                if not others:
                    raise StoreNotReadyError(
                        f"task {task} of {store.sub}, which has these rows of {store.name!r}, can be read neither here nor in the "
                        f"{len(self.nodes.others())} other processes that serve it: wait until a copy is restored"
                    )
                node = next((one for one in others if one.id in found), others[0])
            found.setdefault("" if node is None else node.id, (node, []))[1].append(task)
        return list(found.values())

    async def gather(
        self, store: ReadStore, tasks: Iterable[int], ask: Callable[[Node | None, list[int]], Awaitable[_T]]
    ) -> list[_T]:
        """Asks all processes that have the tasks at the same time. If a process does not answer, the next one is asked.

        Raises:
            StoreNotReadyError: A process does not answer, and no other process has its tasks.
        """
        import httpx2

        async def one(node: Node | None, some: list[int]) -> _T | list[int]:
            try:
                return await ask(node, some)
            except httpx2.TransportError as error:
                assert node is not None
                self.nodes.failed(node, str(error) or type(error).__name__)
            except StoreNotReadyError:
                if node is None:
                    raise
            tried.add(node.id)
            return _Left(some)

        found: list[_T] = []
        left, tried = list(tasks), set[str]()
        while left:
            groups = self.groups(store, left, tried)
            answers = await asyncio.gather(*(one(node, some) for node, some in groups))
            left = []
            for answer in answers:
                if isinstance(answer, _Left):
                    left += answer
                else:
                    found.append(answer)  # type: ignore[arg-type]
        return found

    async def ask(
        self,
        node: Node,
        request: Request,
        tasks: Iterable[int],
        wait_s: float,
        body: bytes | None = None,
        more: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        """Forwards a request to a process, with further parameters if any are given.

        Raises:
            StoreNotReadyError: The process does not have the tasks any more.
            httpx2.TransportError: It does not answer.
        """
        answer = await self._client().send(self._request(node, request, tasks, wait_s, body, more))
        if answer.status_code == _UNAVAILABLE:
            raise StoreNotReadyError(f"{node.url}: {answer.text}")
        return answer

    async def hand_on_once(self, store: ReadStore, task: int, request: Request, wait_s: float, body: bytes) -> Response:
        """Forwards a request that must not arrive twice: the next process gets it only if the previous one was not reached.

        Raises:
            StoreNotReadyError: No process that has the task can be reached.
        """
        import httpx2

        for node in self.nodes.with_task(store.sub, task, store.tasks):
            try:
                return passed(node, await self._client().send(self._request(node, request, [task], wait_s, body)))
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                self.nodes.failed(node, str(error) or type(error).__name__)
            except httpx2.TransportError as error:
                raise StoreNotReadyError(
                    f"{node.url} has got the record and does not answer ({type(error).__name__}): it may be written, so look for "
                    f"its result before you send it again"
                ) from error
        raise StoreNotReadyError(f"task {task} of {store.sub} is not served now: nothing was written")

    async def events(
        self, node: Node, request: Request, tasks: Iterable[int], after: str | None
    ) -> AsyncIterator[ServerSentEvent]:
        """The changes of some tasks, from another process, after the event with an id.

        Raises:
            StoreNotReadyError: The process does not have the tasks any more, or has gone away.
        """
        import httpx2

        more = {} if after is None else {"after": after}
        asked = self._request(node, request, tasks, 0.0, None, more)
        asked.extensions["timeout"]["read"] = None
        try:
            answer = await self._client().send(asked, stream=True)
            try:
                if answer.status_code not in (_OK, _UNAVAILABLE):
                    yield ServerSentEvent("error", (await answer.aread()).strip())
                    return
                if answer.status_code != _OK:
                    raise StoreNotReadyError(f"{node.url}: {(await answer.aread()).decode(errors='replace')}")
                rest = b""
                async for data in answer.aiter_raw():
                    *blocks, rest = (rest + data).split(b"\n\n")
                    for block in blocks:
                        yield ServerSentEvent.of_bytes(block)
            finally:
                await answer.aclose()
        except httpx2.TransportError as error:
            self.nodes.failed(node, str(error) or type(error).__name__)
            raise StoreNotReadyError(f"{node.url} does not answer any more") from error

    def _request(
        self,
        node: Node,
        request: Request,
        tasks: Iterable[int],
        wait_s: float,
        body: bytes | None,
        more: Mapping[str, str] | None = None,
    ) -> httpx2.Request:
        import httpx2

        added = {PART: ",".join(map(str, tasks)), **(more or {})}
        given = [(name, value) for name, value in request.query_params.multi_items() if name not in added]
        return self._client().build_request(
            request.method,
            f"{node.url}{path_of(request)}",
            params=[*given, *added.items()],
            headers={name: request.headers[name] for name in _SENT if name in request.headers},
            content=body,
            timeout=httpx2.Timeout(wait_s + _ANSWER_S, connect=_CONNECT_S),
        )

    def _client(self) -> httpx2.AsyncClient:
        import httpx2

        from streams.serve.http.asking import ResetTransport

        if self._opened is None:
            verify = True if self._tls is None else self._tls
            self._opened = httpx2.AsyncClient(transport=self._transport or ResetTransport(verify=verify))
        return self._opened

    async def close(self) -> None:
        """Closes the connections."""
        if self._opened is not None:
            await self._opened.aclose()


class _Left(list[int]):
    """The tasks that still have to be asked for, because a process did not answer."""


def passed(node: Node, answer: httpx2.Response) -> Response:
    """Another process's answer, as an answer of this one."""
    return Response(answer.content, answer.status_code, _headers(node, answer))


def _headers(node: Node, answer: httpx2.Response) -> dict[str, str]:
    return {NODE: node.url, **{name: answer.headers[name] for name in _PASSED if name in answer.headers}}


def redirected(node: Node, request: Request) -> Response:
    """Redirects the client to another process."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"{node.url}{path_of(request)}{query}", 307)


def path_of(request: Request) -> str:
    """The path of a request for another process. Keys such as `..` are escaped, because clients remove such parts from a path."""
    parts = request.scope["raw_path"].decode().split("/")
    return "/".join(part.replace(".", "%2E") if part in (".", "..") else part for part in parts)


def parse_part(text: str | None, store: ReadStore) -> list[int] | None:
    """The tasks that another process asks for; None: the request comes from a client.

    Raises:
        QueryError: The store does not have these tasks.
    """
    if text is None:
        return None
    found = [int(one) if is_number(one) else -1 for one in text.split(",") if one]
    if not all(0 <= task < store.tasks for task in found):
        raise QueryError(f"{PART} names tasks of {store.name!r}, which are 0 to {store.tasks - 1}, not {text!r}")
    return found
