"""How this process sends requests to other processes over HTTP."""

from __future__ import annotations

import httpx2


class ResetTransport(httpx2.AsyncHTTPTransport):
    """A transport for connections that are reset as soon as they are made: they count as refused, because nothing was sent on them.

    anyio (4.16) asks each new socket for its peer's address, and uvloop has none any more once the connection is reset: the caller
    would get an `AttributeError` instead of an error of the connection. A process that is killed resets the connections that wait
    to be accepted.
    """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request.

        Raises:
            httpx2.TransportError: There is no answer.
        """
        try:
            return await super().handle_async_request(request)
        except AttributeError as error:
            if error.name != "getpeername":
                raise
            raise httpx2.ConnectError("the connection was reset", request=request) from error
