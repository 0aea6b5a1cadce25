"""`OperatorContext`: what the engine's own operators may ask of the runtime, besides what `ProcessorContext` has.

Users see none of it: these calls hold records back, guard pieces of work and count, and are right only together with
how an operator's stores and the commit work.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from streams.model.record import HeldRecord, Record
from streams.operators.processor import ProcessorContext

Mode = Literal["strict", "compat"]


class OperatorContext(ProcessorContext[Any, Any], Protocol):
    """The context of an operator. One object per node and step; `store` gives the typed store with all of its methods."""

    @property
    def mode(self) -> Mode:
        """`strict` (default) or `compat`, which reproduces Kafka Streams' flaws."""

    @property
    def emit_interval_ms(self) -> int:
        """In `compat` mode, the least wall-clock time between two looks for closed windows, ms."""

    @property
    def flushing(self) -> bool:
        """Whether the step is at its end and operators emit what they held back."""

    def shared_state(self, name: str) -> dict[str, Any]:
        """As `state`, shared by all nodes of the task that ask for `name` (the two sides of a join)."""

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
