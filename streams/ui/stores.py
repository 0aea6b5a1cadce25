"""The stores that the page can browse: those of a `streams serve` process, this one or another.

The page asks by the addresses of `docs/serve.md`, so reading and its rules exist once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streams.errors import ConfigError

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from starlette.types import ASGIApp

_ANSWER_S = 30.0

NO_STORES = (
    "The page browses the stores of a streams serve process. Serve them with the page: streams serve TARGET --ui 8080; or name the "
    "address of one that runs: --set ui_stores=http://HOST:PORT (ui_stores_token, if it asks for a token)."
)


class StoreNode:
    """A process that serves stores.

    Args:
        name: What people call it.
        connect: Makes a client for one request.
    """

    def __init__(self, name: str, connect: Callable[[], AsyncClient]) -> None:
        self.name = name
        self._connect = connect

    @classmethod
    def at(cls, url: str, token: str = "") -> StoreNode:
        """The process at an address."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}

        def connect() -> AsyncClient:
            from httpx2 import AsyncClient

            return AsyncClient(base_url=url, headers=headers, timeout=_ANSWER_S)

        return cls(url, connect)

    @classmethod
    def within(cls, application: ASGIApp, token: str = "") -> StoreNode:
        """This process, which may ask others; the token is for those."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}

        def connect() -> AsyncClient:
            from httpx2 import ASGITransport, AsyncClient

            # Everything but ASGI's types agrees: Starlette's are narrower.
            transport: Any = ASGITransport(application)  # type: ignore[arg-type]
            return AsyncClient(base_url="http://localhost", headers=headers, transport=transport, timeout=_ANSWER_S)

        return cls("this process", connect)

    async def get(self, path: str) -> tuple[int, bytes]:
        """The status and the JSON of an answer."""
        from httpx2 import HTTPError

        try:
            async with self._connect() as client:
                answer = await client.get(path)
        except HTTPError as error:
            raise ConfigError(
                f"the stores of {self.name} cannot be read: {error or type(error).__name__}. Check that streams serve runs there "
                f"(the setting ui_stores)"
            ) from error
        return answer.status_code, answer.content
