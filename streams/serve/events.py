"""Changes of a store as server-sent events: one for each commit, whose id is a position."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import orjson
from starlette.concurrency import iterate_in_threadpool

from state.errors import StreamsError
from state.secrets import mask
from streams.serve.changes import Change, Changes
from streams.serve.requests import point_json, row_json
from streams.serve.scans import Scan

HEARTBEAT_S = 15.0
"""After so long without a commit an event says that the connection lives."""


async def events(changes: Changes, initial: Scan | None, follow: bool, leave: ExitStack) -> AsyncIterator[bytes]:
    """The events, until the client goes away.

    Args:
        changes: The changes.
        initial: The rows to begin with; None: none.
        follow: Whether to wait for further commits.
        leave: Closed at the end.
    """
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(woken.set)

    copies = changes.store.here()
    for copy in copies:
        copy.listeners.append(wake)
    try:
        if initial is not None:
            async for change in iterate_in_threadpool(changes.initial(initial)):
                yield _event("rows", _as_json(change))
        yield _event("position", {}, changes.id)
        said_s = loop.time()
        while True:
            woken.clear()
            if changes.pending():
                async for change in iterate_in_threadpool(changes.next()):
                    yield _event("commit", _as_json(change), change.id)
                    said_s = loop.time()
            if not follow:
                return
            if loop.time() - said_s >= HEARTBEAT_S:
                yield _event("heartbeat", {}, changes.id)
                said_s = loop.time()
            try:
                await asyncio.wait_for(woken.wait(), HEARTBEAT_S)
            except asyncio.TimeoutError:
                continue
    except StreamsError as error:
        yield _event("error", {"error": type(error).__name__, "message": mask(str(error))})
    finally:
        for copy in copies:
            copy.listeners.remove(wake)
        leave.close()


def _as_json(change: Change) -> dict[str, Any]:
    return {"rows": [row_json(row) for row in change.rows], **point_json(change.point)}


def _event(kind: str, data: Any, id_: str = "") -> bytes:
    identified = f"id: {id_}\n" if id_ else ""
    return f"event: {kind}\n{identified}data: ".encode() + orjson.dumps(data) + b"\n\n"
