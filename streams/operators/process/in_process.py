"""The current record of a user's processor, shared by its context and its stores."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from streams.errors import TopologyError
from streams.model.conversions import Headers, TimestampLike, to_timestamp_ms
from streams.model.record import Record


class InProcess:
    """The current record, or the time of a punctuation.

    Attributes:
        record: The record; None outside of `process`.
        time: The time of the punctuation, ms; None outside of a punctuation.
    """

    __slots__ = ("record", "time")

    def __init__(self) -> None:
        self.record: Record | None = None
        self.time: int | None = None

    @property
    def headers(self) -> Headers:
        """Headers of the record; none outside of `process`."""
        return () if self.record is None else self.record.headers

    @property
    def timestamp(self) -> int:
        """The default time of a store's write.

        Raises:
            TopologyError: There is neither a record nor a punctuation.
        """
        if self.record is not None:
            return self.record.timestamp
        if self.time is None:
            raise TopologyError(
                "A store is written to outside of process and of a punctuation, where no record gives the time: name it, as in "
                "put(key, value, timestamp=ctx.stream_time)."
            )
        return self.time

    def time_of_write(self, timestamp: TimestampLike | None) -> int:
        """The given time in ms, or that of the current record."""
        return self.timestamp if timestamp is None else to_timestamp_ms(timestamp)

    def at_time(self, callback: Callable[[int], object]) -> Callable[[int], None]:
        """The callback of a punctuation, wrapped so that its time is the current one meanwhile."""
        if not callable(callback):
            return callback  # refused when it is scheduled

        @wraps(callback)
        def call(time: int) -> None:
            self.time = time
            try:
                callback(time)
            finally:
                self.time = None

        return call
