"""`Suppressed`: how long `KTable.suppress` holds updates back, and what happens when its buffer is full."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streams.errors import TopologyError
from streams.model.windows import Duration, to_ms
from streams.spelling.answers import AnswersUnknownNames


@dataclass(frozen=True)
class BufferConfig(AnswersUnknownNames):
    """Bounds of a buffer, and what to do when one is reached.

    Attributes:
        max_records: Most keys in it; None: no bound.
        max_bytes: Most bytes of keys and values in it; None: no bound.
        emit_early: When full: True: the oldest update is emitted early; False: the application fails, so that nothing
            is ever emitted too early; None: it fails where windows close, and emits early at a time limit.
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
        """A buffer that grows as it must; it lies in a store, not in memory."""
        return cls()

    @classmethod
    def of_max_records(cls, records: int) -> BufferConfig:
        """At most so many keys."""
        return cls(max_records=records)

    @classmethod
    def of_max_bytes(cls, size: int) -> BufferConfig:
        """At most so many bytes of keys and values."""
        return cls(max_bytes=size)

    def shut_down_when_full(self) -> BufferConfig:
        """Fail when a bound is reached."""
        return replace(self, emit_early=False)

    def emit_early_when_full(self) -> BufferConfig:
        """Emit the oldest updates until the buffer fits."""
        return replace(self, emit_early=True)


@dataclass(frozen=True)
class Suppressed(AnswersUnknownNames):
    """What `KTable.suppress` waits for, in stream time of the updates. Made by its class methods (KIP-328).

    Example::

        counts.suppress(Suppressed.until_window_closes())
        table.suppress(Suppressed.until_time_limit(timedelta(minutes=1), BufferConfig.of_max_records(1000)))

    Attributes:
        limit_ms: Stream time to wait since a key's first update that is held back; None: until its window closes.
        buffer: Bounds.
    """

    limit_ms: int | None
    buffer: BufferConfig

    @classmethod
    def until_window_closes(cls, buffer: BufferConfig | None = None) -> Suppressed:
        """One result for each window, when it is closed; the buffer must not emit early.

        Raises:
            TopologyError: It would.

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
        """At most one update of a key per `limit` of stream time; when full, the oldest is emitted early.

        Args:
            limit: A `timedelta` or ms, since the first update of the key that is held back.
            buffer: Bounds; none by default. `shut_down_when_full()` of it fails instead.

        Raises:
            TopologyError: The limit is negative.

        Source: Kafka Streams' `Suppressed.untilTimeLimit`.
        """
        limit_ms = to_ms(limit, "suppress' time limit")
        if limit_ms < 0:
            raise TopologyError(f"suppress' time limit must not be negative, but is {limit_ms} ms.")
        buffer = buffer or BufferConfig.unbounded()
        return cls(limit_ms, buffer.emit_early_when_full() if buffer.emit_early is None else buffer)
