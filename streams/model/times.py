"""The bounds of time: milliseconds since the epoch, in 64 bits."""

from __future__ import annotations

from typing import Final

from state.stores.codec import MAX_TIME

__all__ = ["MAX_TIME", "NO_TIME"]

NO_TIME: Final = -1
"""Before the first record there is no stream time."""
