"""The two interfaces between an operator and what runs it: `Processor` and `ProcessorContext`.

Invariant: an operator keeps nothing between steps in its own attributes. What must survive a step lives in stores
or in `ProcessorContext.state`, because a task is thrown away after every step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from streams.model.record import HeldRecord, Record, RecordMetadata

Mode = Literal["strict", "compat"]
PunctuationType = Literal["stream_time", "wall_clock"]


class Cancellable(Protocol):
    """Handle of a scheduled punctuation."""

    def cancel(self) -> None:
        """Stop it for good."""


class ProcessorContext(Protocol):
    """What an operator may ask of the runtime. One object per node and step."""

    @property
    def node(self) -> str:
        """Name of the node."""

    @property
    def application_id(self) -> str:
        """Name of the application."""

    @property
    def task_id(self) -> str:
        """`<sub-topology>_<task>`, for messages."""

    @property
    def mode(self) -> Mode:
        """`strict` (default) or `compat`, which reproduces Kafka Streams' flaws."""

    @property
    def emit_interval_ms(self) -> int:
        """In `compat` mode, the least wall-clock time between two looks for closed windows, ms."""

    @property
    def stream_time(self) -> int:
        """Largest timestamp that the task has read, this record included, plus idle time; -1 before the first."""

    @property
    def now_ms(self) -> int:
        """The step's wall clock (Spark's logged batch time), milliseconds since the epoch."""

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Source position of the record in process; None while flushing or punctuating."""

    @property
    def flushing(self) -> bool:
        """Whether the step is at its end and operators emit what they held back."""

    @property
    def state(self) -> dict[str, Any]:
        """This node's small state (stream time and the like): JSON-able, survives restarts, never forgotten."""

    def shared_state(self, name: str) -> dict[str, Any]:
        """The same, shared by all nodes of the task that ask for `name` (the two sides of a join)."""

    def store(self, name: str) -> Any:
        """The typed store `name` (`streams.operators.stores.key_value`)."""

    def forward(self, record: Record, child: str | None = None) -> None:
        """Hand a record to all children in the order they were added, depth first, or only to the one named."""

    def drop(self, record: Record, reason: str) -> None:
        """Count a record that gives no result."""

    def drop_many(self, count: int, reason: str) -> None:
        """`drop` for a number of records that were handled as columns."""

    def count(self, what: str, number: int) -> None:
        """Add to the counter `<what>:<node>` of the step."""

    def hold(self, record: Record) -> Any:
        """Keep the place of the record in process, whose results `forward` shall give later: what `resume` takes."""

    def resume(self, held: Any) -> AbstractContextManager[None]:
        """Within it, the record that was held back is in process again: its metadata, its errors, its place in the order."""

    def attempt(self, action: Callable[[], None], held: HeldRecord | None = None) -> None:
        """Run one piece of the work under the processing policy, so that a failure of it spares the others.

        Args:
            action: What to do.
            held: The record for which it is done, if that is not the one in process: it is what errors and dead letters name.
        """

    def expire(self, store: str, stream_time: int) -> None:
        """Tell a windowed store its stream time: rows older than its retention before that can never matter again.

        Of several nodes that share a store, the one that is furthest behind decides.
        """

    def schedule(self, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None]) -> Cancellable:
        """Call `callback(time)` every `interval_ms` of stream time or of the wall clock (`Punctuator`)."""


class Processor(ABC):
    """One operator. The runtime calls `init`, then `process` for each record, then `flush` and `close`."""

    ctx: ProcessorContext

    def init(self, ctx: ProcessorContext) -> None:
        """Called once per step, before the first record; stores and state are ready."""
        self.ctx = ctx

    @abstractmethod
    def process(self, record: Record) -> None:
        """Handle one record; results go to `ctx.forward`."""

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """The task is idle (`idle_timeout_ms`): stream time moves on, as if a record of the later time had come.

        Called just before `flush`, so all that comes from above has come. An operator that keeps no stream time and holds
        nothing back need not do anything; one that holds records back by time should override it.

        Args:
            elapsed_ms: How much of the wall clock has passed, milliseconds.
            limit: Where stream time must stop, ms: what operators above hold back may still come with that time.

        Returns:
            The limit for the operators below: at most `limit`, and no later than anything that is still held back here.
        """
        return limit

    def flush(self) -> None:  # noqa: B027 - most operators hold nothing back
        """End of the step, called in topological order: emit what was held back."""

    def close(self) -> None:  # noqa: B027 - most operators hold nothing
        """After `flush`, also when the step failed: let go of resources."""


class OuterProcessor(Processor):
    """A processor around another one: hands everything on to it.

    Attributes:
        inner: The other one.
    """

    def __init__(self, inner: Processor) -> None:
        self.inner = inner

    def init(self, ctx: ProcessorContext) -> None:
        """See `Processor`."""
        super().init(ctx)
        self.inner.init(ctx)

    def process(self, record: Record) -> None:
        """See `Processor`."""
        self.inner.process(record)

    def advance(self, elapsed_ms: int, limit: int) -> int:
        """See `Processor`."""
        return self.inner.advance(elapsed_ms, limit)

    def flush(self) -> None:
        """See `Processor`."""
        self.inner.flush()

    def close(self) -> None:
        """See `Processor`."""
        self.inner.close()
