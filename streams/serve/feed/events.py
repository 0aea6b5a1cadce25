"""Changes of a store as server-sent events: one for each commit, whose id is a position."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import orjson
from starlette.concurrency import iterate_in_threadpool

from state.errors import StreamsError
from state.secrets import mask
from streams.serve.feed.changes import ChangeFeed, StoreChange
from streams.serve.requests import point_json, rows_text
from streams.serve.scans import Scan

HEARTBEAT_S = 15.0
"""After so long without a commit, an event shows that the connection is alive."""
_WITHOUT_BREAKS = bytes.maketrans(b"\r\n", b"  ")


class ServerSentEvent(NamedTuple):
    """A server-sent event.

    Attributes:
        kind: Its name.
        data: Its data, JSON.
        id: Its id; empty: it has none.
    """

    kind: str
    data: bytes = b"{}"
    id: str = ""

    def to_bytes(self) -> bytes:
        """The event as it is sent."""
        identified = f"id: {self.id}\n" if self.id else ""
        return f"event: {self.kind}\n{identified}data: ".encode() + self.data + b"\n\n"

    @classmethod
    def of_bytes(cls, block: bytes) -> ServerSentEvent:
        """Parses an event from the bytes that `to_bytes` has made."""
        fields = dict(line.split(b": ", 1) for line in block.strip().split(b"\n"))
        return cls(fields[b"event"].decode(), fields[b"data"], fields.get(b"id", b"").decode())

    @classmethod
    def of_error(cls, error: Exception) -> ServerSentEvent:
        """The last event of a stream that cannot continue."""
        return cls("error", orjson.dumps({"error": type(error).__name__, "message": mask(str(error))}))


async def events(
    changes: ChangeFeed, initial: Scan | None, follow: bool, leave: ExitStack
) -> AsyncIterator[ServerSentEvent]:
    """The events, until the client goes away.

    Args:
        changes: The changes.
        initial: The rows to begin with; None: none.
        follow: Whether to wait for further commits.
        leave: Is closed when the events end.
    """
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    wake = partial(loop.call_soon_threadsafe, woken.set)
    copies = changes.store.here()
    for copy in copies:
        copy.listeners.append(wake)
    try:
        if initial is not None:
            async for change in iterate_in_threadpool(changes.initial(initial)):
                yield ServerSentEvent("rows", _as_json(change))
        yield ServerSentEvent("position", id=changes.id)
        said_s = loop.time()
        while True:
            woken.clear()
            if changes.pending():
                async for change in iterate_in_threadpool(changes.next()):
                    yield ServerSentEvent("commit", _as_json(change), change.id)
                    said_s = loop.time()
            if not follow:
                return
            if loop.time() - said_s >= HEARTBEAT_S:
                yield ServerSentEvent("heartbeat", id=changes.id)
                said_s = loop.time()
            try:
                await asyncio.wait_for(woken.wait(), HEARTBEAT_S)
            except asyncio.TimeoutError:
                continue
    except StreamsError as error:
        yield ServerSentEvent.of_error(error)
    finally:
        for copy in copies:
            copy.listeners.remove(wake)
        leave.close()


async def encoded(found: AsyncIterator[ServerSentEvent]) -> AsyncIterator[bytes]:
    """The bytes of events."""
    async for event in found:
        yield event.to_bytes()


def _as_json(change: StoreChange) -> bytes:
    # Stored JSON may have line breaks between its parts, which mean nothing in JSON, but would end the event.
    return rows_text(change.rows, point_json(change.point)).translate(_WITHOUT_BREAKS)
