"""Users' processors in a task: the operator that runs one, its context, and checks of its methods, attributes and keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import cached_property, wraps
from typing import Any, cast

from streams.errors import SerdeError, TopologyError
from streams.model.record import Headers, Record, RecordMetadata, to_headers, to_timestamp_ms
from streams.model.windows import Duration
from streams.operators.operator import OperatorContext
from streams.operators.process.store_views import user_store
from streams.operators.process.suppliers import check_processor
from streams.operators.process.user_stores import InProcess, SessionStore, WindowStore
from streams.operators.processor import BaseProcessor, Cancellable, KafkaNames, Processor, PunctuationType
from streams.serdes.json_text import NotKept, keep, loads


class UserProcessor(BaseProcessor[Any, Any, OperatorContext]):
    """A user's processor with its own view of the engine: a `UserContext`.

    Args:
        supplier: `() -> Processor`.
    """

    def __init__(self, supplier: Callable[[], Processor]) -> None:
        self.processor = check_processor(supplier())
        self._own: Processor = self.processor
        self._in_process = InProcess()

    def wrap(self, wrapper: Callable[[Processor], Processor]) -> None:
        """Wrap the user's processor in the user's wrapper."""
        self.processor = wrapper(self.processor)

    def context(self, ctx: OperatorContext, in_process: InProcess) -> UserContext:
        """The context that the processor gets."""
        return UserContext(ctx, in_process)

    def init(self, ctx: OperatorContext) -> None:
        """Pass the processor its context."""
        super().init(ctx)
        context = self._context = self.context(ctx, self._in_process)
        # Also set here, for a processor whose `init` does not call the overridden one.
        self.processor.ctx = context
        self.processor.init(context)
        context._check_state()
        self._process = self.processor.process
        self._attributes = Attributes(self._own, self._own.transient)

    def process(self, record: Record) -> None:
        in_process = self._in_process
        in_process.record = record
        try:
            given: object = self._process(record)  # type: ignore[func-returns-value]
            self._context._check_state()
        except Exception:
            if in_process.has_changed:
                self.ctx.partly_done()
            raise
        finally:
            in_process.record = None
        if given is not None:
            raise TopologyError(
                f"{type(self._own).__name__}.process returns {_shown(given)} in '{self.ctx.node}', which would be lost: results "
                f"are forwarded, as in self.ctx.forward(record.with_value(value)), and process returns nothing."
            )

    def advance(self, elapsed_ms: int, limit: int) -> int:
        advanced = self.processor.advance(elapsed_ms, limit)
        self._context._check_state()
        return advanced

    def flush(self) -> None:
        """End the step, after which the processor's attributes are lost.

        Raises:
            TopologyError: The processor relies on its attributes.
        """
        self.processor.flush()
        self._context._check_state()
        expire_stores(self._context)
        self._attributes.check(self.ctx.node)

    def close(self) -> None:
        self.processor.close()


def _shown(given: object) -> str:
    kind = type(given).__name__
    if kind in ("generator", "coroutine", "async_generator"):
        return f"a {kind.replace('_', ' ')} (it has a yield or an async in it)"
    text = repr(given)
    return text if len(text) <= 80 else text[:77] + "..."


# --- `UserContext`: the context that a user's processor sees. It hides the parts of the engine's context that are not public.
#
# Users see only the public methods. Mistakes are reported where they are made, in the user's terms.


class UserContext(KafkaNames):
    """The `ProcessorContext` of one user's processor in one step.

    Args:
        ctx: The context of the node.
        in_process: The current record.
    """

    def __init__(self, ctx: OperatorContext, in_process: InProcess) -> None:
        self._ctx = ctx
        self._in_process = in_process
        self._stores: dict[str, Any] = {}
        self._kept_state: bytes | None = None
        """The bytes of the state at the last check; None: the user has not requested the state."""

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
        self._in_process.changes()  # who asks for it may write to it
        if self._kept_state is None:
            self._kept_state = keep(self._ctx.state)
        return self._ctx.state

    def _check_state(self) -> None:
        """Checks the state after each call of the user's code.

        Raises:
            SerdeError: The state would not be read back unchanged; it is restored to its value before the call.
        """
        if self._kept_state is None:
            return
        state = self._ctx.state
        try:
            self._kept_state = keep(state)
        except (NotKept, TypeError) as error:
            state.clear()
            state.update(loads(self._kept_state))
            raise SerdeError(
                f"'{self._ctx.node}' cannot keep something in ctx.state, because it would get something else back: {error}"
            ) from error

    def store(self, name: str) -> Any:
        if name not in self._stores:
            self._stores[name] = user_store(name, self._ctx.store(name), self._in_process)
        return self._stores[name]

    def forward(self, record: Record, child: str | None = None) -> None:
        in_process = self._in_process
        record = checked_record(self._ctx.node, record, child, in_process.headers)
        in_process.changed_for = in_process.record
        self._ctx.forward(record, child)

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
        return self._ctx.schedule(interval, kind, self._in_process.at_time(self._checked(callback)))

    def _checked(self, callback: Any) -> Callable[[int], object]:
        """The callback of a punctuation, wrapped so that the state is checked afterwards."""
        if not callable(callback):
            return cast("Callable[[int], object]", callback)  # refused when it is scheduled

        @wraps(callback)
        def call(time: int) -> None:
            callback(time)
            self._check_state()

        return call


def expire_stores(context: UserContext) -> None:
    """Deletes windows and sessions older than their store's retention, measured from the newest one written."""
    for name, store in context._stores.items():
        if isinstance(store, WindowStore | SessionStore) and store._newest >= 0:
            context._ctx.expire(name, store._newest)


def checked_record(node: str, record: Record, child: object, headers: Headers) -> Record:
    """The record to forward, with its timestamp in ms and its headers as pairs.

    Raises:
        TopologyError: The argument is not a record, but for example a key and a value.
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


# --- Checks, before any record is processed, that the engine can call users' processors and transformers.

# A processor is created for each micro-batch; its class is checked once.


# --- Detects attributes of a user's object that would be lost after the step, before results depend on the batches.
#
# A new processor is created for every step. A processor that counts in `self.n` works in a test with one micro-batch, and is wrong
# in production, where micro-batches are cut differently each time.

_PLAIN = (int, float, str, bytes, bool, tuple, frozenset, type(None))
_CONTAINERS = (list, dict, set, deque, bytearray)


class Attributes:
    """The attributes of an object as they were after `init`.

    An attribute has changed if it is new, has another value, or is a container with another length. Changes inside an object are
    not detected. A value equal to the earlier one, such as a buffer that is empty again, is not a change.

    Args:
        owner: The object.
        transient: Names of attributes that may change, or one name.
    """

    def __init__(self, owner: object, transient: str | Collection[str]) -> None:
        self._owner = owner
        self._transient = (transient,) if isinstance(transient, str) else tuple(transient)
        self._values = dict(vars(owner))
        self._sizes = {name: len(value) for name, value in self._values.items() if isinstance(value, _CONTAINERS)}

    def check(self, node: str) -> None:
        """Compares the attributes at the end of the step.

        Raises:
            TopologyError: An attribute has changed that is not declared as transient.
        """
        for name, value in vars(self._owner).items():
            if self._changed(name, value) and not self._may_change(name):
                kind = type(self._owner)
                raise TopologyError(
                    f"{kind.__name__} in '{node}' changes its attribute '{name}' after init, and a new {kind.__name__} is made for "
                    f"every micro-batch, so that the change is lost. Keep it in a store (self.ctx.store(...)) or, if it is small, "
                    f"in self.ctx.state[{name!r}]. If it is only a cache, which may be lost, declare it in the class: "
                    f"transient = ({name!r},)."
                )

    def _changed(self, name: str, value: Any) -> bool:
        if name not in self._values:
            return True
        before = self._values[name]
        if name in self._sizes:
            return type(value) is not type(before) or len(value) != self._sizes[name]
        if value is before:
            return False
        return not (type(value) is type(before) and isinstance(value, _PLAIN) and value == before)

    def _may_change(self, name: str) -> bool:
        return name in self._transient or isinstance(getattr(type(self._owner), name, None), cached_property)


# --- `process_values`: a user's processor that may not change the key (Kafka Streams: `FixedKeyProcessor`).


class FixedKeyProcessor(UserProcessor):
    """Runs a processor, and fails if it forwards a record under another key than the current record's.

    So results stay in the right partition, and need no repartition topic after the processor. During a punctuation there is no
    current record, and the processor chooses the keys: it should only forward keys that it has seen.
    """

    def context(self, ctx: OperatorContext, in_process: InProcess) -> UserContext:
        """The processor's context, which checks keys."""
        return _FixedKeyContext(ctx, in_process)


class _FixedKeyContext(UserContext):
    """A context in which `forward` compares keys."""

    def forward(self, record: Record, child: str | None = None) -> None:
        """Forward a record whose key is unchanged. Raises an error for another key."""
        now = self._in_process.record
        record = checked_record(self.node, record, child, self._in_process.headers)
        if now is not None and record.key != now.key:
            raise TopologyError(
                f"The processor of '{self.node}' forwards the key {record.key!r} for a record with the key "
                f"{now.key!r}: process_values cannot change keys. Use process(...), which may."
            )
        self._in_process.changed_for = now
        self._ctx.forward(record, child)
