"""`UserContext`: the context of a user's processor, in front of the engine's wider one.

Users see only the public methods, and mistakes are reported where they are made, in the user's terms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from streams.errors import TopologyError
from streams.model.conversions import Headers, to_headers, to_timestamp_ms
from streams.model.record import Record, RecordMetadata
from streams.model.windows import Duration
from streams.operators.operator_context import OperatorContext
from streams.operators.process.in_process import InProcess
from streams.operators.process.session_store import SessionStore
from streams.operators.process.user_stores import user_store
from streams.operators.process.window_store import WindowStore
from streams.operators.punctuation import Cancellable, PunctuationType


class UserContext:
    """The `ProcessorContext` of one user's processor in one step.

    Args:
        ctx: The context of the node.
        in_process: The current record.
    """

    def __init__(self, ctx: OperatorContext, in_process: InProcess) -> None:
        self._ctx = ctx
        self._in_process = in_process
        self._stores: dict[str, Any] = {}

    @property
    def node(self) -> str:
        return self._ctx.node

    @property
    def application_id(self) -> str:
        return self._ctx.application_id

    @property
    def task_id(self) -> str:
        return self._ctx.task_id

    @property
    def stream_time(self) -> int:
        return self._ctx.stream_time

    @property
    def now_ms(self) -> int:
        return self._ctx.now_ms

    @property
    def record_metadata(self) -> RecordMetadata | None:
        return self._ctx.record_metadata

    @property
    def topic(self) -> str | None:
        metadata = self._ctx.record_metadata
        return None if metadata is None else metadata.topic

    @property
    def headers(self) -> Headers:
        return self._in_process.headers

    @property
    def state(self) -> dict[str, Any]:
        return self._ctx.state

    def current_stream_time_ms(self) -> int:
        return self._ctx.stream_time

    def current_system_time_ms(self) -> int:
        return self._ctx.now_ms

    def store(self, name: str) -> Any:
        if name not in self._stores:
            self._stores[name] = user_store(name, self._ctx.store(name), self._in_process)
        return self._stores[name]

    def get_state_store(self, name: str) -> Any:
        return self.store(name)

    def forward(self, record: Record, child: str | None = None) -> None:
        self._ctx.forward(checked_record(self._ctx.node, record, child, self._in_process.headers), child)

    def drop(self, record: Record, reason: str) -> None:
        self._ctx.drop(record, reason)

    def schedule(
        self,
        interval: Duration,
        kind: PunctuationType | str | None = None,
        callback: Callable[[int], object] | None = None,
    ) -> Cancellable:
        if kind is None or (callback is None and not isinstance(kind, str)):
            raise TopologyError(
                f"'{self._ctx.node}' calls schedule without the type of the punctuation or the function to call: write "
                f"schedule(interval, PunctuationType.STREAM_TIME, function)."
            )
        return self._ctx.schedule(interval, kind, self._in_process.at_time(cast("Callable[[int], object]", callback)))


def expire_stores(context: UserContext) -> None:
    """Expires windows and sessions that exceed their stores' retention, relative to the newest one written."""
    for name, store in context._stores.items():
        if isinstance(store, WindowStore | SessionStore) and store._newest >= 0:
            context._ctx.expire(name, store._newest)


def checked_record(node: str, record: Record, child: object, headers: Headers) -> Record:
    """The record to forward, with its timestamp in ms and its headers as pairs.

    Raises:
        TopologyError: The argument is not a record, but perhaps a key and a value.
    """
    if not isinstance(record, Record):
        given = repr(record) if child is None else f"{record!r}, {child!r}"
        raise TopologyError(
            f"'{node}' calls forward({given}): forward takes a Record, and then perhaps the name of a child. Write "
            f"forward(record.with_value(value)) or forward(Record(key, value, timestamp))."
        )
    if type(record.timestamp) is int and (record.headers is headers or record.headers == ()):
        return record
    return Record(record.key, record.value, to_timestamp_ms(record.timestamp), to_headers(record.headers))
