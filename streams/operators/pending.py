"""The pending updates of operators with a cache, emitted at the end of a step: each row's last update, the oldest first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from streams.model.record import Headers
from streams.operators.operator_context import OperatorContext
from streams.operators.stores.cached_row import CachedRow, drain_pending, result_of
from streams.operators.stores.key_value import TypedTimestampedKeyValueStore
from streams.operators.stores.window import TypedTimestampedWindowStore

Pending: TypeAlias = "dict[Any, tuple[Any, Headers, CachedRow]]"
"""By location in the store: the key, the headers and the row of its last update."""


def emit_pending(
    ctx: OperatorContext,
    store: TypedTimestampedKeyValueStore | TypedTimestampedWindowStore,
    pending: Pending,
    emit: Callable[[Any, Headers, CachedRow], None],
) -> None:
    """Remove the pending updates and emit them, in order of time.

    Each is guarded separately, so that a failure does not affect the others.

    Args:
        ctx: The operator's context.
        store: The store of the rows.
        pending: The pending updates; empty afterwards.
        emit: Writes a row and forwards its update.
    """
    for key, headers, row in drain_pending(store, pending):
        ctx.attempt(partial(emit, key, headers, row), result_of(row, headers))
