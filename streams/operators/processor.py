"""The Processor API: `Processor`, which users implement, `ProcessorContext`, which they receive, and the clocks of `schedule`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeAlias

from typing_extensions import TypeVar

from streams.errors import TopologyError
from streams.model.record import Headers, Record, RecordMetadata
from streams.model.typing import K, KIn, KOut, V, VIn, VOut
from streams.model.windows import Duration


class PunctuationType(str, Enum):
    """The clock of a scheduled call (Kafka Streams: `PunctuationType`)."""

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock"


_BY_TEXT = {text: one for one in PunctuationType for text in (one.value, one.name, one.name.lower())}


def punctuation_type(given: PunctuationType | str) -> PunctuationType:
    """Returns the clock for a type or its name.

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


# --- The two interfaces of the Processor API: `Processor`, which users implement, and `ProcessorContext`, which they receive.
#
# The engine's own operators have the same life cycle (`BaseProcessor`) and a wider context (`streams.operators.operator`).
#
# Invariant: a processor's attributes are lost after each step, because a task exists for one step only. Data that must survive a
# step belongs in stores or in `ProcessorContext.state`.


class ProcessorContext(Protocol[KOut, VOut]):
    """The interface of a task for its processors. Type parameters: key and value of forwarded records.

    Example:
        >>> class Double(Processor[str, int, str, int]):
        ...     def process(self, record: Record[str, int]) -> None:
        ...         self.ctx.forward(record.with_value(2 * record.value))
    """

    @property
    def node(self) -> str: ...

    @property
    def application_id(self) -> str: ...

    @property
    def task_id(self) -> str:
        """`<sub-topology>_<task>`, for messages."""

    @property
    def stream_time(self) -> int:
        """The largest timestamp that the task has read, including this record, plus idle time; -1 before the first record."""

    @property
    def now_ms(self) -> int:
        """The step's wall clock (Spark's logged batch time), milliseconds since the epoch."""

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Source topic, partition and offset of the current record; None while flushing or punctuating."""

    @property
    def topic(self) -> str | None:
        """Source topic of the current record; None while flushing or punctuating."""

    @property
    def headers(self) -> Headers:
        """Headers of the current record; none while flushing or punctuating."""

    @property
    def state(self) -> dict[str, Any]:
        """This node's small state: a dictionary of JSON values that survives restarts and never expires."""

    def current_stream_time_ms(self) -> int: ...

    def current_system_time_ms(self) -> int: ...

    def store(self, name: str) -> Any:
        """The state store `name`: a `KeyValueStore`, `WindowStore`, `SessionStore` ... of the kind declared with `Stores`."""

    def get_state_store(self, name: str) -> Any: ...

    def forward(self, record: Record[KOut, VOut], child: str | None = None) -> None:
        """Pass a record to all children in the order they were added, depth first, or only to the named one."""

    def drop(self, record: Record[Any, Any], reason: str) -> None:
        """Count a record as dropped, with the reason why it has no result."""

    def schedule(
        self, interval: Duration, kind: PunctuationType | str, callback: Callable[[int], object]
    ) -> Cancellable:
        """Call `callback(time)` at each interval of stream time or of the wall clock; only `init` may schedule."""


class KafkaNames:
    """The methods of a context that have a different name in Kafka Streams."""

    def current_stream_time_ms(self: ProcessorContext) -> int:
        return self.stream_time

    def current_system_time_ms(self: ProcessorContext) -> int:
        return self.now_ms

    def get_state_store(self: ProcessorContext, name: str) -> Any:
        return self.store(name)


ContextT = TypeVar("ContextT", bound=ProcessorContext[Any, Any], default=Any)


class BaseProcessor(ABC, Generic[KIn, VIn, ContextT]):
    """The life cycle of a node within one step: `init`, then `process` for each record, then `flush` and `close`."""

    ctx: ContextT

    def init(self, ctx: ContextT) -> None:
        """Called once per step, before the first record; stores and state are ready."""
        self.ctx = ctx

    @abstractmethod
    def process(self, record: Record[KIn, VIn]) -> None:
        """Handle one record; results go to `ctx.forward`."""

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """Called while the task is idle (`idle_timeout_ms`): stream time advances, as if a record with the later time had arrived.

        The call comes just before `flush`, after all records from above. An operator that has no stream time and holds nothing back
        need not do anything; one that holds records back by time should override it.
        """
        return limit

    def flush(self) -> None:
        """Called at the end of the step, in topological order: emit pending results."""

    def close(self) -> None:
        """Called after `flush`, even if the step failed: release resources."""


AnyProcessor: TypeAlias = BaseProcessor[Any, Any, Any]
"""The processors that run as nodes: an operator of the engine, or the `UserProcessor` that runs a user's processor."""


class Processor(BaseProcessor[KIn, VIn, ProcessorContext[KOut, VOut]], Generic[KIn, VIn, KOut, VOut]):
    """A node of your own. A new object is created for every micro-batch, so its attributes remember nothing.

    State that must survive belongs in a store (`self.ctx.store(name)`) or in `self.ctx.state`, a small dictionary. An attribute
    that changes after `init` is an error at the end of the micro-batch, unless the class declares it in `transient`: a cache, whose
    loss at any time changes no result.

    Example:
        >>> class Total(Processor[str, int, str, int]):
        ...     def init(self, ctx: ProcessorContext[str, int]) -> None:
        ...         super().init(ctx)
        ...         self.sums = ctx.store("sums")
        ...
        ...     def process(self, record: Record[str, int]) -> None:
        ...         total = (self.sums.get(record.key) or 0) + record.value
        ...         self.sums.put(record.key, total)
        ...         self.ctx.forward(record.with_value(total))

    `init` runs once per micro-batch before its first record, `process` for each record, `flush` at its end, `close` last.
    Results are forwarded, not returned. Type parameters: key and value of the input, then of the forwarded records.

    Attributes:
        ctx: The context.
        transient: Names of attributes that may change after `init` and be lost, or one name.
    """

    transient: ClassVar[str | tuple[str, ...]] = ()


class OuterProcessor(BaseProcessor[KIn, VIn, ContextT]):
    """Wraps another node, and delegates everything to it.

    Attributes:
        inner: The wrapped node.
    """

    def __init__(self, inner: AnyProcessor) -> None:
        self.inner = inner

    def init(self, ctx: ContextT) -> None:
        super().init(ctx)
        self.inner.init(ctx)

    def process(self, record: Record[KIn, VIn]) -> None:
        self.inner.process(record)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        return self.inner.advance(elapsed_ms, limit)

    def flush(self) -> None:
        self.inner.flush()

    def close(self) -> None:
        self.inner.close()


# --- `transform_values` of a table: a user's stateful value transformer (Kafka Streams: `KTableTransformValues`).


class ValueTransformer(ABC, Generic[K, V, VOut]):
    """Computes a table's new values from the old ones, with stores (Kafka Streams: `ValueTransformerWithKey`).

    A new object is created for every micro-batch, so its attributes remember nothing: use `self.ctx.store(name)` or
    `self.ctx.state`.
    As in a `Processor`, an attribute that changes after `init` is an error unless it is declared in `transient`.

    Attributes:
        transient: Names of attributes that may change after `init` and be lost, or one name.
    """

    ctx: ProcessorContext
    transient: ClassVar[str | tuple[str, ...]] = ()

    def init(self, ctx: ProcessorContext) -> None:
        """Called once per step, before the first update; `ctx.schedule` may be used, `ctx.forward` may not."""
        self.ctx = ctx

    @abstractmethod
    def transform(self, key: K, value: V | None) -> VOut | None:
        """Returns the new value; None deletes the row. Called once for each update, including deletions (value None)."""

    def close(self) -> None:
        """Called at the end of the step, even if it failed."""
