"""`Suppressed`: how long `KTable.suppress` delays updates, and what happens when its buffer is full."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streams.errors import TopologyError
from streams.model.windows import Duration, to_ms
from streams.spelling.answers import AnswersUnknownNames


@dataclass(frozen=True)
class BufferConfig(AnswersUnknownNames):
    """The bounds of a buffer, and what to do when one is reached.

    Attributes:
        max_records: The most keys in the buffer; None: no bound.
        max_bytes: The most bytes in the buffer, counted as `of_max_bytes` says; None: no bound.
        emit_early: When the buffer is full: True: the oldest update is emitted early; False: the application fails, so that
            nothing is ever emitted too early; None: False for `until_window_closes`, True for `until_time_limit`.
    """

    max_records: int | None = None
    max_bytes: int | None = None
    emit_early: bool | None = None

    def __post_init__(self) -> None:
        for bound in (self.max_records, self.max_bytes):
            if bound is not None and bound < 0:
                raise TopologyError(f"A buffer's bound must not be negative, but is {bound}.")

    @classmethod
    def unbounded(cls) -> BufferConfig:
        """A buffer without bounds, which is a store, not in memory."""
        return cls()

    @classmethod
    def of_max_records(cls, records: int) -> BufferConfig:
        """A buffer of at most this many keys."""
        return cls(max_records=records)

    @classmethod
    def of_max_bytes(cls, size: int) -> BufferConfig:
        """A buffer of at most this many bytes.

        An update counts as in Kafka Streams: 28 bytes, its key, its new value, the values before the last and before the first
        buffered update of the key (once if they are equal), names and values of headers; in `compat` mode also the name of the
        topic that the update was read from.
        """
        return cls(max_bytes=size)

    def shut_down_when_full(self) -> BufferConfig:
        """The same buffer, which fails when a bound is reached."""
        return replace(self, emit_early=False)

    def emit_early_when_full(self) -> BufferConfig:
        """The same buffer, which emits its oldest updates when a bound is reached."""
        return replace(self, emit_early=True)


# `BufferConfig.max_records(5)` is Kafka Streams' name. The fields of an object hide these functions, which are the class's alone.
for _bound, _of in (("max_records", BufferConfig.of_max_records), ("max_bytes", BufferConfig.of_max_bytes)):
    setattr(BufferConfig, _bound, staticmethod(_of))


@dataclass(frozen=True)
class Suppressed(AnswersUnknownNames):
    """How long `KTable.suppress` waits, in the stream time of the updates. Use the class methods (KIP-328).

    Example::

        counts.suppress(Suppressed.until_window_closes())
        table.suppress(Suppressed.until_time_limit(timedelta(minutes=1), BufferConfig.of_max_records(1000)))

    Attributes:
        limit_ms: How long to wait in stream time after a key's first delayed update; None: until the window closes.
        buffer: The bounds of the buffer.
    """

    limit_ms: int | None
    buffer: BufferConfig

    @classmethod
    def until_window_closes(cls, buffer: BufferConfig | None = None) -> Suppressed:
        """Emits one result for each window, when the window closes; the buffer must not emit early.

        Raises:
            TopologyError: The buffer emits early.

        Source: Kafka Streams' `Suppressed.untilWindowCloses`.
        """
        buffer = buffer or BufferConfig.unbounded()
        if buffer.emit_early:
            raise TopologyError(
                "suppress until the window closes gives only final results, so a full buffer cannot emit early: "
                "use shut_down_when_full()."
            )
        return cls(None, buffer.shut_down_when_full())

    @classmethod
    def until_time_limit(cls, limit: Duration, buffer: BufferConfig | None = None) -> Suppressed:
        """Emits at most one update of a key per `limit` of stream time; a full buffer emits its oldest update early.

        Args:
            limit: How long to wait after a key's first delayed update; a `timedelta` or ms.
            buffer: The bounds of the buffer, by default none. With `shut_down_when_full()`, a full buffer fails instead.

        Raises:
            TopologyError: The limit is negative.

        Source: Kafka Streams' `Suppressed.untilTimeLimit`.
        """
        limit_ms = to_ms(limit, "suppress' time limit")
        if limit_ms < 0:
            raise TopologyError(f"suppress' time limit must not be negative, but is {limit_ms} ms.")
        buffer = buffer or BufferConfig.unbounded()
        return cls(limit_ms, buffer.emit_early_when_full() if buffer.emit_early is None else buffer)
