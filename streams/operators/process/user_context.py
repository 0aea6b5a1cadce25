"""`UserContext`: the context that a user's processor gets, in front of the wider one of the engine.

Why: a user sees users' methods only, and a mistake is answered where it is made, in the user's words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.errors import TopologyError
from streams.model.record import Headers, Record, RecordMetadata
from streams.model.windows import Duration
from streams.operators.process.in_process import InProcess
from streams.operators.processor import ProcessorContext
from streams.operators.punctuation import Cancellable, PunctuationType


class UserContext:
    """The `ProcessorContext` of one user's processor in one step.

    Args:
        ctx: The context of the node.
        in_process: The record in process.
    """

    def __init__(self, ctx: ProcessorContext, in_process: InProcess) -> None:
        self._ctx = ctx
        self._in_process = in_process

    @property
    def node(self) -> str:
        """See `ProcessorContext`."""
        return self._ctx.node

    @property
    def application_id(self) -> str:
        """See `ProcessorContext`."""
        return self._ctx.application_id

    @property
    def task_id(self) -> str:
        """See `ProcessorContext`."""
        return self._ctx.task_id

    @property
    def stream_time(self) -> int:
        """See `ProcessorContext`."""
        return self._ctx.stream_time

    @property
    def now_ms(self) -> int:
        """See `ProcessorContext`."""
        return self._ctx.now_ms

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """See `ProcessorContext`."""
        return self._ctx.record_metadata

    @property
    def topic(self) -> str | None:
        """See `ProcessorContext`."""
        metadata = self._ctx.record_metadata
        return None if metadata is None else metadata.topic

    @property
    def headers(self) -> Headers:
        """See `ProcessorContext`."""
        return self._in_process.headers

    @property
    def state(self) -> dict[str, Any]:
        """See `ProcessorContext`."""
        return self._ctx.state

    def current_stream_time_ms(self) -> int:
        """See `ProcessorContext`."""
        return self._ctx.stream_time

    def current_system_time_ms(self) -> int:
        """See `ProcessorContext`."""
        return self._ctx.now_ms

    def store(self, name: str) -> Any:
        """See `ProcessorContext`."""
        return self._ctx.store(name)

    def get_state_store(self, name: str) -> Any:
        """See `ProcessorContext`."""
        return self.store(name)

    def forward(self, record: Record, child: str | None = None) -> None:
        """See `ProcessorContext`."""
        check_record(self._ctx.node, record, child)
        self._ctx.forward(record, child)

    def drop(self, record: Record, reason: str) -> None:
        """See `ProcessorContext`."""
        self._ctx.drop(record, reason)

    def schedule(
        self, interval: Duration, kind: PunctuationType | str, callback: Callable[[int], object]
    ) -> Cancellable:
        """See `ProcessorContext`."""
        return self._ctx.schedule(interval, kind, self._in_process.at_time(callback))


def check_record(node: str, record: object, child: object) -> None:
    """Refuse what is no record, above all a key and a value.

    Raises:
        TopologyError: It is none.
    """
    if isinstance(record, Record):
        return
    given = repr(record) if child is None else f"{record!r}, {child!r}"
    raise TopologyError(
        f"'{node}' calls forward({given}): forward takes a Record, and then perhaps the name of a child. Write "
        f"forward(record.with_value(value)) or forward(Record(key, value, timestamp))."
    )
