"""The shared base of windowed aggregations: stream time, open windows, and the emission of results."""

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
    """An update of a window that waits for the end of the step.

    Attributes:
        key: Key and window.
        old: The stored aggregate before the step; None: there was none.
        new: The stored aggregate; None: the window is deleted.
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

    Stream time is the largest timestamp that reached the operator with a key. The operator's state retains stream time, so that a
    restart does not change which records are late (in Kafka Streams it does).

    Args:
        store: Name of the store of the results.
        windows: The windows and their grace.
        functions: The functions of the aggregation.
        open_store: Name of a key-value store of bytes for the index of open windows: emit on close; None: every update.
        caching: Emit the last value of a window once, at the end of the step; False: every update.
        send_old: Whether children need `Change.old`. On close, a window has a single result without an old value.
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
        self.emits_together = False
        """Whether pending updates are written and forwarded as columns; see `AggregateBatches`."""

    def init(self, ctx: OperatorContext) -> None:
        """Open the stores and restore stream time."""
        super().init(ctx)
        self.store: Any = ctx.store(self.store_name)
        self._time = StreamTime(ctx.state)
        self._open = None if self.open_name is None else OpenWindows(ctx, self.open_name)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Advance stream time, and emit the windows that it closes."""
        time = self._time.advance(elapsed_ms, limit)
        if self._open is None:
            return limit
        self._emit_closed(time, ())
        return min(limit, self._oldest_open(self._open))

    def flush(self) -> None:
        """Emit pending updates, and let the store expire rows that can never be read again."""
        self._flush_pending()
        time = self._expiry_time()
        if self._open is not None and self._open.first_end is not None:
            # In compat mode a closed window may not have been emitted yet.
            time = min(time, self._open.first_end + self.windows.wait_ms)
        self.ctx.expire(self.store_name, time)

    def close(self) -> None:
        if self._open is not None:
            self._open.release()

    def _flush_pending(self) -> None:
        """Emit, or write, the updates that wait for the end of the step."""

    def _expiry_time(self) -> int:
        return self._time.now

    @property
    def _close_delay_ms(self) -> int:
        """How far stream time must be beyond a window's end to close it."""
        return self.windows.wait_ms + (1 if self.windows.inclusive_end else 0)

    def _oldest_open(self, open_windows: OpenWindows) -> int:
        """The least time of any later result, ms."""
        return open_windows.first_start

    def _emit_pending(self, updates: Iterable[HeldUpdate]) -> None:
        """Forward updates, each guarded separately, except those of windows created and deleted within the step."""
        for update in updates:
            if update.old is not None or update.new is not None:
                self.ctx.attempt(partial(self._forward, update))

    def _emit_closed(self, timestamp: int, headers: Headers) -> None:
        """Emit the windows closed by stream time, if results come on close; `headers` are those of the closing record."""
        if self._open is None:
            return
        for key, start, end in self._open.close(self._time.now - self._close_delay_ms, timestamp):
            windowed = Windowed(self.store.codec.read_key(key), Window(start, end))
            found = self.store.get(windowed)
            if found is not None:
                self._forward(HeldUpdate(windowed, None, found.value, found.timestamp, headers))

    def _forward(self, update: HeldUpdate) -> None:
        viewed = self.functions.viewed
        change = Change(viewed(update.new), viewed(update.old) if self.send_old else None)
        self.ctx.forward(Record(update.key, change, update.timestamp, update.headers))
