"""The arguments and result of `schedule`: the two clocks, and the handle of a schedule."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from streams.errors import TopologyError


class PunctuationType(str, Enum):
    """The clock of a scheduled call (Kafka Streams: `PunctuationType`)."""

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock"


_BY_TEXT = {text: one for one in PunctuationType for text in (one.value, one.name, one.name.lower())}


def punctuation_type(given: PunctuationType | str) -> PunctuationType:
    """The clock for a type or its name.

    Raises:
        TopologyError: There is no such clock.
    """
    found = (
        _BY_TEXT.get(given.value if isinstance(given, PunctuationType) else given) if isinstance(given, str) else None
    )
    if found is None:
        raise TopologyError(
            f"There is no punctuation type {given!r}: use PunctuationType.STREAM_TIME, which follows the records' timestamps, or "
            f"PunctuationType.WALL_CLOCK_TIME (as text: 'stream_time', 'wall_clock_time')."
        )
    return found


class Cancellable(Protocol):
    """Handle of a scheduled punctuation."""

    def cancel(self) -> None:
        """Cancels the punctuation for good."""
