"""What the aggregations in windows share: stream time, the windows that are still open, and how results leave."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from streams.model.record import Change, Headers, Record, Window, Windowed
from streams.model.windows import GroupingWindows
from streams.operators.aggregate.functions import AggregationFunctions
from streams.operators.aggregate.open_windows import OpenWindows
from streams.operators.operator import Operator
from streams.operators.operator_context import OperatorContext
from streams.operators.stream_time import StreamTime

W = TypeVar("W", bound=GroupingWindows)


class HeldUpdate(NamedTuple):
    """An update of a window that is held back until the end of the step.

    Attributes:
        key: Key and window.
        old: The stored aggregate before the step; None: there was none.
        new: The stored aggregate; None: the window is gone.
        timestamp: Of the result, ms.
        headers: Of the result.
    """

    key: Windowed
    old: Any
    new: Any
    timestamp: int
    headers: Headers = ()


class WindowedAggregation(Operator, Generic[W]):
    """Base of the aggregations per key and window.

    Stream time is the largest timestamp that reached the operator with a key. It is kept in state, so that a restart forgets no
    lateness (Kafka Streams does).

    Args:
        store: Name of the store of the results.
        windows: Which windows, and grace.
        functions: What is computed.
        open_store: Name of a key-value store of bytes for the index of open windows: emit on close; None: every update.
        caching: Emit the last value of a window once, at the end of the step; False: every update.
        send_old: Whether `Change.old` is wanted downstream. On close, a window has one result, and nothing before it.
    """

    def __init__(
        self,
        store: str,
        windows: W,
        functions: AggregationFunctions,
        open_store: str | None = None,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        self.store_name = store
        self.windows = windows
        self.functions = functions
        self.open_name = open_store
        self.caching = caching
        self.send_old = send_old

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and take up stream time."""
        super().init(ctx)
        self.store: Any = ctx.store(self.store_name)
        self._time = StreamTime(ctx.state)
        self._open = None if self.open_name is None else OpenWindows(ctx, self.open_name)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Stream time moves on: emit what that closes."""
        time = self._time.advance(elapsed_ms, limit)
        if self._open is None:
            return limit
        self._emit_closed(time, ())
        return min(limit, self._oldest_open(self._open))

    def flush(self) -> None:
        """Emit what was held back; tell the store what can never be read again."""
        self._flush_held()
        time = self._expiry_time()
        if self._open is not None and self._open.first_end is not None:
            # In compat mode a window may be closed and not emitted yet.
            time = min(time, self._open.first_end + self.windows.wait_ms)
        self.ctx.expire(self.store_name, time)

    def close(self) -> None:
        """Let go of the open windows."""
        if self._open is not None:
            self._open.let_go()

    def _flush_held(self) -> None:
        """Emit, or write, what was held back until the end of the step."""

    def _expiry_time(self) -> int:
        """The time to tell the store."""
        return self._time.now

    def _oldest_open(self, open_windows: OpenWindows) -> int:
        """No result to come is older, ms."""
        return open_windows.first_start

    def _emit_held(self, updates: Iterable[HeldUpdate]) -> None:
        """Forward updates, each a piece of work of its own; not those of windows that came and went within the step."""
        for update in updates:
            if update.old is not None or update.new is not None:
                self.ctx.attempt(partial(self._forward, update))

    def _emit_closed(self, timestamp: int, headers: Headers) -> None:
        """Emit the windows that stream time has closed, if results come on close; `headers` are those of what closes them."""
        if self._open is None:
            return
        last_end = self._time.now - self.windows.wait_ms - (1 if self.windows.inclusive_end else 0)
        for key, start, end in self._open.close(last_end, timestamp):
            windowed = Windowed(self.store.codec.read_key(key), Window(start, end))
            found = self.store.get(windowed)
            if found is not None:
                self._forward(HeldUpdate(windowed, None, found.value, found.timestamp, headers))

    def _forward(self, update: HeldUpdate) -> None:
        viewed = self.functions.viewed
        change = Change(viewed(update.new), viewed(update.old) if self.send_old else None)
        self.ctx.forward(Record(update.key, change, update.timestamp, update.headers))
